import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;

/**
 * What the consumers of this JVM have received from each broker, all together, in a file that is written anew ten times
 * a second: `rack`, and then a line for each broker, its id and its bytes. Only in a JVM that has a rack, as Spark's
 * executors have and its driver has not.
 */
public class NodeBytes implements MetricsReporter {
    private static final String RACK = System.getenv("RACKASSIGN_RACK");
    private static final Map<KafkaMetric, String> LIVE = new ConcurrentHashMap<>();
    private static final Map<String, Double> GONE = new TreeMap<>();
    private static boolean writing;

    @Override
    public void configure(Map<String, ?> configs) {
        synchronized (NodeBytes.class) {
            Object folder = configs.get("node.bytes.folder");
            if (RACK == null || folder == null || writing) {
                return;
            }
            writing = true;
            Path file = Path.of(folder.toString(), ProcessHandle.current().pid() + ".txt");
            Thread writer = new Thread(() -> write(file), "node-bytes");
            writer.setDaemon(true);
            writer.start();
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
        metrics.forEach(this::metricChange);
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        String node = metric.metricName().tags().get("node-id");
        boolean bytes = metric.metricName().group().equals("consumer-node-metrics")
            && metric.metricName().name().equals("incoming-byte-total");
        // Bootstrap addresses and coordinators have numbers of their own, which are no broker's.
        if (bytes && node != null && node.matches("node-[0-9]{1,6}")) {
            LIVE.put(metric, node.substring("node-".length()));
        }
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
        synchronized (NodeBytes.class) {
            String node = LIVE.remove(metric);
            if (node != null) {
                GONE.merge(node, (Double) metric.metricValue(), Double::sum);
            }
        }
    }

    @Override
    public void close() { }

    private static void write(Path file) {
        Path unfinished = file.resolveSibling(file.getFileName() + ".part");
        while (true) {
            StringBuilder text = new StringBuilder(RACK).append('\n');
            synchronized (NodeBytes.class) {
                Map<String, Double> total = new TreeMap<>(GONE);
                LIVE.forEach((metric, node) -> total.merge(node, (Double) metric.metricValue(), Double::sum));
                total.forEach((node, bytes) -> text.append(node).append(' ').append(bytes.longValue()).append('\n'));
            }
            try {
                Files.writeString(unfinished, text);
                Files.move(unfinished, file, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
                Thread.sleep(100);
            } catch (IOException | InterruptedException e) {
                return;
            }
        }
    }
}
