package org.rackassign.broker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.junit.jupiter.api.Test;

class RackAwareAssignorTest {
    private static final int GROUPS = Integer.getInteger("rackassign.groups", 20_000);
    private static final String[] RACKS = {"a", "b", "c", "elsewhere", ""};

    @Test
    void smallGroupsAreAsGoodAsTheBestOfAllAssignments() {
        int compared = 0;
        for (int seed = 0; seed < GROUPS / 10; seed++) {
            TestGroup group = TestGroup.random(new Random(seed), 3, 6);
            GroupModel model = GroupModel.of(group, new KnownRacks(group), seed % 2 == 1);
            if (model.partitions() > 6) {
                continue;
            }
            long[] best = best(model);
            assertEquals(Arrays.toString(best), Arrays.toString(value(model, owners(group, model))), "seed " + seed);
            compared++;
        }
        assertTrue(compared > GROUPS / 40, "only " + compared);
    }

    @Test
    void everyPartitionOfASubscribedTopicHasOneOwnerWhoIsSubscribedAndPlansAreProven() {
        for (int seed = 0; seed < GROUPS; seed++) {
            TestGroup group = TestGroup.random(new Random(seed), 12, 40);
            GroupModel model = GroupModel.of(group, new KnownRacks(group), seed % 2 == 1);
            owners(group, model);
            assertTrue(model.partitions() == 0 || OptimalPlan.isProven(model), "seed " + seed);
            // The plain plan, which no budget can refuse, is complete too.
            int[] plain = StickyPlan.of(model);
            for (int partition = 0; partition < model.partitions(); partition++) {
                assertTrue(model.isSubscribed(partition, plain[partition]), "seed " + seed);
            }
        }
    }

    @Test
    void aGroupInWhichNothingHasChangedKeepsItsObjects() {
        TestGroup group = TestGroup.random(new Random(1), 6, 60);
        GroupAssignment first = new RackAwareAssignor().assign(group, group);
        group.owned.clear();
        first.members().forEach((member, assigned) -> group.owned.put(member, assigned.partitions()));
        GroupAssignment again = new RackAwareAssignor().assign(group, group);
        first.members().forEach((member, assigned) ->
                assertSame(assigned.partitions(), again.members().get(member).partitions()));
    }

    @Test
    void pastItsBudgetAPlanIsBalancedAndKeepsWhatMembersHave() {
        TestGroup group = TestGroup.even(30, 900);
        RackAwareAssignor assignor = new RackAwareAssignor();
        assignor.configure(Map.of(RackAwareAssignor.MAX_MS_CONFIG, "no number"));
        GroupModel model = GroupModel.of(group, new KnownRacks(group), false);
        boolean exhausted = false;
        try {
            OptimalPlan.of(model, new WorkBudget(1 << 14, 1000));
            new WorkBudget(0, 1000).spend(1 << 15);
        } catch (WorkBudget.ExhaustedException expected) {
            exhausted = true;
        }
        assertTrue(exhausted);
        int[] load = new int[30];
        for (int member : StickyPlan.of(model)) {
            load[member]++;
        }
        assertEquals(30, Arrays.stream(load).min().getAsInt());
        assertEquals(30, Arrays.stream(load).max().getAsInt());
    }

    @Test
    void thePlainPlanIsEvenAndMovesNothingOfItsOwnAnswer() {
        long excess = 0;
        long squares = 0;
        for (int seed = 0; seed < GROUPS / 10; seed++) {
            TestGroup group = TestGroup.random(new Random(seed), 12, 40);
            // What is compared is what is balanced first: totals, or topics.
            GroupModel model = GroupModel.of(group, new KnownRacks(group), seed % 2 == 1);
            int[] plain = StickyPlan.of(model);
            long[] optimal = value(model, owners(group, model));
            excess += value(model, plain)[0] - optimal[0];
            squares += optimal[0];
            if (model.isHomogeneous() || model.balancesTopics) {
                assertEquals(optimal[0], value(model, plain)[0], "seed " + seed);
            }
            System.arraycopy(plain, 0, model.owner, 0, plain.length);
            assertEquals(Arrays.toString(plain), Arrays.toString(StickyPlan.of(model)), "seed " + seed);
        }
        // With several subscriptions it looks at no chains of moves.
        assertTrue(excess * 100 < squares, excess + " of " + squares);
    }

    @Test
    void thePlainPlanOfANewGroupIsLocalWhereThatIsAsEven() {
        TestGroup group = TestGroup.even(30, 900);
        GroupModel model = GroupModel.of(group, new KnownRacks(group), false);
        assertEquals(0, value(model, StickyPlan.of(model))[1]);
    }

    @Test
    void subscriptionsAreNeverHashed() {
        // The hash of Kafka's set is that of all metadata of the cluster.
        TestGroup group = TestGroup.even(6, 12);
        group.subscriptions.replaceAll((member, topics) -> new AbstractSet<>() {
            @Override
            public Iterator<Uuid> iterator() {
                return topics.iterator();
            }

            @Override
            public int size() {
                return topics.size();
            }

            @Override
            public boolean equals(Object other) {
                throw new UnsupportedOperationException();
            }

            @Override
            public int hashCode() {
                throw new UnsupportedOperationException();
            }
        });
        GroupModel model = GroupModel.of(group, new KnownRacks(group), false);
        assertEquals(12, model.partitions());
        assertEquals(1, model.topicSets());
    }

    @Test
    void aNetworkThatWouldTakeTheMemoryOfABrokerIsNotBuilt() {
        TestGroup group = new TestGroup();
        int count = 800;
        for (int number = 0; number < count; number++) {
            group.topics.put(new Uuid(1, number), List.of(Set.of("a")));
        }
        for (int number = 0; number < count; number++) {
            // All topics but one.
            Set<Uuid> subscription = new HashSet<>(group.topics.keySet());
            subscription.remove(new Uuid(1, number));
            group.subscriptions.put("m" + number, subscription);
            group.racks.put("m" + number, "a");
            group.owned.put("m" + number, Map.of());
        }
        GroupModel model = GroupModel.of(group, new KnownRacks(group), false);
        assertThrows(WorkBudget.ExhaustedException.class, () -> OptimalPlan.of(model, new WorkBudget(1L << 40, 1 << 20)));
        owners(group, model);
    }

    @Test
    void aChainOfSubscriptionsIsNoDangerToTheStack() {
        // Each member shares a topic with the next one, and only the last one has nothing: all have to hand on theirs.
        TestGroup group = new TestGroup();
        int count = MinCostFlow.MAX_DEPTH;
        for (int number = 0; number < count; number++) {
            Uuid topic = new Uuid(1, number);
            group.topics.put(topic, Collections.nCopies(number == 0 ? 2 : 1, Set.of("a")));
            for (int member = number; member < number + 2; member++) {
                group.subscriptions.computeIfAbsent("m" + member, each -> new HashSet<>()).add(topic);
                group.racks.put("m" + member, "a");
            }
            group.owned.put("m" + number, Map.of(topic, number == 0 ? Set.of(0, 1) : Set.of(0)));
        }
        group.owned.put("m" + count, Map.of());
        GroupModel model = GroupModel.of(group, new KnownRacks(group), false);
        assertThrows(WorkBudget.ExhaustedException.class, () -> OptimalPlan.of(model, new WorkBudget(1L << 40, 1 << 20)));
        assertEquals(count + 1, StickyPlan.of(model).length);
    }

    @Test
    void stepsDoNotGrowWithLoadsWhenSubscriptionsDiffer() {
        TestGroup group = new TestGroup();
        for (int number = 0; number < 3; number++) {
            group.topics.put(new Uuid(1, number), Collections.nCopies(20_000, Set.of("a")));
            group.subscriptions.put("m" + number, Set.of(new Uuid(1, number)));
            group.racks.put("m" + number, "a");
            group.owned.put("m" + number, Map.of());
        }
        // A member that reads nothing has less than all others.
        group.subscriptions.put("m3", Set.of());
        group.racks.put("m3", "a");
        group.owned.put("m3", Map.of());
        WorkBudget budget = new WorkBudget(1L << 40, 1 << 20);
        OptimalPlan.of(GroupModel.of(group, new KnownRacks(group), false), budget);
        assertTrue(budget.steps() < 1000, budget.steps() + " steps");
    }

    @Test
    void withMoreThanSixtyFourRacksPlansAreLocal() {
        TestGroup group = new TestGroup();
        List<Set<String>> partitions = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            partitions.add(Set.of("rack" + number, "elsewhere"));
            group.subscriptions.put("m" + number, Set.of(new Uuid(1, 1)));
            group.racks.put("m" + number, "rack" + number);
            group.owned.put("m" + number, Map.of());
        }
        group.topics.put(new Uuid(1, 1), partitions);
        GroupModel model = GroupModel.of(group, new KnownRacks(group), false);
        assertEquals("[100, 0, 0]", Arrays.toString(value(model, owners(group, model))));
        assertEquals("[100, 0, 0]", Arrays.toString(value(model, StickyPlan.of(model))));
    }

    @Test
    void anyLimitInTimeIsTaken() {
        new RackAwareAssignor().configure(Map.of(RackAwareAssignor.BALANCE_CONFIG, "no mode"));
        for (String limit : new String[] {"0", "-1", " 20 ", "9223372036854775807", "1e3", ""}) {
            RackAwareAssignor assignor = new RackAwareAssignor();
            assignor.configure(Map.of(RackAwareAssignor.MAX_MS_CONFIG, limit));
        }
        new WorkBudget(Long.MAX_VALUE, Long.MAX_VALUE).spend(1 << 20);
    }

    @Test
    void racksAreReadAgainOnlyAfterOtherMetadata() {
        TestGroup group = TestGroup.random(new Random(3), 6, 40);
        for (String member : group.racks.keySet()) {
            group.racks.put(member, "a");
        }
        RackAwareAssignor assignor = new RackAwareAssignor();
        List<Integer> asked = new ArrayList<>();
        for (int version : new int[] {1, 1, 2, 2, 1}) {
            int[] count = new int[1];
            GroupAssignment answer = assignor.assign(group, new Metadata(group, version, count));
            asked.add(count[0]);
            // What is remembered makes no difference to a plan.
            GroupAssignment fresh = new RackAwareAssignor().assign(group, new Metadata(group, version, new int[1]));
            assertEquals(partitions(fresh), partitions(answer));
        }
        int all = asked.get(0);
        assertTrue(all > 0);
        assertEquals(List.of(all, 0, all, 0, all), asked);
    }

    private static Map<String, Map<Uuid, Set<Integer>>> partitions(GroupAssignment assignment) {
        Map<String, Map<Uuid, Set<Integer>>> partitions = new HashMap<>();
        assignment.members().forEach((member, each) -> partitions.put(member, each.partitions()));
        return partitions;
    }

    /** As Kafka's own: equal to what describes the same version of the metadata. It counts how often it is asked. */
    private record Metadata(TestGroup group, int version, int[] asked) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topic) {
            return group.numPartitions(topic);
        }

        @Override
        public Set<String> racksForPartition(Uuid topic, int partition) {
            asked[0]++;
            return version == 1 ? group.racksForPartition(topic, partition) : Set.of("a");
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Metadata metadata && metadata.version == version;
        }

        @Override
        public int hashCode() {
            return version;
        }
    }

    @Test
    void aPauseIsNoWork() throws Exception {
        WorkBudget paused = new WorkBudget(Long.MAX_VALUE, 20);
        Thread.sleep(100);
        paused.spend(1 << 20);
        WorkBudget works = new WorkBudget(Long.MAX_VALUE, 20);
        assertThrows(WorkBudget.ExhaustedException.class, () -> {
            while (true) {
                works.spend(1 << 20);
            }
        });
    }

    @Test
    void bothNamesAreOneAssignor() {
        assertEquals("rackassign", new RackAwareAssignor().name());
        assertEquals("uniform", new UniformRackAwareAssignor().name());
    }

    @Test
    void nothingIsThrownWhateverTheCoordinatorSays() {
        TestGroup group = TestGroup.even(3, 12);
        for (String broken : new String[] {"members", "subscription", "assignment", "partitions", "racks", "error"}) {
            GroupAssignment answer = new RackAwareAssignor().assign(new Broken(group, broken), new Broken(group, broken));
            assertTrue(answer.members().size() == 3 || broken.equals("members"), broken);
        }
    }

    @Test
    void oneInstanceServesManyGroupsAtTheSameTime() throws Exception {
        RackAwareAssignor assignor = new RackAwareAssignor();
        ExecutorService threads = Executors.newFixedThreadPool(16);
        try {
            List<Future<Boolean>> answers = new ArrayList<>();
            for (int seed = 0; seed < 2000; seed++) {
                TestGroup group = TestGroup.random(new Random(seed % 50), 12, 40);
                Callable<Boolean> call = () -> same(
                        new RackAwareAssignor().assign(group, group), assignor.assign(group, group));
                answers.add(threads.submit(call));
            }
            for (Future<Boolean> each : answers) {
                assertTrue(each.get());
            }
        } finally {
            threads.shutdown();
        }
    }

    private static boolean same(GroupAssignment one, GroupAssignment other) {
        return one.members().keySet().equals(other.members().keySet())
                && one.members().entrySet().stream().allMatch(entry ->
                        entry.getValue().partitions().equals(other.members().get(entry.getKey()).partitions()));
    }

    /** Lets the assignor decide, and returns the owners after checking that the answer is complete. */
    private static int[] owners(TestGroup group, GroupModel model) {
        RackAwareAssignor assignor = new RackAwareAssignor();
        // A slow machine plans as a fast one does.
        String balance = model.balancesTopics ? "topic" : "total";
        assignor.configure(Map.of(RackAwareAssignor.BALANCE_CONFIG, balance, RackAwareAssignor.MAX_MS_CONFIG, "60000"));
        GroupAssignment answer = assignor.assign(group, group);
        assertEquals(Set.of(model.members), answer.members().keySet());
        int[] owner = new int[model.partitions()];
        Arrays.fill(owner, GroupModel.NONE);
        for (int member = 0; member < model.members.length; member++) {
            for (Map.Entry<Uuid, Set<Integer>> entry :
                    answer.members().get(model.members[member]).partitions().entrySet()) {
                int topic = Arrays.asList(model.topics).indexOf(entry.getKey());
                for (int number : entry.getValue()) {
                    assertEquals(GroupModel.NONE, owner[model.firstPartition[topic] + number], "a second owner");
                    owner[model.firstPartition[topic] + number] = member;
                }
            }
        }
        for (int partition = 0; partition < owner.length; partition++) {
            assertTrue(owner[partition] != GroupModel.NONE && model.isSubscribed(partition, owner[partition]));
        }
        return owner;
    }

    /** Returns squares of loads, partitions that cross racks, and moves; before them squares by topic, if that counts. */
    private static long[] value(GroupModel model, int[] owner) {
        long[] totals = totals(model, owner);
        if (!model.balancesTopics) {
            return totals;
        }
        long squares = 0;
        for (int topic = 0; topic < model.topics.length; topic++) {
            int[] load = new int[model.members.length];
            for (int at = model.firstPartition[topic]; at < model.firstPartition[topic + 1]; at++) {
                load[owner[at]]++;
            }
            squares += Arrays.stream(load).mapToLong(each -> (long) each * each).sum();
        }
        return new long[] {squares, totals[0], totals[1], totals[2]};
    }

    private static long[] totals(GroupModel model, int[] owner) {
        long[] value = new long[3];
        int[] load = new int[model.members.length];
        for (int partition = 0; partition < owner.length; partition++) {
            load[owner[partition]]++;
            value[1] += model.crosses(partition, owner[partition]) ? 1 : 0;
            value[2] += model.owner[partition] != GroupModel.NONE && model.owner[partition] != owner[partition] ? 1 : 0;
        }
        for (int each : load) {
            value[0] += (long) each * each;
        }
        return value;
    }

    private static long[] best(GroupModel model) {
        long[][] best = {null};
        search(model, new int[model.partitions()], 0, best);
        return best[0];
    }

    private static void search(GroupModel model, int[] owner, int partition, long[][] best) {
        if (partition == owner.length) {
            long[] value = value(model, owner);
            if (best[0] == null || Arrays.compare(value, best[0]) < 0) {
                best[0] = value;
            }
            return;
        }
        for (int member = 0; member < model.members.length; member++) {
            if (model.isSubscribed(partition, member)) {
                owner[partition] = member;
                search(model, owner, partition + 1, best);
            }
        }
    }

    /** A group with its topics, as a coordinator describes them. */
    private static final class TestGroup implements GroupSpec, SubscribedTopicDescriber {
        final Map<Uuid, List<Set<String>>> topics = new HashMap<>();
        final Map<String, Set<Uuid>> subscriptions = new HashMap<>();
        final Map<String, String> racks = new HashMap<>();
        final Map<String, Map<Uuid, Set<Integer>>> owned = new HashMap<>();

        static TestGroup random(Random random, int mostMembers, int mostPartitions) {
            TestGroup group = new TestGroup();
            List<Uuid> ids = new ArrayList<>();
            int left = random.nextInt(mostPartitions + 1);
            for (int topic = 0; topic < 1 + random.nextInt(4); topic++) {
                Uuid id = new Uuid(7, random.nextInt(1000));
                int count = random.nextInt(left + 1);
                left -= count;
                List<Set<String>> partitions = new ArrayList<>();
                for (int partition = 0; partition < count; partition++) {
                    Set<String> of = new HashSet<>();
                    for (int replica = random.nextInt(4); replica > 0; replica--) {
                        of.add(RACKS[random.nextInt(4)]);
                    }
                    partitions.add(of);
                }
                ids.add(id);
                group.topics.put(id, partitions);
            }
            boolean alike = random.nextBoolean();
            int members = 1 + random.nextInt(mostMembers);
            for (int member = 0; member < members; member++) {
                String name = "m" + random.nextInt(1000);
                Set<Uuid> subscription = new HashSet<>();
                for (Uuid id : ids) {
                    if (alike || random.nextInt(3) > 0) {
                        subscription.add(id);
                    }
                }
                subscription.add(new Uuid(9, 9));
                group.subscriptions.put(name, subscription);
                group.racks.put(name, RACKS[random.nextInt(RACKS.length)]);
                group.owned.put(name, new HashMap<>());
            }
            List<String> names = new ArrayList<>(group.subscriptions.keySet());
            group.topics.forEach((id, partitions) -> {
                for (int partition = 0; partition < partitions.size(); partition++) {
                    if (random.nextInt(4) > 0) {
                        String owner = names.get(random.nextInt(names.size()));
                        group.owned.get(owner).computeIfAbsent(id, each -> new HashSet<>()).add(partition);
                    }
                }
            });
            return group;
        }

        static TestGroup even(int members, int partitions) {
            TestGroup group = new TestGroup();
            Uuid id = new Uuid(1, 1);
            List<Set<String>> racks = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                racks.add(Set.of(RACKS[partition % 3]));
            }
            group.topics.put(id, racks);
            for (int member = 0; member < members; member++) {
                group.subscriptions.put("m" + member, Set.of(id));
                group.racks.put("m" + member, RACKS[member % 3]);
                group.owned.put("m" + member, Map.of());
            }
            return group;
        }

        @Override
        public Collection<String> memberIds() {
            return subscriptions.keySet();
        }

        @Override
        public SubscriptionType subscriptionType() {
            boolean alike = subscriptions.values().stream().map(HashSet::new).distinct().count() <= 1;
            return alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        }

        @Override
        public boolean isPartitionAssigned(Uuid topic, int partition) {
            return false;
        }

        @Override
        public boolean isPartitionAssignable(Uuid topic, int partition) {
            return true;
        }

        @Override
        public MemberSubscription memberSubscription(String member) {
            return new Subscription(Optional.of(racks.get(member)), Optional.empty(), subscriptions.get(member));
        }

        @Override
        public MemberAssignment memberAssignment(String member) {
            return () -> owned.get(member);
        }

        @Override
        public int numPartitions(Uuid topic) {
            return topics.containsKey(topic) ? topics.get(topic).size() : -1;
        }

        @Override
        public Set<String> racksForPartition(Uuid topic, int partition) {
            return topics.get(topic).get(partition);
        }
    }

    private record Subscription(Optional<String> rackId, Optional<String> instanceId, Set<Uuid> subscribedTopicIds)
            implements MemberSubscription {}

    /** A coordinator that returns null, or throws, in one place. */
    private record Broken(TestGroup group, String where) implements GroupSpec, SubscribedTopicDescriber {
        @Override
        public Collection<String> memberIds() {
            return where.equals("members") ? null : group.memberIds();
        }

        @Override
        public SubscriptionType subscriptionType() {
            return group.subscriptionType();
        }

        @Override
        public boolean isPartitionAssigned(Uuid topic, int partition) {
            return false;
        }

        @Override
        public boolean isPartitionAssignable(Uuid topic, int partition) {
            return true;
        }

        @Override
        public MemberSubscription memberSubscription(String member) {
            return where.equals("subscription") ? null : group.memberSubscription(member);
        }

        @Override
        public MemberAssignment memberAssignment(String member) {
            return where.equals("assignment") ? null : group.memberAssignment(member);
        }

        @Override
        public int numPartitions(Uuid topic) {
            if (where.equals("error")) {
                throw new StackOverflowError();
            }
            return where.equals("partitions") ? -1 : group.numPartitions(topic);
        }

        @Override
        public Set<String> racksForPartition(Uuid topic, int partition) {
            return where.equals("racks") ? null : group.racksForPartition(topic, partition);
        }
    }
}
