import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records without a key with Kafka's own producer, a producer for each line in.
 *
 * A line is {"config": {..}, "topic": "..", "records": n, "size": bytes}, with the properties of a KafkaProducer. The
 * line out has the number of records that were stored in each partition: {"0": n, "1": n}.
 */
public final class ProducerPeer {
    private static final ObjectMapper JSON = new ObjectMapper();

    private ProducerPeer() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        // What Kafka logs would otherwise stand between the lines.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            out.println(JSON.writeValueAsString(write(JSON.readTree(line))));
            out.flush();
        }
    }

    private static Map<Integer, Integer> write(JsonNode request) throws Exception {
        Properties config = new Properties();
        request.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
        String topic = request.get("topic").asText();
        byte[] value = new byte[request.get("size").asInt()];
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int record = 0; record < request.get("records").asInt(); record++) {
                sent.add(producer.send(new ProducerRecord<>(topic, value)));
            }
        }
        Map<Integer, Integer> stored = new TreeMap<>();
        for (Future<RecordMetadata> each : sent) {
            stored.merge(each.get().partition(), 1, Integer::sum);
        }
        return stored;
    }
}
