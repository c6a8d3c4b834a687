package org.rackassign.broker;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;

/**
 * A group as numbers. Members, topics and partitions are numbered in the order of their IDs, so that the answer depends
 * on no order in which the coordinator happens to list them.
 *
 * <p>Partitions that have the same subscribers and replicas in the same racks are interchangeable but for their owners:
 * they are a <em>partition class</em>. Members with the same subscription in the same rack are a <em>member class</em>.
 * A group of a thousand members in three racks with one subscription has three member classes, and at most seven
 * partition classes.
 */
final class GroupModel {
    static final int NONE = -1;

    /** In place of racks that no member has; no rack has an empty name. */
    private static final String ELSEWHERE = "";

    /** In place of the racks of a partition of which none is known. */
    private static final Object UNKNOWN = "unknown";

    /** Members, by number. */
    final String[] members;
    /** Topics with at least one partition and one subscriber, by number. */
    final Uuid[] topics;
    /** The number of each topic's first partition; the last entry is the number of partitions. */
    final int[] firstPartition;
    /** The member class of each member. */
    final int[] memberClass;
    /** The owner of each partition before this assignment; {@link #NONE} without one. */
    final int[] owner;
    /** The partition class of each partition. */
    final int[] partitionClass;
    /** The number of partitions in each class. */
    final int[] classSize;
    /** Members of each member class, in order. */
    final int[][] classMembers;
    /** Whether a member class is subscribed to a partition class, by partition class and member class. */
    final boolean[][] subscribed;
    /**
     * Whether members of a class read partitions of a class from another rack, by partition class and member class. A
     * member without a rack, and a partition of whose replicas no rack is known, are no reason for anything.
     */
    final boolean[][] crosses;
    /** Whether any member has a rack. */
    final boolean membersHaveRacks;
    /** Whether what a member has contains more than its numbers here say: partitions that it may not have. */
    final boolean[] hasMore;

    private GroupModel(Reader reader) {
        members = reader.members;
        topics = reader.topics;
        firstPartition = reader.firstPartition;
        memberClass = reader.memberClass;
        owner = reader.owner;
        partitionClass = reader.partitionClass;
        classMembers = reader.classMembers;
        membersHaveRacks = reader.membersHaveRacks;
        hasMore = reader.hasMore;
        int classes = reader.classTopicSet.size();
        classSize = new int[classes];
        for (int each : partitionClass) {
            classSize[each]++;
        }
        subscribed = new boolean[classes][classMembers.length];
        crosses = new boolean[classes][classMembers.length];
        for (int at = 0; at < classes; at++) {
            for (int of = 0; of < classMembers.length; of++) {
                subscribed[at][of] = reader.subscribers.get(reader.classTopicSet.get(at))[reader.classSubscription[of]];
                String rack = reader.classRack[of];
                Set<String> racks = reader.classRacks.get(at);
                crosses[at][of] = rack != null && !racks.isEmpty() && !racks.contains(rack);
            }
        }
    }

    /** Reads the group that the coordinator describes. Unknown topics and missing values count as nothing. */
    static GroupModel of(GroupSpec spec, SubscribedTopicDescriber describer) {
        return new GroupModel(new Reader(spec, describer));
    }

    int partitions() {
        return partitionClass.length;
    }

    /** Returns the number of the topic of a partition. */
    int topicOf(int partition) {
        int at = Arrays.binarySearch(firstPartition, partition);
        return at >= 0 ? at : -at - 2;
    }

    boolean isSubscribed(int partition, int member) {
        return subscribed[partitionClass[partition]][memberClass[member]];
    }

    boolean crosses(int partition, int member) {
        return crosses[partitionClass[partition]][memberClass[member]];
    }

    /** Returns whether all members have the same subscription. */
    boolean isHomogeneous() {
        for (boolean[] row : subscribed) {
            for (boolean each : row) {
                if (!each) {
                    return false;
                }
            }
        }
        return true;
    }

    /** What is read; a class of its own, so that the model has final fields. */
    private static final class Reader {
        final String[] members;
        Uuid[] topics;
        int[] firstPartition;
        final int[] memberClass;
        int[] owner;
        int[] partitionClass;
        int[][] classMembers;
        int[] classSubscription;
        String[] classRack;
        boolean membersHaveRacks;
        boolean[] hasMore;
        /** Whether each subscription contains the topics of a set, by set of topics. */
        final List<boolean[]> subscribers = new ArrayList<>();
        final List<Integer> classTopicSet = new ArrayList<>();
        final List<Set<String>> classRacks = new ArrayList<>();

        private final List<Set<Uuid>> subscriptions = new ArrayList<>();

        Reader(GroupSpec spec, SubscribedTopicDescriber describer) {
            Collection<String> ids = spec.memberIds();
            members = new TreeSet<>(ids).toArray(new String[0]);
            memberClass = new int[members.length];
            readMembers(spec);
            int[] topicSet = readTopics(describer);
            readPartitions(describer, topicSet);
            readOwners(spec);
        }

        private void readMembers(GroupSpec spec) {
            boolean alike = spec.subscriptionType() == SubscriptionType.HOMOGENEOUS;
            Map<Set<Uuid>, Integer> subscriptionNumbers = new HashMap<>();
            Map<Integer, Map<String, Integer>> numbers = new HashMap<>();
            List<List<Integer>> lists = new ArrayList<>();
            List<Integer> subscriptionOf = new ArrayList<>();
            List<String> rackOf = new ArrayList<>();
            for (int member = 0; member < members.length; member++) {
                MemberSubscription subscription = spec.memberSubscription(members[member]);
                int number;
                if (alike && !subscriptions.isEmpty()) {
                    number = 0;
                } else {
                    Set<Uuid> wanted = subscription == null ? null : subscription.subscribedTopicIds();
                    Set<Uuid> subscribedIds = wanted == null ? Set.of() : wanted;
                    Integer known = subscriptionNumbers.get(subscribedIds);
                    if (known == null) {
                        known = subscriptions.size();
                        subscriptionNumbers.put(subscribedIds, known);
                        subscriptions.add(subscribedIds);
                    }
                    number = known;
                }
                String rack = rackOf(subscription);
                membersHaveRacks |= rack != null;
                Integer at = numbers.computeIfAbsent(number, each -> new HashMap<>()).get(rack);
                if (at == null) {
                    at = lists.size();
                    numbers.get(number).put(rack, at);
                    lists.add(new ArrayList<>());
                    subscriptionOf.add(number);
                    rackOf.add(rack);
                }
                lists.get(at).add(member);
                memberClass[member] = at;
            }
            classMembers = lists.stream().map(Reader::toInts).toArray(int[][]::new);
            classSubscription = toInts(subscriptionOf);
            classRack = rackOf.toArray(new String[0]);
        }

        private static String rackOf(MemberSubscription subscription) {
            Optional<String> rack = subscription == null ? null : subscription.rackId();
            // An empty rack is what clients send that have none.
            return rack == null ? null : rack.filter(each -> !each.isEmpty()).orElse(null);
        }

        /** Reads the topics, and returns for each the number of the set of subscriptions that contain it. */
        private int[] readTopics(SubscribedTopicDescriber describer) {
            TreeMap<Uuid, boolean[]> subscribersOf = new TreeMap<>();
            for (int number = 0; number < subscriptions.size(); number++) {
                for (Uuid topic : subscriptions.get(number)) {
                    if (topic != null) {
                        subscribersOf.computeIfAbsent(topic, each -> new boolean[subscriptions.size()])[number] = true;
                    }
                }
            }
            List<Uuid> known = new ArrayList<>();
            List<Integer> first = new ArrayList<>();
            List<Integer> sets = new ArrayList<>();
            Map<String, Integer> setNumbers = new HashMap<>();
            int count = 0;
            for (Map.Entry<Uuid, boolean[]> entry : subscribersOf.entrySet()) {
                // -1 for a topic that was deleted meanwhile.
                int partitions = describer.numPartitions(entry.getKey());
                if (partitions <= 0) {
                    continue;
                }
                String key = Arrays.toString(entry.getValue());
                Integer set = setNumbers.get(key);
                if (set == null) {
                    set = subscribers.size();
                    setNumbers.put(key, set);
                    subscribers.add(entry.getValue());
                }
                known.add(entry.getKey());
                first.add(count);
                sets.add(set);
                count = Math.addExact(count, partitions);
            }
            first.add(count);
            topics = known.toArray(new Uuid[0]);
            firstPartition = toInts(first);
            return toInts(sets);
        }

        private void readPartitions(SubscribedTopicDescriber describer, int[] topicSet) {
            partitionClass = new int[firstPartition[topics.length]];
            Map<String, Integer> rackNumbers = new HashMap<>();
            for (String rack : classRack) {
                if (rack != null) {
                    rackNumbers.putIfAbsent(rack, rackNumbers.size());
                }
            }
            List<Map<Object, Integer>> numbers = new ArrayList<>();
            for (int at = 0; at < subscribers.size(); at++) {
                numbers.add(new HashMap<>());
            }
            for (int topic = 0; topic < topics.length; topic++) {
                Map<Object, Integer> ofSet = numbers.get(topicSet[topic]);
                for (int partition = firstPartition[topic]; partition < firstPartition[topic + 1]; partition++) {
                    Set<String> racks = membersHaveRacks
                            ? describer.racksForPartition(topics[topic], partition - firstPartition[topic])
                            : null;
                    Object key = racks == null || racks.isEmpty() ? UNKNOWN : keyOf(racks, rackNumbers);
                    Integer number = ofSet.get(key);
                    if (number == null) {
                        number = classTopicSet.size();
                        ofSet.put(key, number);
                        classTopicSet.add(topicSet[topic]);
                        classRacks.add(usefulRacks(racks, rackNumbers));
                    }
                    partitionClass[partition] = number;
                }
            }
        }

        /** Returns what is equal for partitions whose racks make the same difference: those that members have. */
        private static Object keyOf(Set<String> racks, Map<String, Integer> rackNumbers) {
            if (rackNumbers.size() > Long.SIZE) {
                return usefulRacks(racks, rackNumbers);
            }
            long bits = 0;
            for (String rack : racks) {
                Integer number = rackNumbers.get(rack);
                bits |= number == null ? 0 : 1L << number;
            }
            return bits;
        }

        private static Set<String> usefulRacks(Set<String> racks, Map<String, Integer> rackNumbers) {
            Set<String> useful = racks == null ? Set.of() : new HashSet<>(racks);
            if (!useful.isEmpty()) {
                useful.retainAll(rackNumbers.keySet());
                if (useful.isEmpty()) {
                    // No member can read it in its own rack, which is not the same as a rack that is not known.
                    useful.add(ELSEWHERE);
                }
            }
            return useful;
        }

        private void readOwners(GroupSpec spec) {
            owner = new int[partitionClass.length];
            hasMore = new boolean[members.length];
            Arrays.fill(owner, NONE);
            Map<Uuid, Integer> numbers = new HashMap<>();
            for (int topic = 0; topic < topics.length; topic++) {
                numbers.put(topics[topic], topic);
            }
            for (int member = 0; member < members.length; member++) {
                MemberAssignment assigned = spec.memberAssignment(members[member]);
                Map<Uuid, Set<Integer>> partitions = assigned == null ? null : assigned.partitions();
                if (partitions == null) {
                    hasMore[member] = true;
                    continue;
                }
                for (Map.Entry<Uuid, Set<Integer>> entry : partitions.entrySet()) {
                    Integer topic = numbers.get(entry.getKey());
                    if (topic == null || entry.getValue() == null || !subscribes(member, topic)) {
                        hasMore[member] = true;
                        continue;
                    }
                    readOwned(member, topic, entry.getValue());
                }
            }
        }

        private void readOwned(int member, int topic, Set<Integer> partitions) {
            int first = firstPartition[topic];
            int count = firstPartition[topic + 1] - first;
            for (Integer partition : partitions) {
                // Of two owners, which no coordinator should have, the first one counts.
                if (partition != null && partition >= 0 && partition < count && owner[first + partition] == NONE) {
                    owner[first + partition] = member;
                } else {
                    hasMore[member] = true;
                }
            }
        }

        private boolean subscribes(int member, int topic) {
            int number = classTopicSet.get(partitionClass[firstPartition[topic]]);
            return subscribers.get(number)[classSubscription[memberClass[member]]];
        }

        private static int[] toInts(List<Integer> list) {
            return list.stream().mapToInt(Integer::intValue).toArray();
        }
    }
}
