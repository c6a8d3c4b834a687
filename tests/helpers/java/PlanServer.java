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
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.SubscribedTopicDescriberImpl;
import org.apache.kafka.coordinator.group.modern.TopicIds;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;

/**
 * Answers groups in JSON, a line each, with what an assignor of the broker decides: this one, or one of Kafka's by the
 * name of its class. A group is described by the classes of Kafka's coordinator, from an image of KRaft metadata, so that
 * times are those of a broker. Tests and benchmarks in Python speak to it.
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
        Map<String, Uuid> ids = new TreeMap<>();
        MetadataImage image = image(request, ids);
        SubscribedTopicDescriber topics = new SubscribedTopicDescriberImpl(new KRaftCoordinatorMetadataImage(image));
        GroupSpec group = group(request.get("members"), new KRaftCoordinatorMetadataImage(image), ids);
        boolean changes = request.path("changes").asBoolean(false);
        int repeat = request.path("repeat").asInt(1);
        List<Long> nanos = new ArrayList<>();
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long allocated = threads.getCurrentThreadAllocatedBytes();
        GroupAssignment assignment = null;
        for (int count = 0; count < repeat; count++) {
            if (changes) {
                // The metadata of a broker after a change of something else.
                MetadataProvenance later = new MetadataProvenance(count + 1, 1, 1, true);
                MetadataImage next = new MetadataDelta.Builder().setImage(image).build().apply(later);
                topics = new SubscribedTopicDescriberImpl(new KRaftCoordinatorMetadataImage(next));
            }
            long begun = threads.getCurrentThreadCpuTime();
            assignment = assignor.assign(group, topics);
            nanos.add(threads.getCurrentThreadCpuTime() - begun);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("nanos", JSON.valueToTree(nanos));
        answer.put("bytes", (threads.getCurrentThreadAllocatedBytes() - allocated) / repeat);
        if (request.path("prove").asBoolean(false)) {
            answer.put("proven", OptimalPlan.isProven(GroupModel.of(group, new KnownRacks(topics), balance.equals("topic"))));
        }
        Map<Uuid, String> names = new HashMap<>();
        ids.forEach((topic, id) -> names.put(id, topic));
        Map<String, Map<String, Set<Integer>>> members = new TreeMap<>();
        for (Map.Entry<String, MemberAssignment> entry : assignment.members().entrySet()) {
            Map<String, Set<Integer>> named = new TreeMap<>();
            entry.getValue().partitions().forEach((id, each) -> named.put(names.get(id), each));
            members.put(entry.getKey(), named);
        }
        answer.set("assignment", JSON.valueToTree(members));
        return answer;
    }

    private static MetadataImage image(JsonNode request, Map<String, Uuid> ids) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        request.get("brokers").properties().forEach(entry -> delta.replay(new RegisterBrokerRecord()
                .setBrokerId(Integer.parseInt(entry.getKey()))
                .setRack(entry.getValue().asText(null))));
        request.get("topics").properties().forEach(entry -> {
            Uuid id = new Uuid(7, ids.size() + 1);
            ids.put(entry.getKey(), id);
            delta.replay(new TopicRecord().setName(entry.getKey()).setTopicId(id));
            int number = 0;
            for (JsonNode replicas : entry.getValue()) {
                List<Integer> brokers = new ArrayList<>();
                replicas.forEach(broker -> brokers.add(broker.asInt()));
                delta.replay(new PartitionRecord().setTopicId(id).setPartitionId(number++).setReplicas(brokers));
            }
        });
        return delta.apply(MetadataProvenance.EMPTY);
    }

    private static GroupSpec group(JsonNode list, CoordinatorMetadataImage image, Map<String, Uuid> ids) {
        TopicIds.TopicResolver resolver = new TopicIds.CachedTopicResolver(image);
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Map<JsonNode, Set<String>> subscriptions = new HashMap<>();
        for (JsonNode member : list) {
            String name = member.get("id").asText();
            Set<String> subscribed = subscriptions.computeIfAbsent(member.get("topics"), topics -> {
                Set<String> found = new HashSet<>();
                topics.forEach(topic -> found.add(topic.asText()));
                return found;
            });
            Map<Uuid, Set<Integer>> partitions = new HashMap<>();
            member.path("owned").properties().forEach(entry -> {
                // A topic that was deleted has an ID.
                Uuid id = ids.getOrDefault(entry.getKey(), new Uuid(8, entry.getKey().hashCode()));
                Set<Integer> numbers = new HashSet<>();
                entry.getValue().forEach(number -> numbers.add(number.asInt()));
                partitions.put(id, numbers);
                numbers.forEach(number -> owners.computeIfAbsent(id, each -> new HashMap<>()).put(number, name));
            });
            Optional<String> rack = Optional.ofNullable(member.path("rack").asText(null));
            members.put(name, new MemberSubscriptionAndAssignmentImpl(
                    rack, Optional.empty(), new TopicIds(subscribed, resolver), new Assignment(partitions)));
        }
        SubscriptionType type =
                subscriptions.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        return new GroupSpecImpl(members, type, owners);
    }
}
