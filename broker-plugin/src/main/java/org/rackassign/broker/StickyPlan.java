package org.rackassign.broker;

import java.util.Arrays;
import java.util.PriorityQueue;

/**
 * A plain plan, for when the optimal one is not to be had: owners keep what they have up to an even share, and the rest
 * goes to those with least, in the same rack among these.
 *
 * <p>Each partition is looked at a few times, and no search depends on the racks, so its time is that of sorting.
 */
final class StickyPlan {
    private final GroupModel group;
    private final int[] load;
    private final int[] owner;

    private StickyPlan(GroupModel group) {
        this.group = group;
        load = new int[group.members.length];
        owner = group.owner.clone();
    }

    /** Returns the owner of each partition. */
    static int[] of(GroupModel group) {
        StickyPlan plan = new StickyPlan(group);
        plan.keep();
        plan.fill();
        return plan.owner;
    }

    /** Lets each owner keep at most an even share of what it may read, its local partitions first. */
    private void keep() {
        int[] share = new int[group.classMembers.length];
        for (int of = 0; of < share.length; of++) {
            share[of] = shareOf(of);
        }
        for (int pass = 0; pass < 2; pass++) {
            for (int partition = 0; partition < owner.length; partition++) {
                int member = group.owner[partition];
                if (member == GroupModel.NONE || group.crosses(partition, member) == (pass == 0)) {
                    continue;
                }
                if (load[member] < share[group.memberClass[member]]) {
                    load[member]++;
                } else {
                    owner[partition] = GroupModel.NONE;
                }
            }
        }
    }

    /** Returns the even share of a member: each class of partitions in equal parts among its subscribers. */
    private int shareOf(int memberClass) {
        double share = 0;
        for (int of = 0; of < group.classSize.length; of++) {
            if (group.subscribed[of][memberClass]) {
                int subscribers = 0;
                for (int each = 0; each < group.classMembers.length; each++) {
                    subscribers += group.subscribed[of][each] ? group.classMembers[each].length : 0;
                }
                share += (double) group.classSize[of] / subscribers;
            }
        }
        return (int) share;
    }

    /** Gives partitions without an owner to the member with the lowest load, of those in the right rack at first. */
    private void fill() {
        PriorityQueue<long[]>[] queues = queues();
        for (int pass = 0; pass < 2; pass++) {
            for (int partition = 0; partition < owner.length; partition++) {
                if (owner[partition] != GroupModel.NONE) {
                    continue;
                }
                int of = group.partitionClass[partition];
                int least = least(of, queues, false);
                int local = least(of, queues, true);
                // In the first pass nothing becomes less even for the sake of a rack.
                boolean near = local != GroupModel.NONE && load[local] <= load[least];
                if (pass == 0 && !near) {
                    continue;
                }
                int member = near ? local : least;
                owner[partition] = member;
                load[member]++;
            }
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private PriorityQueue<long[]>[] queues() {
        PriorityQueue<long[]>[] queues = new PriorityQueue[group.classMembers.length];
        for (int of = 0; of < queues.length; of++) {
            queues[of] = new PriorityQueue<>((one, other) -> one[0] != other[0]
                    ? Long.compare(one[0], other[0])
                    : Long.compare(one[1], other[1]));
            for (int member : group.classMembers[of]) {
                queues[of].add(new long[] {load[member], member});
            }
        }
        return queues;
    }

    private int least(int partitionClass, PriorityQueue<long[]>[] queues, boolean localOnly) {
        int best = GroupModel.NONE;
        for (int of = 0; of < queues.length; of++) {
            if (!group.subscribed[partitionClass][of] || localOnly && group.crosses[partitionClass][of]) {
                continue;
            }
            // Entries of before a member's load has grown are put right when they come up.
            while (queues[of].peek()[0] != load[(int) queues[of].peek()[1]]) {
                int member = (int) queues[of].poll()[1];
                queues[of].add(new long[] {load[member], member});
            }
            int member = (int) queues[of].peek()[1];
            if (best == GroupModel.NONE || load[member] < load[best]) {
                best = member;
            }
        }
        return best;
    }

    /** Returns the loads of owners; for tests. */
    static int[] loads(GroupModel group, int[] owner) {
        int[] load = new int[group.members.length];
        Arrays.stream(owner).filter(member -> member != GroupModel.NONE).forEach(member -> load[member]++);
        return load;
    }
}
