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
 *   source -- partition class --(owned by it before: costs no move)------ member -- sink
 *                          \--- member class --(any other: one move)----/
 * </pre>
 *
 * A cost is one number with three parts, of which a higher one always outweighs the lower ones: the excess of a load, a
 * partition that crosses racks, and a move. A class costs as much to plan as one partition, so the number of partitions
 * matters only where they are read, and where the flow becomes an assignment again.
 */
final class OptimalPlan {
    private static final long MOVE = 1;
    private static final long CROSSING = 1L << 21;
    private static final long EXCESS = 1L << 42;

    /** With more partitions the parts of a cost would no longer be apart. */
    static final int MAX_PARTITIONS = 1 << 20;

    /** With more arcs between classes the network takes tens of megabytes of the broker, and time would end it anyway. */
    static final int MAX_ARCS = 1 << 18;

    private final GroupModel group;
    private final MinCostFlow network;
    private final int firstClass;
    private final int firstMemberClass;
    private final int firstMember;
    /** How many partitions of each class a member owns, as pairs in the order of members: class, count. */
    private final int[][] ownedClasses;
    private final int[][] ownedCounts;
    private final int[][] keepArcs;
    /** Arcs into each member class, as pairs: partition class, arc. */
    private final List<List<int[]>> classArcs = new ArrayList<>();
    private final int[] memberArcs;

    private OptimalPlan(GroupModel group, WorkBudget budget) {
        this.group = group;
        int classes = group.classSize.length;
        int memberClasses = group.classMembers.length;
        int members = group.members.length;
        firstClass = 2;
        firstMemberClass = firstClass + classes;
        firstMember = firstMemberClass + memberClasses;
        network = new MinCostFlow(firstMember + members, EXCESS, budget);
        ownedClasses = new int[members][];
        ownedCounts = new int[members][];
        keepArcs = new int[members][];
        memberArcs = new int[members];
        countOwned();
        build();
    }

    /**
     * Returns the owner of each partition.
     *
     * @throws WorkBudget.ExhaustedException if the work is more than the budget
     */
    static int[] of(GroupModel group, WorkBudget budget) {
        if (group.partitions() > MAX_PARTITIONS) {
            throw new WorkBudget.ExhaustedException("more than " + MAX_PARTITIONS + " partitions");
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
        long[] readers = IntStream.range(0, group.topicSets()).mapToLong(set -> group.readers(set).count()).toArray();
        return Arrays.stream(group.classTopicSet).mapToLong(set -> readers[set]).sum();
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
        if (most - least > 1) {
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
        int members = group.members.length;
        int free = leastLoad(group);
        for (int at = 0; at < group.classSize.length; at++) {
            network.arc(MinCostFlow.SOURCE, firstClass + at, group.classSize[at], 0);
        }
        for (int member = 0; member < members; member++) {
            int[] classes = ownedClasses[member];
            keepArcs[member] = new int[classes.length];
            for (int at = 0; at < classes.length; at++) {
                long cost = group.classCrosses(classes[at], group.memberClass[member]) ? CROSSING : 0;
                keepArcs[member][at] =
                        network.arc(firstClass + classes[at], firstMember + member, ownedCounts[member][at], cost);
            }
        }
        for (int of = 0; of < group.classMembers.length; of++) {
            classArcs.add(new ArrayList<>());
        }
        for (int at = 0; at < group.classSize.length; at++) {
            for (int of : group.readers(group.classTopicSet[at]).toArray()) {
                long cost = MOVE + (group.classCrosses(at, of) ? CROSSING : 0);
                int arc = network.arc(firstClass + at, firstMemberClass + of, group.classSize[at], cost);
                classArcs.get(of).add(new int[] {at, arc});
            }
        }
        for (int of = 0; of < group.classMembers.length; of++) {
            for (int member : group.classMembers[of]) {
                memberArcs[member] = network.arc(firstMemberClass + of, firstMember + member, group.partitions(), 0);
                network.end(firstMember + member, free);
            }
        }
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
                .flatMap(group::readers)
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
        for (int of = 0; of < group.classMembers.length; of++) {
            fill(of, moving, next, owner);
        }
        return owner;
    }

    /** Gives the members of a class the partitions that flow to it, one class of partitions after the other. */
    private void fill(int memberClass, int[][] moving, int[] next, int[] owner) {
        int[] members = group.classMembers[memberClass];
        int at = 0;
        int room = members.length == 0 ? 0 : network.flow(memberArcs[members[0]]);
        for (int[] arc : classArcs.get(memberClass)) {
            int of = arc[0];
            for (int units = network.flow(arc[1]); units > 0; units--) {
                while (room == 0) {
                    room = network.flow(memberArcs[members[++at]]);
                }
                owner[moving[of][next[of]++]] = members[at];
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
