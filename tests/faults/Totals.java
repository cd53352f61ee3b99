// A Kafka Streams program with exactly_once_v2: java Totals.java ADDRESS APPLICATION INPUT OUTPUT KEYS DIRECTORY.
// Each number of INPUT gets a key, which needs another topic on the way, and adds to the total of its key. For each there
// is one record in OUTPUT: under its key how many there were so far, their sum, and the number. It ends with its input.

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class Totals {
    public static void main(String[] arguments) throws Exception {
        long keys = Long.parseLong(arguments[4]);
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, -1);
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 1000);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 20_000);
        settings.put("request.timeout.ms", 5000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .selectKey((none, value) -> "" + Long.parseLong(value) % keys)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .aggregate(() -> "0 0 -1", Totals::added, Materialized.with(Serdes.String(), Serdes.String()))
            .toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.err.println(before + " -> " + now));
        streams.start();
        while (System.in.read() >= 0) {}
        streams.close();
    }

    static String added(String key, String value, String total) {
        String[] words = total.split(" ");
        long count = Long.parseLong(words[0]) + 1, sum = Long.parseLong(words[1]) + Long.parseLong(value);
        return count + " " + sum + " " + value;
    }
}
