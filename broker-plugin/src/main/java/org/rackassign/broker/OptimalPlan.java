package org.rackassign.broker;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/**
 * The plan that is best in this order: loads as even as subscriptions allow, as few partitions as possible that are
 * read from another rack, as few partitions as possible with another owner than before.
 *
 * <p>It is one minimum-cost flow. Units are partitions:
 *
 * <pre>
 *   source -- partition class --(owned by it before: costs no move)--- member -- sink
 *                          \--- pool --------(any other: one move)-----/
 * </pre>
 *
 * A pool is a member class. A cost is one number with three parts, of which a higher one always outweighs the lower
 * ones: the excess of a load, a partition that crosses racks, and a move. A class costs as much to plan as one partition,
 * so the number of partitions matters only where they are read, and where the flow becomes an assignment again.
 *
 * <p>If each topic is to be balanced first, topics are classes of their own, a pool is a member class of one topic, and
 * between pools and members there is a <em>share</em> for each member of each topic. It passes as many units as each
 * reader of the topic has at least, and one more at a cost that outweighs all others. That many are always had, so the
 * number of those others is the same in all plans, and the plan that is found has no topic less even than it can be.
 */
final class OptimalPlan {
    private static final long MOVE = 1;

    /** With more partitions the parts of a cost would no longer be apart. */
    static final int MAX_PARTITIONS = 1 << 20;

    /** The same with each topic balanced first, where a cost has one part more. */
    static final int MAX_PARTITIONS_BY_TOPIC = 1 << 17;

    /** With more arcs between classes the network takes tens of megabytes of the broker, and time would end it anyway. */
    static final int MAX_ARCS = 1 << 18;

    private final GroupModel group;
    private final MinCostFlow network;
    private final long crossing;
    private final long topicExcess;
    private final int firstClass;
    private final int firstMember;
    private int nextNode;
    /** How many partitions of each class a member owns, as pairs in the order of members: class, count. */
    private final int[][] ownedClasses;
    private final int[][] ownedCounts;
    private final int[][] keepArcs;
    private final List<Pool> pools = new ArrayList<>();

    /** Interchangeable readers: a member class, with the arcs that lead to it and from it. */
    private static final class Pool {
        final int[] members;
        /** Pairs of a partition class and the arc from it. */
        final List<int[]> classArcs = new ArrayList<>();
        /** The arc to each member, or to its share of a topic. */
        final int[] memberArcs;

        Pool(int[] members) {
            this.members = members;
            memberArcs = new int[members.length];
        }
    }

    private OptimalPlan(GroupModel group, WorkBudget budget) {
        this.group = group;
        int classes = group.classSize.length;
        int members = group.members.length;
        int bits = group.balancesTopics ? 17 : 21;
        crossing = 1L << bits;
        topicExcess = 1L << 3 * bits + 3;
        firstClass = 2;
        firstMember = firstClass + classes;
        nextNode = firstMember + members;
        // There are no more pools than shares.
        long further = group.balancesTopics ? 2 * group.pairs : group.classMembers.length;
        network = new MinCostFlow(Math.toIntExact(nextNode + further), 1L << 2 * bits, budget);
        ownedClasses = new int[members][];
        ownedCounts = new int[members][];
        keepArcs = new int[members][];
        countOwned();
        build();
    }

    /**
     * Returns the owner of each partition.
     *
     * @throws WorkBudget.ExhaustedException if the work is more than the budget
     */
    static int[] of(GroupModel group, WorkBudget budget) {
        int most = group.balancesTopics ? MAX_PARTITIONS_BY_TOPIC : MAX_PARTITIONS;
        if (group.partitions() > most) {
            throw new WorkBudget.ExhaustedException("more than " + most + " partitions");
        }
        if (arcs(group) > MAX_ARCS) {
            throw new WorkBudget.ExhaustedException("more than " + MAX_ARCS + " arcs");
        }
        if (group.partitions() == 0) {
            return new int[0];
        }
        OptimalPlan plan = new OptimalPlan(group, budget);
        int sent = plan.network.solve();
        if (sent != group.partitions()) {
            throw new IllegalStateException(sent + " of " + group.partitions() + " partitions have an owner");
        }
        return plan.owners();
    }

    private static long arcs(GroupModel group) {
        long[] readers = IntStream.range(0, group.topicSets()).mapToLong(set -> group.readers(set).length).toArray();
        long between = Arrays.stream(group.classTopicSet).mapToLong(set -> readers[set]).sum();
        return group.balancesTopics ? between + 3 * group.pairs : between;
    }

    /** Returns whether the plan of before is still optimal for a reason that needs no flow. */
    static boolean isSettled(GroupModel group) {
        int[] load = new int[group.members.length];
        boolean[] crossing = new boolean[group.classSize.length];
        for (int partition = 0; partition < group.owner.length; partition++) {
            int owner = group.owner[partition];
            if (owner == GroupModel.NONE) {
                return false;
            }
            crossing[group.partitionClass[partition]] |= group.crosses(partition, owner);
            load[owner]++;
        }
        int least = Arrays.stream(load).min().orElse(0);
        int most = Arrays.stream(load).max().orElse(0);
        // The plain plan moves something if a topic is uneven.
        if (most - least > 1 || group.balancesTopics && !Arrays.equals(StickyPlan.of(group), group.owner)) {
            return false;
        }
        for (int at = 0; at < crossing.length; at++) {
            if (crossing[at] && hasLocalMember(group, at)) {
                return false;
            }
        }
        return true;
    }

    private static boolean hasLocalMember(GroupModel group, int partitionClass) {
        for (int of = 0; of < group.classMembers.length; of++) {
            if (group.classSubscribed(partitionClass, of) && !group.classCrosses(partitionClass, of)) {
                return true;
            }
        }
        return false;
    }

    private void countOwned() {
        int members = group.members.length;
        int[] count = new int[members];
        for (int owner : group.owner) {
            if (owner != GroupModel.NONE) {
                count[owner]++;
            }
        }
        int[][] classesOf = new int[members][];
        for (int member = 0; member < members; member++) {
            classesOf[member] = new int[count[member]];
        }
        for (int partition = group.owner.length - 1; partition >= 0; partition--) {
            int owner = group.owner[partition];
            if (owner != GroupModel.NONE) {
                classesOf[owner][--count[owner]] = group.partitionClass[partition];
            }
        }
        for (int member = 0; member < members; member++) {
            int[] sorted = classesOf[member];
            Arrays.sort(sorted);
            int[] classes = new int[sorted.length];
            int[] counts = new int[sorted.length];
            int size = 0;
            for (int each : sorted) {
                if (size == 0 || classes[size - 1] != each) {
                    classes[size++] = each;
                }
                counts[size - 1]++;
            }
            ownedClasses[member] = Arrays.copyOf(classes, size);
            ownedCounts[member] = Arrays.copyOf(counts, size);
        }
    }

    private void build() {
        int free = group.balancesTopics ? leastShares(group) : leastLoad(group);
        for (int at = 0; at < group.classSize.length; at++) {
            network.arc(MinCostFlow.SOURCE, firstClass + at, group.classSize[at], 0);
        }
        for (int member = 0; member < group.members.length; member++) {
            network.end(firstMember + member, free);
            keepArcs[member] = new int[ownedClasses[member].length];
        }
        if (group.balancesTopics) {
            buildTopics();
        } else {
            buildTotals();
        }
    }

    private void buildTotals() {
        for (int member = 0; member < group.members.length; member++) {
            for (int at = 0; at < ownedClasses[member].length; at++) {
                keep(member, at, firstMember + member);
            }
        }
        Pool[] byClass = new Pool[group.classMembers.length];
        int[] node = new int[byClass.length];
        for (int of = 0; of < byClass.length; of++) {
            byClass[of] = new Pool(group.classMembers[of]);
            pools.add(byClass[of]);
            node[of] = nextNode++;
        }
        for (int at = 0; at < group.classSize.length; at++) {
            for (int of : group.readers(group.classTopicSet[at])) {
                take(at, of, byClass[of], node[of]);
            }
        }
        for (int of = 0; of < byClass.length; of++) {
            for (int at = 0; at < byClass[of].members.length; at++) {
                int member = firstMember + byClass[of].members[at];
                byClass[of].memberArcs[at] = network.arc(node[of], member, group.partitions(), 0);
            }
        }
    }

    private void buildTopics() {
        List<List<Integer>> classes = new ArrayList<>();
        for (int set = 0; set < group.topicSets(); set++) {
            classes.add(new ArrayList<>());
        }
        for (int at = 0; at < group.classSize.length; at++) {
            classes.get(group.classTopicSet[at]).add(at);
        }
        int[] share = new int[group.members.length];
        int[] next = new int[group.members.length];
        for (int set = 0; set < group.topicSets(); set++) {
            int size = classes.get(set).stream().mapToInt(at -> group.classSize[at]).sum();
            int least = size / group.readerCount[set];
            for (int of : group.readers(set)) {
                Pool pool = new Pool(group.classMembers[of]);
                pools.add(pool);
                int node = nextNode++;
                for (int at : classes.get(set)) {
                    take(at, of, pool, node);
                }
                for (int at = 0; at < pool.members.length; at++) {
                    int member = pool.members[at];
                    share[member] = nextNode++;
                    pool.memberArcs[at] = network.arc(node, share[member], least + 1, 0);
                    network.arc(share[member], firstMember + member, least, 0);
                    network.arc(share[member], firstMember + member, 1, topicExcess);
                }
            }
            // What a member owns is in the order of classes, and so of topics.
            for (int of : group.readers(set)) {
                for (int member : group.classMembers[of]) {
                    int[] owned = ownedClasses[member];
                    while (next[member] < owned.length && group.classTopicSet[owned[next[member]]] == set) {
                        keep(member, next[member], share[member]);
                        next[member]++;
                    }
                }
            }
        }
    }

    /** Adds the arc of partitions of a class that stay with their owner. */
    private void keep(int member, int at, int node) {
        int of = ownedClasses[member][at];
        long cost = group.classCrosses(of, group.memberClass[member]) ? crossing : 0;
        keepArcs[member][at] = network.arc(firstClass + of, node, ownedCounts[member][at], cost);
    }

    /** Adds the arc of partitions of a class that move to members of a class. */
    private void take(int partitionClass, int memberClass, Pool pool, int node) {
        long cost = MOVE + (group.classCrosses(partitionClass, memberClass) ? crossing : 0);
        int arc = network.arc(firstClass + partitionClass, node, group.classSize[partitionClass], cost);
        pool.classArcs.add(new int[] {partitionClass, arc});
    }

    /** Returns a load that each member has at least if each topic is balanced, and it reads anything. */
    private static int leastShares(GroupModel group) {
        int[] least = new int[group.members.length];
        boolean[] reads = new boolean[group.members.length];
        for (int topic = 0; topic < group.topics.length; topic++) {
            int set = group.topicSetOf(topic);
            int share = (group.firstPartition[topic + 1] - group.firstPartition[topic]) / group.readerCount[set];
            for (int of : group.readers(set)) {
                for (int member : group.classMembers[of]) {
                    least[member] += share;
                    reads[member] = true;
                }
            }
        }
        return IntStream.range(0, least.length).filter(at -> reads[at]).map(at -> least[at]).min().orElse(0);
    }

    /**
     * Returns a load that each member has at least, if it reads anything: only what exceeds it is compared.
     *
     * <p>With one subscription that is the mean, rounded down. Otherwise it is the least load of any plan. A plan in which
     * a member has less is not the most even one: loads of plans are the bases of a polymatroid, so one partition more
     * for it and one less for a member with more than that leads to another plan. What it adds to the squares for loads
     * from there on is the same in all plans, since their sum is.
     */
    private static int leastLoad(GroupModel group) {
        if (group.isHomogeneous()) {
            return group.partitions() / group.members.length;
        }
        int[] load = new int[group.members.length];
        for (int owner : StickyPlan.of(group)) {
            load[owner]++;
        }
        return IntStream.range(0, group.topicSets())
                .flatMap(set -> Arrays.stream(group.readers(set)))
                .distinct()
                .flatMap(of -> Arrays.stream(group.classMembers[of]))
                .map(member -> load[member])
                .min()
                .orElse(0);
    }

    /** Returns the owners that the flow means: partitions stay where it says so, and the others fill up in order. */
    private int[] owners() {
        int[] owner = new int[group.partitions()];
        int[][] kept = new int[group.members.length][];
        for (int member = 0; member < kept.length; member++) {
            kept[member] = new int[keepArcs[member].length];
            for (int at = 0; at < kept[member].length; at++) {
                kept[member][at] = network.flow(keepArcs[member][at]);
            }
        }
        int[][] moving = new int[group.classSize.length][];
        int[] size = new int[moving.length];
        for (int at = 0; at < moving.length; at++) {
            moving[at] = new int[8];
        }
        for (int partition = 0; partition < owner.length; partition++) {
            int of = group.partitionClass[partition];
            int before = group.owner[partition];
            owner[partition] = GroupModel.NONE;
            if (before != GroupModel.NONE) {
                int at = Arrays.binarySearch(ownedClasses[before], of);
                if (kept[before][at] > 0) {
                    kept[before][at]--;
                    owner[partition] = before;
                    continue;
                }
            }
            if (size[of] == moving[of].length) {
                moving[of] = Arrays.copyOf(moving[of], 2 * size[of]);
            }
            moving[of][size[of]++] = partition;
        }
        int[] next = new int[moving.length];
        for (Pool pool : pools) {
            fill(pool, moving, next, owner);
        }
        return owner;
    }

    /** Gives the members of a pool the partitions that flow to it, one class of partitions after the other. */
    private void fill(Pool pool, int[][] moving, int[] next, int[] owner) {
        int at = 0;
        int room = pool.members.length == 0 ? 0 : network.flow(pool.memberArcs[0]);
        for (int[] arc : pool.classArcs) {
            int of = arc[0];
            for (int units = network.flow(arc[1]); units > 0; units--) {
                while (room == 0) {
                    room = network.flow(pool.memberArcs[++at]);
                }
                owner[moving[of][next[of]++]] = pool.members[at];
                room--;
            }
        }
    }

    /** Returns whether the flow is proven optimal; for tests. */
    static boolean isProven(GroupModel group) {
        OptimalPlan plan = new OptimalPlan(group, new WorkBudget(Long.MAX_VALUE, 1 << 30));
        return plan.network.solve() == group.partitions() && plan.network.isOptimal();
    }
}
