import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupAssignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Says what Kafka's own assignors decide for a group, and how long they take: one JSON request a line, one JSON
 * answer a line, and ends with its stdin. The first line out tells the versions.
 *
 * A request is a scenario ("rackassign/1") with these keys beside it: "assignor" (range, sticky or
 * cooperative-sticky), "repeat" (timed calls), "warmup" (calls before them). A member's "topics" may be a place in
 * a list "subscriptions", since ten thousand members with a thousand topics each are a hundred megabytes otherwise.
 *
 * An answer is {"assignment": {member: {topic: [partition]}}, "nanos": [..]} or {"error": ".."}. If the request has
 * "user_data": true, the answer has it too: {member: hexadecimal or null}, what the members would have sent.
 */
public final class AssignorPeer {
    private static final ObjectMapper JSON =
        JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
    private static final int UNKNOWN_GENERATION = -1;

    /** A member as it would join; its subscription is made anew for each call, as reading user data uses it up. */
    private record Joining(
        String id, List<String> topics, String rack, String instance,
        List<TopicPartition> owned, int generation, ByteBuffer userData
    ) {
        Subscription subscription() {
            Subscription made = new Subscription(
                topics, userData == null ? null : userData.duplicate(), owned, generation,
                Optional.ofNullable(rack));
            made.setGroupInstanceId(Optional.ofNullable(instance));
            return made;
        }
    }

    private AssignorPeer() {}

    public static void main(String[] args) throws IOException {
        PrintStream answers = System.out;
        // What Kafka logs would otherwise stand between the answers.
        System.setOut(System.err);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 20);
        answers.println(JSON.createObjectNode()
            .put("java", System.getProperty("java.version"))
            .put("kafka", kafkaVersion()));
        answers.flush();
        ExecutorService worker = Executors.newSingleThreadExecutor();
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String request = line;
            worker.execute(() -> {
                answers.println(answer(request));
                answers.flush();
            });
        }
        // Whoever asked is gone, maybe killed: an assignor at work for minutes must not outlive it.
        Runtime.getRuntime().halt(0);
    }

    /** As the jar has it: the class that reads it is in another package since Kafka 4.4. */
    private static String kafkaVersion() throws IOException {
        Properties written = new Properties();
        try (InputStream file = ConsumerPartitionAssignor.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            written.load(file);
        }
        return written.getProperty("version");
    }

    private static String answer(String line) {
        try {
            return JSON.writeValueAsString(solved(line));
        } catch (IOException | Error error) {
            // Without an answer the asker would wait in vain; the end of this process is one.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            throw new AssertionError(error);
        }
    }

    private static JsonNode solved(String line) {
        try {
            return solve(JSON.readTree(line));
        } catch (IOException | RuntimeException error) {
            return JSON.createObjectNode().put("error", error.toString());
        }
    }

    private static JsonNode solve(JsonNode request) {
        String kind = request.required("assignor").asText();
        int warmup = request.path("warmup").asInt(0);
        int repeat = request.path("repeat").asInt(1);
        if (repeat < 1 || warmup < 0) {
            throw new IllegalArgumentException("repeat must be 1 or more and warmup 0 or more");
        }
        Cluster cluster = cluster(request);
        List<Joining> members = members(request, kind);
        GroupAssignment decided = null;
        long[] nanos = new long[repeat];
        for (int call = -warmup; call < repeat; call++) {
            // The sticky ones keep what they last did, so each call gets an assignor of its own.
            ConsumerPartitionAssignor assignor = assignor(kind);
            GroupSubscription subscriptions = subscriptions(members);
            long start = System.nanoTime();
            decided = assignor.assign(cluster, subscriptions);
            long took = System.nanoTime() - start;
            if (call >= 0) {
                nanos[call] = took;
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("assignment", spelled(decided));
        answer.set("nanos", JSON.valueToTree(nanos));
        if (request.path("user_data").asBoolean()) {
            ObjectNode sent = answer.putObject("user_data");
            for (Joining member : members) {
                ByteBuffer data = member.userData();
                sent.put(member.id(), data == null ? null : HexFormat.of().formatHex(data.array()));
            }
        }
        return answer;
    }

    private static ConsumerPartitionAssignor assignor(String kind) {
        return switch (kind) {
            case "range" -> new RangeAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException("no such assignor: " + kind);
        };
    }

    private static Cluster cluster(JsonNode request) {
        Map<Integer, Node> nodes = new HashMap<>();
        for (JsonNode broker : request.required("brokers")) {
            int id = broker.required("id").asInt();
            nodes.put(id, new Node(id, "broker-" + id, 9092, text(broker, "rack")));
        }
        List<Node> listed = new ArrayList<>(nodes.values());
        List<PartitionInfo> partitions = new ArrayList<>();
        for (Map.Entry<String, JsonNode> topic : request.required("topics").properties()) {
            int partition = 0;
            for (JsonNode written : topic.getValue()) {
                partitions.add(partition(topic.getKey(), partition++, written, nodes));
            }
        }
        return new Cluster("peer", listed, partitions, Set.of(), Set.of());
    }

    private static PartitionInfo partition(String topic, int id, JsonNode written, Map<Integer, Node> nodes) {
        JsonNode ids = written.isArray() ? written : written.required("replicas");
        Node[] replicas = new Node[ids.size()];
        for (int i = 0; i < replicas.length; i++) {
            replicas[i] = node(ids.get(i).asInt(), nodes);
        }
        Node leader = replicas.length > 0 ? replicas[0] : null;
        if (written.has("leader")) {
            leader = written.get("leader").isNull() ? null : node(written.get("leader").asInt(), nodes);
        }
        return new PartitionInfo(topic, id, leader, replicas, replicas);
    }

    /** A broker that is not listed is a node without host and rack, as a real client makes it. */
    private static Node node(int id, Map<Integer, Node> nodes) {
        return nodes.computeIfAbsent(id, unknown -> new Node(unknown, "", -1));
    }

    private static List<Joining> members(JsonNode request, String kind) {
        List<List<String>> subscriptions = new ArrayList<>();
        for (JsonNode topics : request.path("subscriptions")) {
            subscriptions.add(texts(topics));
        }
        List<Joining> members = new ArrayList<>();
        for (JsonNode member : request.required("members")) {
            JsonNode topics = member.required("topics");
            List<TopicPartition> owned = new ArrayList<>();
            for (Map.Entry<String, JsonNode> of : member.path("owned").properties()) {
                of.getValue().forEach(partition -> owned.add(new TopicPartition(of.getKey(), partition.asInt())));
            }
            String rack = text(member, "rack");
            int generation = member.path("generation").asInt(UNKNOWN_GENERATION);
            List<String> subscribed = topics.isInt() ? subscriptions.get(topics.asInt()) : texts(topics);
            members.add(new Joining(
                member.required("id").asText(),
                subscribed,
                // As it is read from the wire: an empty rack is none.
                rack == null || rack.isEmpty() ? null : rack,
                text(member, "instance_id"),
                owned,
                generation,
                userData(kind, subscribed, owned, generation)));
        }
        return members;
    }

    /** What the assignor would have sent with the join, after the generation that gave it what it owns. */
    @SuppressWarnings("removal") // Kafka 4.3 has no other way to make the metadata that onAssignment takes.
    private static ByteBuffer userData(
        String kind, List<String> topics, List<TopicPartition> owned, int generation
    ) {
        ConsumerPartitionAssignor assignor = assignor(kind);
        if (!owned.isEmpty() || generation != UNKNOWN_GENERATION) {
            assignor.onAssignment(
                new Assignment(owned), new ConsumerGroupMetadata("peer", generation, "", Optional.empty()));
        }
        return assignor.subscriptionUserData(new TreeSet<>(topics));
    }

    private static GroupSubscription subscriptions(List<Joining> members) {
        Map<String, Subscription> made = new HashMap<>();
        for (Joining member : members) {
            made.put(member.id(), member.subscription());
        }
        return new GroupSubscription(made);
    }

    private static JsonNode spelled(GroupAssignment decided) {
        ObjectNode written = JSON.createObjectNode();
        decided.groupAssignment().forEach((member, assignment) -> {
            Map<String, Set<Integer>> topics = new TreeMap<>();
            for (TopicPartition partition : assignment.partitions()) {
                if (!topics.computeIfAbsent(partition.topic(), topic -> new TreeSet<>()).add(partition.partition())) {
                    throw new IllegalStateException(member + " was given " + partition + " twice");
                }
            }
            ObjectNode owned = written.putObject(member);
            topics.forEach((topic, partitions) -> {
                ArrayNode ids = owned.putArray(topic);
                partitions.forEach(ids::add);
            });
        });
        return written;
    }

    private static String text(JsonNode object, String key) {
        JsonNode value = object.path(key);
        return value.isMissingNode() || value.isNull() ? null : value.asText();
    }

    private static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>(array.size());
        array.forEach(value -> texts.add(value.asText()));
        return texts;
    }
}
