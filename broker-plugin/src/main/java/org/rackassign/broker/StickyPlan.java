package org.rackassign.broker;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.PriorityQueue;

/**
 * A plain plan, for when the optimal one is not to be had: owners keep what they have, unless a subscriber has at least
 * two partitions less. What is to be given goes to members with least, in the same rack among these.
 *
 * <p>It takes a topic set after the other, so its time grows with members times topic sets, and with partitions. A plan
 * that it finds nothing to level in stays as it is, so calls with its own answer move nothing.
 */
final class StickyPlan {
    /** So often topic sets are levelled: what one of them moves may leave another one uneven. */
    private static final int MAX_ROUNDS = 8;

    /** With more pairs of a topic set and a member once has to do, as each round looks at them all. */
    private static final long MAX_PAIRS = 1 << 18;

    private static final int MEMBER_BITS = 20;
    private static final long MOST = (1L << 21) - 1;

    private final GroupModel group;
    /** Loads that are levelled: all partitions of a member, or those of the topic at hand. */
    private final int[] load;
    /** All partitions of a member. */
    private final int[] total;
    private final int[] owner;
    private final List<List<Integer>> partitions = new ArrayList<>();
    /** Members of the topic set at hand as loads and number; entries of before a load has changed are passed over. */
    private final PriorityQueue<Long> queue = new PriorityQueue<>();
    /** Members that get a partition, once for each, by the number of their rack plus one. */
    private final List<ArrayDeque<Integer>> slots = new ArrayList<>();

    private StickyPlan(GroupModel group) {
        this.group = group;
        total = new int[group.members.length];
        load = group.balancesTopics ? new int[group.members.length] : total;
        owner = group.owner.clone();
        for (int set = 0; set < group.topicSets(); set++) {
            partitions.add(new ArrayList<>());
        }
        for (int partition = 0; partition < owner.length; partition++) {
            partitions.get(group.classTopicSet[group.partitionClass[partition]]).add(partition);
            if (owner[partition] != GroupModel.NONE) {
                total[owner[partition]]++;
            }
        }
        for (int rack = 0; rack <= group.racks; rack++) {
            slots.add(new ArrayDeque<>());
        }
    }

    /** Returns the owner of each partition. */
    static int[] of(GroupModel group) {
        StickyPlan plan = new StickyPlan(group);
        boolean moved = true;
        int rounds = group.pairs > MAX_PAIRS ? 1 : MAX_ROUNDS;
        for (int round = 0; moved && round < rounds; round++) {
            moved = false;
            for (int set = 0; set < group.topicSets(); set++) {
                moved |= plan.level(set);
            }
        }
        return plan.owner;
    }

    /** Levels the subscribers of a topic set with its partitions; returns whether any has another owner now. */
    private boolean level(int set) {
        queue.clear();
        if (group.balancesTopics) {
            Arrays.fill(load, 0);
            for (int partition : partitions.get(set)) {
                if (owner[partition] != GroupModel.NONE) {
                    load[owner[partition]]++;
                }
            }
        }
        for (int of : group.readers(set)) {
            for (int member : group.classMembers[of]) {
                enqueue(member);
            }
        }
        List<Integer> given = new ArrayList<>();
        for (int partition : partitions.get(set)) {
            if (owner[partition] == GroupModel.NONE) {
                given.add(partition);
                receive();
            }
        }
        release(set, true, given);
        release(set, false, given);
        give(given);
        return !given.isEmpty();
    }

    /** Takes partitions from members that have two more than another one; first those that cross racks. */
    private void release(int set, boolean crossing, List<Integer> given) {
        for (int partition : partitions.get(set)) {
            int member = owner[partition];
            if (member == GroupModel.NONE || group.crosses(partition, member) != crossing) {
                continue;
            }
            if (load[member] - load[least()] >= 2) {
                owner[partition] = GroupModel.NONE;
                count(member, -1);
                given.add(partition);
                receive();
            }
        }
    }

    private void count(int member, int partitions) {
        load[member] += partitions;
        if (group.balancesTopics) {
            total[member] += partitions;
        }
        enqueue(member);
    }

    private void enqueue(int member) {
        queue.add(entry(member));
    }

    /** Returns what sorts members by load, then by all their partitions, then by number. */
    private long entry(int member) {
        return (Math.min(load[member], MOST) << 21 | Math.min(total[member], MOST)) << MEMBER_BITS | member;
    }

    /** Returns the member with the lowest load, the first one of several. */
    private int least() {
        while (true) {
            long entry = queue.peek();
            int member = (int) (entry & (1 << MEMBER_BITS) - 1);
            if (entry == entry(member)) {
                return member;
            }
            queue.poll();
        }
    }

    private void receive() {
        int member = least();
        queue.poll();
        count(member, 1);
        slots.get(group.classRack[group.memberClass[member]] + 1).add(member);
    }

    /** Gives partitions to those that are to get one, in a rack of their replicas as long as there are such. */
    private void give(List<Integer> given) {
        List<Integer> elsewhere = new ArrayList<>();
        for (int partition : given) {
            ArrayDeque<Integer> most = slots.get(0);
            BitSet local = group.localRacks[group.partitionClass[partition]];
            for (int rack = local == null ? -1 : local.nextSetBit(0); rack >= 0; rack = local.nextSetBit(rack + 1)) {
                most = slots.get(rack + 1).size() > most.size() ? slots.get(rack + 1) : most;
            }
            if (most.isEmpty()) {
                elsewhere.add(partition);
            } else {
                owner[partition] = most.poll();
            }
        }
        int at = 0;
        for (int partition : elsewhere) {
            while (slots.get(at).isEmpty()) {
                at++;
            }
            owner[partition] = slots.get(at).poll();
        }
    }
}
