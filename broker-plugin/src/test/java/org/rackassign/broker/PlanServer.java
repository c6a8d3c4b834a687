package org.rackassign.broker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.ThreadMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;

/**
 * Answers groups in JSON, a line each, with what an assignor of the broker decides: this one, or one of Kafka's by the
 * name of its class. Tests and benchmarks in Python speak to it.
 */
public final class PlanServer {
    private static final ObjectMapper JSON = new ObjectMapper();

    private PlanServer() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.flush();
        }
    }

    private static ObjectNode answer(JsonNode request) throws Exception {
        String name = request.path("assignor").asText("");
        String balance = request.path("balance").asText("total");
        RackAwareAssignor own = new RackAwareAssignor();
        // A machine that is busy plans as a fast one does, unless the limit is what is asked about.
        String limit = request.path("max_ms").asText("60000");
        own.configure(Map.of(RackAwareAssignor.BALANCE_CONFIG, balance, RackAwareAssignor.MAX_MS_CONFIG, limit));
        ConsumerGroupPartitionAssignor assignor = name.isEmpty()
                ? own
                : (ConsumerGroupPartitionAssignor) Class.forName(name).getDeclaredConstructor().newInstance();
        Topics topics = new Topics(request.get("topics"));
        Group group = new Group(request.get("members"), topics);
        int repeat = request.path("repeat").asInt(1);
        List<Long> nanos = new ArrayList<>();
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long allocated = threads.getCurrentThreadAllocatedBytes();
        GroupAssignment assignment = null;
        for (int count = 0; count < repeat; count++) {
            long begun = System.nanoTime();
            assignment = assignor.assign(group, topics);
            nanos.add(System.nanoTime() - begun);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("nanos", JSON.valueToTree(nanos));
        answer.put("bytes", (threads.getCurrentThreadAllocatedBytes() - allocated) / repeat);
        if (request.path("prove").asBoolean(false)) {
            answer.put("proven", OptimalPlan.isProven(GroupModel.of(group, topics, balance.equals("topic"))));
        }
        Map<String, Map<String, Set<Integer>>> members = new TreeMap<>();
        for (Map.Entry<String, MemberAssignment> entry : assignment.members().entrySet()) {
            Map<String, Set<Integer>> named = new TreeMap<>();
            entry.getValue().partitions().forEach((id, each) -> named.put(topics.names.get(id), each));
            members.put(entry.getKey(), named);
        }
        answer.set("assignment", JSON.valueToTree(members));
        return answer;
    }

    /** Topics of a request: for each a list of partitions, each a list of racks. */
    private static final class Topics implements SubscribedTopicDescriber {
        final Map<String, Uuid> ids = new TreeMap<>();
        final Map<Uuid, String> names = new HashMap<>();
        private final Map<Uuid, List<Set<String>>> racks = new HashMap<>();

        Topics(JsonNode topics) {
            topics.properties().forEach(entry -> {
                Uuid id = new Uuid(7, ids.size() + 1);
                ids.put(entry.getKey(), id);
                names.put(id, entry.getKey());
                List<Set<String>> partitions = new ArrayList<>();
                for (JsonNode each : entry.getValue()) {
                    Set<String> found = new HashSet<>();
                    each.forEach(rack -> found.add(rack.asText()));
                    partitions.add(found);
                }
                racks.put(id, partitions);
            });
        }

        Uuid id(String topic) {
            // A topic that was deleted has an ID and no partitions.
            return ids.getOrDefault(topic, new Uuid(8, topic.hashCode()));
        }

        @Override
        public int numPartitions(Uuid topic) {
            return racks.containsKey(topic) ? racks.get(topic).size() : -1;
        }

        @Override
        public Set<String> racksForPartition(Uuid topic, int partition) {
            // As Kafka from 4.2 on: a set of its own for each call.
            return new HashSet<>(racks.get(topic).get(partition));
        }
    }

    private static final class Group implements GroupSpec {
        private final Map<String, Subscription> members = new HashMap<>();
        private final Map<String, Map<Uuid, Set<Integer>>> owned = new HashMap<>();
        private final Set<Long> assigned = new HashSet<>();
        private final SubscriptionType type;

        Group(JsonNode list, Topics topics) {
            Set<Set<Uuid>> subscriptions = new HashSet<>();
            Map<JsonNode, Set<Uuid>> parsed = new HashMap<>();
            for (JsonNode member : list) {
                Set<Uuid> subscribed = parsed.computeIfAbsent(member.get("topics"), names -> {
                    Set<Uuid> found = new HashSet<>();
                    names.forEach(topic -> found.add(topics.id(topic.asText())));
                    return found;
                });
                subscriptions.add(subscribed);
                String rack = member.path("rack").asText(null);
                members.put(
                        member.get("id").asText(), new Subscription(Optional.ofNullable(rack), Optional.empty(), subscribed));
                Map<Uuid, Set<Integer>> partitions = new HashMap<>();
                member.path("owned").properties().forEach(entry -> {
                    Set<Integer> numbers = new HashSet<>();
                    entry.getValue().forEach(number -> numbers.add(number.asInt()));
                    partitions.put(topics.id(entry.getKey()), numbers);
                });
                owned.put(member.get("id").asText(), partitions);
                partitions.forEach((id, numbers) -> numbers.forEach(number -> assigned.add(id.getLeastSignificantBits() << 32 | number)));
            }
            type = subscriptions.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        }

        @Override
        public java.util.Collection<String> memberIds() {
            return members.keySet();
        }

        @Override
        public SubscriptionType subscriptionType() {
            return type;
        }

        @Override
        public boolean isPartitionAssigned(Uuid topic, int partition) {
            return assigned.contains(topic.getLeastSignificantBits() << 32 | partition);
        }

        // Without @Override: Kafka 4.0 does not have it.
        public boolean isPartitionAssignable(Uuid topic, int partition) {
            return true;
        }

        @Override
        public MemberSubscription memberSubscription(String member) {
            return members.get(member);
        }

        @Override
        public MemberAssignment memberAssignment(String member) {
            // Kafka's own assignors insist on a map that cannot be changed.
            Map<Uuid, Set<Integer>> partitions = Collections.unmodifiableMap(owned.get(member));
            return () -> partitions;
        }
    }

    private record Subscription(Optional<String> rackId, Optional<String> instanceId, Set<Uuid> subscribedTopicIds)
            implements MemberSubscription {}
}
