package org.rackassign.broker;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.HashMap;
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
    /** The number of different racks of members. */
    final int racks;
    /** The rack of each member class, by number; {@link #NONE} without one. */
    final int[] classRack;
    /** The subscription of each member class, by number. */
    private final int[] classSubscription;
    /** The member classes of each subscription. */
    private final int[][] subscriptionClasses;
    /** The topic set of each partition class: topics with the same subscribers, or a topic if each is to be balanced. */
    final int[] classTopicSet;
    /** Whether each topic is to be balanced before totals are. */
    final boolean balancesTopics;
    /** How many members are subscribed to the topics of each set. */
    final int[] readerCount;
    /** How many pairs there are of a topic set and a member that is subscribed to it. */
    final long pairs;
    /** The subscriptions that contain the topics of a set, by topic set. */
    private final BitSet[] subscribers;
    /** The racks of members in which a partition class has replicas; null if no rack of it is known. */
    final BitSet[] localRacks;
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
        hasMore = reader.hasMore;
        racks = reader.rackNumbers.size();
        classRack = Reader.toInts(reader.classRack);
        classSubscription = Reader.toInts(reader.classSubscription);
        subscriptionClasses = reader.subscriptionClasses.stream().map(Reader::toInts).toArray(int[][]::new);
        classTopicSet = Reader.toInts(reader.classTopicSet);
        balancesTopics = reader.balancesTopics;
        subscribers = reader.subscribers.toArray(new BitSet[0]);
        localRacks = reader.localRacks.toArray(new BitSet[0]);
        classSize = new int[classTopicSet.length];
        for (int each : partitionClass) {
            classSize[each]++;
        }
        readerCount = countReaders();
        pairs = Arrays.stream(readerCount).asLongStream().sum();
    }

    private int[] countReaders() {
        int[] size = new int[subscriptionClasses.length];
        for (int of = 0; of < classSubscription.length; of++) {
            size[classSubscription[of]] += classMembers[of].length;
        }
        int[] count = new int[subscribers.length];
        for (int set = 0; set < count.length; set++) {
            for (int at = subscribers[set].nextSetBit(0); at >= 0; at = subscribers[set].nextSetBit(at + 1)) {
                count[set] += size[at];
            }
        }
        return count;
    }

    /**
     * Reads the group that the coordinator describes. Unknown topics and missing values count as nothing.
     *
     * @param balancesTopics whether each topic is to be balanced before totals are
     */
    static GroupModel of(GroupSpec spec, KnownRacks known, boolean balancesTopics) {
        return new GroupModel(new Reader(spec, known, balancesTopics));
    }

    int partitions() {
        return partitionClass.length;
    }

    int topicSets() {
        return subscribers.length;
    }

    /** Returns the member classes that are subscribed to the topics of a set; no streams, as there may be millions. */
    int[] readers(int topicSet) {
        BitSet of = subscribers[topicSet];
        int count = 0;
        for (int at = of.nextSetBit(0); at >= 0; at = of.nextSetBit(at + 1)) {
            count += subscriptionClasses[at].length;
        }
        int[] classes = new int[count];
        for (int at = of.nextSetBit(0), next = 0; at >= 0; at = of.nextSetBit(at + 1)) {
            System.arraycopy(subscriptionClasses[at], 0, classes, next, subscriptionClasses[at].length);
            next += subscriptionClasses[at].length;
        }
        return classes;
    }


    int topicSetOf(int topic) {
        return classTopicSet[partitionClass[firstPartition[topic]]];
    }

    /** Returns whether a member class is subscribed to a partition class. */
    boolean classSubscribed(int partitionClass, int memberClass) {
        return subscribers[classTopicSet[partitionClass]].get(classSubscription[memberClass]);
    }

    /**
     * Returns whether members of a class read partitions of a class from another rack. A member without a rack, and a
     * partition of whose replicas no rack is known, are no reason for anything.
     */
    boolean classCrosses(int partitionClass, int memberClass) {
        int rack = classRack[memberClass];
        BitSet local = localRacks[partitionClass];
        return rack != NONE && local != null && !local.get(rack);
    }

    boolean isSubscribed(int partition, int member) {
        return classSubscribed(partitionClass[partition], memberClass[member]);
    }

    boolean crosses(int partition, int member) {
        return classCrosses(partitionClass[partition], memberClass[member]);
    }

    /** Returns whether all members have the same subscription. */
    boolean isHomogeneous() {
        for (BitSet each : subscribers) {
            for (int subscription : classSubscription) {
                if (!each.get(subscription)) {
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
        boolean[] hasMore;
        final Map<String, Integer> rackNumbers = new HashMap<>();
        final List<Integer> classSubscription = new ArrayList<>();
        final List<List<Integer>> subscriptionClasses = new ArrayList<>();
        final List<Integer> classRack = new ArrayList<>();
        /** The subscriptions that contain the topics of a set, by set of topics. */
        final List<BitSet> subscribers = new ArrayList<>();
        final List<Integer> classTopicSet = new ArrayList<>();
        final List<BitSet> localRacks = new ArrayList<>();

        /** The subscriptions that contain a topic. */
        private final TreeMap<Uuid, BitSet> subscribersOf = new TreeMap<>();

        final boolean balancesTopics;

        Reader(GroupSpec spec, KnownRacks known, boolean balancesTopics) {
            this.balancesTopics = balancesTopics;
            Collection<String> ids = spec.memberIds();
            members = new TreeSet<>(ids).toArray(new String[0]);
            memberClass = new int[members.length];
            readMembers(spec);
            int[] topicSet = readTopics(known);
            readPartitions(known, topicSet);
            readOwners(spec);
        }

        private void readMembers(GroupSpec spec) {
            boolean alike = spec.subscriptionType() == SubscriptionType.HOMOGENEOUS;
            Map<Uuid, Integer> topicNumbers = new HashMap<>();
            Map<BitSet, Integer> subscriptionNumbers = new HashMap<>();
            Map<Long, Integer> classNumbers = new HashMap<>();
            List<List<Integer>> lists = new ArrayList<>();
            for (int member = 0; member < members.length; member++) {
                MemberSubscription subscription = spec.memberSubscription(members[member]);
                int number = alike && member > 0 ? 0 : numberOf(subscription, topicNumbers, subscriptionNumbers);
                String name = rackOf(subscription);
                int rack = name == null ? NONE : rackNumbers.computeIfAbsent(name, each -> rackNumbers.size());
                Integer known = classNumbers.putIfAbsent((long) number << Integer.SIZE | (rack + 1), lists.size());
                if (known == null) {
                    known = lists.size();
                    lists.add(new ArrayList<>());
                    classSubscription.add(number);
                    subscriptionClasses.get(number).add(known);
                    classRack.add(rack);
                }
                lists.get(known).add(member);
                memberClass[member] = known;
            }
            classMembers = lists.stream().map(Reader::toInts).toArray(int[][]::new);
        }

        /**
         * Returns the number of a subscription. Its topics are only iterated over: the hash of Kafka's own set
         * ({@code TopicIds}) is that of all metadata of the cluster, for each member again.
         */
        private int numberOf(
                MemberSubscription subscription, Map<Uuid, Integer> topics, Map<BitSet, Integer> subscriptions) {
            Set<Uuid> wanted = subscription == null ? null : subscription.subscribedTopicIds();
            BitSet key = new BitSet();
            if (wanted != null) {
                for (Uuid topic : wanted) {
                    if (topic != null) {
                        key.set(topics.computeIfAbsent(topic, each -> topics.size()));
                    }
                }
            }
            Integer known = subscriptions.putIfAbsent(key, subscriptions.size());
            if (known != null) {
                return known;
            }
            int number = subscriptions.size() - 1;
            subscriptionClasses.add(new ArrayList<>());
            if (wanted != null) {
                for (Uuid topic : wanted) {
                    if (topic != null) {
                        subscribersOf.computeIfAbsent(topic, each -> new BitSet()).set(number);
                    }
                }
            }
            return number;
        }

        private static String rackOf(MemberSubscription subscription) {
            Optional<String> rack = subscription == null ? null : subscription.rackId();
            // An empty rack is what clients send that have none.
            return rack == null ? null : rack.filter(each -> !each.isEmpty()).orElse(null);
        }

        /** Reads the topics, and returns for each the number of the set of subscriptions that contain it. */
        private int[] readTopics(KnownRacks racks) {
            List<Uuid> known = new ArrayList<>();
            List<Integer> first = new ArrayList<>();
            List<Integer> sets = new ArrayList<>();
            Map<BitSet, Integer> setNumbers = new HashMap<>();
            int count = 0;
            for (Map.Entry<Uuid, BitSet> entry : subscribersOf.entrySet()) {
                // -1 for a topic that was deleted meanwhile.
                int partitions = racks.partitions(entry.getKey());
                if (partitions <= 0) {
                    continue;
                }
                Integer set = balancesTopics ? null : setNumbers.putIfAbsent(entry.getValue(), subscribers.size());
                if (set == null) {
                    set = subscribers.size();
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

        private void readPartitions(KnownRacks known, int[] topicSet) {
            partitionClass = new int[firstPartition[topics.length]];
            boolean asks = !rackNumbers.isEmpty();
            int[][] setsOf = new int[topics.length][];
            for (int topic = 0; topic < topics.length; topic++) {
                int count = firstPartition[topic + 1] - firstPartition[topic];
                setsOf[topic] = asks ? known.setsOf(topics[topic], count) : new int[count];
            }
            List<Set<String>> sets = asks ? known.sets() : List.of(Set.of());
            List<Map<Object, Integer>> numbers = new ArrayList<>();
            for (int at = 0; at < subscribers.size(); at++) {
                numbers.add(new HashMap<>());
            }
            // Of each set the class in the topic that it was last met in.
            int[] number = new int[sets.size()];
            int[] lastTopic = new int[sets.size()];
            Arrays.fill(lastTopic, NONE);
            int partition = 0;
            for (int topic = 0; topic < topics.length; topic++) {
                for (int set : setsOf[topic]) {
                    if (lastTopic[set] != topic) {
                        lastTopic[set] = topic;
                        number[set] = classOf(topicSet[topic], sets.get(set), numbers.get(topicSet[topic]));
                    }
                    partitionClass[partition++] = number[set];
                }
            }
        }

        private int classOf(int topicSet, Set<String> racks, Map<Object, Integer> numbers) {
            Object key = racks.isEmpty() ? UNKNOWN : keyOf(racks);
            Integer number = numbers.putIfAbsent(key, classTopicSet.size());
            if (number != null) {
                return number;
            }
            classTopicSet.add(topicSet);
            localRacks.add(key == UNKNOWN ? null : localRacks(racks));
            return classTopicSet.size() - 1;
        }

        /** Returns what is equal for partitions whose racks make the same difference: those that members have. */
        private Object keyOf(Set<String> racks) {
            if (rackNumbers.size() > Long.SIZE) {
                return localRacks(racks);
            }
            long bits = 0;
            for (String rack : racks) {
                Integer number = rackNumbers.get(rack);
                bits |= number == null ? 0 : 1L << number;
            }
            return bits;
        }

        /** Returns those of some racks that members have. */
        private BitSet localRacks(Set<String> racks) {
            BitSet local = new BitSet();
            for (String rack : racks) {
                Integer number = rackNumbers.get(rack);
                if (number != null) {
                    local.set(number);
                }
            }
            return local;
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
            return subscribers.get(number).get(classSubscription.get(memberClass[member]));
        }

        private static int[] toInts(List<Integer> list) {
            return list.stream().mapToInt(Integer::intValue).toArray();
        }
    }
}
