import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a consumer group, as long as its stdin is open. At its end the member leaves the group.
 *
 * The first line in is {"topics": [..], "config": {..}} with the properties of a KafkaConsumer. The lines out are
 * {"assigned": {topic: [partition]}, "generation": n, "member": ".."} whenever one of the three has changed, and
 * {"read": {"topic-partition": n}} for every poll that brought records, then {"incoming": {"broker": bytes}} with all
 * that has come from each broker so far.
 */
public final class GroupMember {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);

    private GroupMember() {}

    public static void main(String[] args) throws IOException {
        PrintStream out = System.out;
        // What Kafka logs would otherwise stand between the lines.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode request = JSON.readTree(in.readLine());
        List<String> topics = new ArrayList<>();
        request.get("topics").forEach(topic -> topics.add(topic.asText()));
        Properties config = new Properties();
        request.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
        AtomicBoolean ended = new AtomicBoolean();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Thread watch = new Thread(() -> {
                try {
                    while (in.readLine() != null) {
                        // Only the end of the input says anything.
                    }
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                } finally {
                    ended.set(true);
                    consumer.wakeup();
                }
            }, "stdin");
            watch.setDaemon(true);
            watch.start();
            consumer.subscribe(topics);
            try {
                take(consumer, ended, out);
            } catch (WakeupException e) {
                if (!ended.get()) {
                    throw e;
                }
            }
        }
    }

    private static void take(KafkaConsumer<byte[], byte[]> consumer, AtomicBoolean ended, PrintStream out)
            throws JsonProcessingException {
        JsonNode told = null;
        while (!ended.get()) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            JsonNode state = state(consumer.assignment(), consumer.groupMetadata());
            if (!state.equals(told)) {
                out.println(JSON.writeValueAsString(state));
                told = state;
            }
            if (!records.isEmpty()) {
                ObjectNode read = JSON.createObjectNode();
                for (TopicPartition partition : records.partitions()) {
                    read.put(partition.toString(), records.records(partition).size());
                }
                out.println(JSON.writeValueAsString(JSON.createObjectNode().set("read", read)));
                out.println(JSON.writeValueAsString(JSON.createObjectNode().set("incoming", incoming(consumer))));
            }
            out.flush();
        }
    }

    private static JsonNode incoming(KafkaConsumer<byte[], byte[]> consumer) {
        ObjectNode incoming = JSON.createObjectNode();
        consumer.metrics().forEach((name, metric) -> {
            String node = name.tags().getOrDefault("node-id", "");
            // The connection to the coordinator has a number that no broker has.
            if (name.name().equals("incoming-byte-total") && node.matches("node-[0-9]{1,6}")) {
                incoming.put(node.substring("node-".length()), ((Double) metric.metricValue()).longValue());
            }
        });
        return incoming;
    }

    private static JsonNode state(Set<TopicPartition> assignment, ConsumerGroupMetadata group) {
        Map<String, Set<Integer>> assigned = new TreeMap<>();
        for (TopicPartition partition : assignment) {
            assigned.computeIfAbsent(partition.topic(), topic -> new TreeSet<>()).add(partition.partition());
        }
        return JSON.createObjectNode()
            .put("generation", group.generationId())
            .put("member", group.memberId())
            .set("assigned", JSON.valueToTree(assigned));
    }
}
