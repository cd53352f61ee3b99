import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions by Kafka's own producer, one after the other:
 * {@code java Transactions.java ADDRESS TOPIC RECORDS WARMING_S SECONDS}. Prints the milliseconds of each commit that
 * was begun after the warming up, one a line.
 */
public class Transactions {
    public static void main(String[] arguments) {
        String topic = arguments[1];
        int records = Integer.parseInt(arguments[2]);
        long warmingNs = (long) (Double.parseDouble(arguments[3]) * 1e9);
        long countedNs = (long) (Double.parseDouble(arguments[4]) * 1e9);
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", topic + "-" + System.nanoTime());
        settings.put("linger.ms", "0");
        byte[] value = ".".repeat(100).getBytes();
        var told = new StringBuilder();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            long beginNs = System.nanoTime();
            for (long nowNs = beginNs; nowNs - beginNs < warmingNs + countedNs; nowNs = System.nanoTime()) {
                producer.beginTransaction();
                for (int number = 0; number < records; number++) {
                    producer.send(new ProducerRecord<byte[], byte[]>(topic, value));
                }
                long startNs = System.nanoTime();
                producer.flush(); // see docs/clients.md: without it, some 20,000 transactions later, it loses a race
                producer.commitTransaction();
                if (nowNs - beginNs >= warmingNs) {
                    told.append((System.nanoTime() - startNs) / 1e6).append('\n');
                }
            }
        }
        System.out.print(told);
    }
}
