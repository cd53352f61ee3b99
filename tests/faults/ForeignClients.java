// Kafka's own clients at work beside ours: java ForeignClients.java ADDRESS RECORDS RESULTS PARTITIONS.
// What they say and are told is described in foreign_program.py. There are idempotent producers, transactional ones, and
// workers that write a result for each record that they read, in the same transaction as their offsets.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ForeignClients {
    static final int PLAIN = 2, TRANSACTORS = 2, WORKERS = 2, BATCH_MAX = 200;
    static final double ABORTS = 0.2;

    static final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    static final Object channel = new Object();
    static final AtomicInteger failed = new AtomicInteger();

    static String address, records, results, group;
    static int partitions;

    interface Work {
        void run(String name) throws Exception;
    }

    record Ended(boolean isCommitted, boolean isUsable) {}

    record Holder(String process, KafkaProducer<byte[], byte[]> producer) {}

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        records = arguments[1];
        results = arguments[2];
        partitions = Integer.parseInt(arguments[3]);
        group = records + "-java";
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < PLAIN; number++) threads.add(thread(ForeignClients::write, "java-plain-" + number));
        for (int number = 0; number < TRANSACTORS; number++)
            threads.add(thread(ForeignClients::transact, "java-transactor-" + number));
        for (int number = 0; number < WORKERS; number++) threads.add(thread(ForeignClients::work, "java-worker-" + number));
        for (Thread thread : threads) thread.join();
        System.exit(failed.get());
    }

    static Thread thread(Work work, String name) {
        Thread thread = new Thread(() -> {
            try {
                work.run(name);
            } catch (Throwable error) {
                failed.incrementAndGet();
                error.printStackTrace();
            }
        }, name);
        thread.start();
        return thread;
    }

    // -- what is said

    static String line(Object... words) {
        StringBuilder text = new StringBuilder();
        for (Object word : words) {
            if (text.length() > 0) text.append('\t');
            text.append(String.valueOf(word).replace('\t', ' ').replace('\n', ' '));
        }
        return text.append('\n').toString();
    }

    static void tell(Object... words) {
        synchronized (channel) {
            out.print(line(words));
            out.flush();
        }
    }

    static String[] ask(Object... words) throws Exception {
        synchronized (channel) {
            tell(words);
            String answer = in.readLine();
            if (answer == null) throw new IllegalStateException("nobody listens any more");
            return answer.split("\t");
        }
    }

    static boolean isOver(String phase) throws Exception {
        return ask("over", phase)[0].equals("yes");
    }

    // -- producers

    static Map<String, Object> settings(Object... own) {
        Map<String, Object> found = new HashMap<>(Map.of(
            "bootstrap.servers", address,
            "request.timeout.ms", 4000,
            "default.api.timeout.ms", 10_000,
            "reconnect.backoff.ms", 20,
            "reconnect.backoff.max.ms", 200,
            "retry.backoff.ms", 20,
            "retry.backoff.max.ms", 200));
        for (int place = 0; place < own.length; place += 2) found.put((String) own[place], own[place + 1]);
        return found;
    }

    static KafkaProducer<byte[], byte[]> producer(Object... own) {
        Map<String, Object> found = settings("acks", "all", "linger.ms", 0, "delivery.timeout.ms", 600_000, "max.block.ms", 10_000);
        found.putAll(settings(own));
        return new KafkaProducer<>(found, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Targets are partitions, with a source. Returns the number of the transaction. */
    static String send(
            KafkaProducer<byte[], byte[]> producer, String process, String transaction, String topic, List<String> targets,
            AtomicInteger waiting) throws Exception {
        List<Object> question = new ArrayList<>(List.of("sends", process, transaction));
        for (String target : targets) question.add(topic + "-" + target);
        String[] answer = ask(question.toArray());
        for (int place = 0; place < targets.size(); place++) {
            String value = answer[place + 1];
            int partition = Integer.parseInt(targets.get(place).split("=")[0]);
            waiting.incrementAndGet();
            try {
                producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes()), (metadata, error) -> {
                    waiting.decrementAndGet();
                    if (error == null) tell("sent", value, metadata.offset());
                    else tell("unsent", value, error);
                });
            } catch (KafkaException error) {
                waiting.decrementAndGet();
                tell("unsent", value, error);
            }
        }
        return answer[0];
    }

    static void write(String name) throws Exception {
        Random chance = new Random(name.hashCode());
        AtomicInteger waiting = new AtomicInteger();
        tell("client", name, "plain", "-", "-");
        try (KafkaProducer<byte[], byte[]> producer = producer("enable.idempotence", true)) {
            while (!isOver("writing")) {
                List<String> targets = new ArrayList<>();
                for (int count = chance.nextInt(10); count >= 0; count--) targets.add("" + chance.nextInt(partitions));
                send(producer, name, "-", records, targets, waiting);
                while (waiting.get() > 50) Thread.sleep(5);
                Thread.sleep(chance.nextInt(300));
            }
            producer.flush();
        }
    }

    static boolean isRetriable(KafkaException error) {
        return error instanceof RetriableException;
    }

    static boolean isFatal(KafkaException error) {
        return error instanceof ProducerFencedException || error instanceof InvalidProducerEpochException
            || error instanceof OutOfOrderSequenceException || error instanceof AuthorizationException
            || error instanceof FencedInstanceIdException || error instanceof UnsupportedVersionException;
    }

    /** A new producer of the same id: what the one before has left open is aborted. */
    static Holder takeOver(String name, String role, String id, String ownGroup, AtomicInteger instance) throws Exception {
        while (true) {
            String process = name + "." + instance.incrementAndGet();
            tell("client", process, role, id, ownGroup);
            KafkaProducer<byte[], byte[]> producer = producer("transactional.id", id, "transaction.timeout.ms", 15_000);
            ask("init", process);
            while (true) {
                try {
                    producer.initTransactions();
                    tell("inited", process, "ok", "");
                    return new Holder(process, producer);
                } catch (KafkaException error) {
                    if (isRetriable(error)) continue;
                    tell("inited", process, "info", error);
                    close(producer);
                    break;
                }
            }
        }
    }

    static void close(KafkaProducer<byte[], byte[]> producer) {
        producer.close(Duration.ZERO);
    }

    static Ended end(KafkaProducer<byte[], byte[]> producer, String process, String transaction, boolean isCommit)
            throws Exception {
        ask("end", process, transaction, isCommit ? "commit" : "abort");
        while (true) {
            try {
                if (isCommit) producer.commitTransaction();
                else producer.abortTransaction();
                tell("ended", transaction, "ok", "");
                return new Ended(isCommit, true);
            } catch (KafkaException error) {
                if (isRetriable(error)) continue;
                if (isCommit && !isFatal(error)) {
                    tell("ended", transaction, "fail", error);
                    return end(producer, process, transaction, false);
                }
                tell("ended", transaction, "info", error);
                return new Ended(false, false);
            }
        }
    }

    static void transact(String name) throws Exception {
        Random chance = new Random(name.hashCode());
        AtomicInteger instance = new AtomicInteger(), waiting = new AtomicInteger();
        String id = records + "-" + name;
        Holder holder = takeOver(name, "transactor", id, "-", instance);
        while (!isOver("writing")) {
            holder.producer.beginTransaction();
            String transaction = "new";
            for (int count = chance.nextInt(4); count >= 0; count--) {
                List<String> target = List.of("" + chance.nextInt(partitions));
                transaction = send(holder.producer, holder.process, transaction, records, target, waiting);
                if (chance.nextDouble() < 0.3) Thread.sleep(chance.nextInt(100));
            }
            Ended ended = end(holder.producer, holder.process, transaction, chance.nextDouble() >= ABORTS);
            if (!ended.isUsable || chance.nextDouble() < 0.05) {
                close(holder.producer);
                holder = takeOver(name, "transactor", id, "-", instance);
            }
        }
        close(holder.producer);
    }

    // -- consume, transform, produce

    static void work(String name) throws Exception {
        Random chance = new Random(name.hashCode());
        AtomicInteger instance = new AtomicInteger();
        while (!isOver("piping")) {
            Holder holder = takeOver(name, "pipeline", records + "-" + name, group, instance);
            Map<String, Object> found = settings(
                "group.id", group, "isolation.level", "read_committed", "enable.auto.commit", false,
                "auto.offset.reset", "earliest", "group.protocol", "consumer", "max.poll.records", BATCH_MAX,
                "fetch.max.wait.ms", 200);
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(found, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of(records), listener(holder.process));
                pass(holder, consumer, chance);
            }
            close(holder.producer);
        }
    }

    static ConsumerRebalanceListener listener(String process) {
        return new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                List<Object> words = new ArrayList<>(List.of("move", process));
                for (TopicPartition one : assigned) words.add(one + "=-1");
                if (!assigned.isEmpty()) tell(words.toArray());
            }
        };
    }

    static void pass(Holder holder, KafkaConsumer<byte[], byte[]> consumer, Random chance) throws Exception {
        KafkaProducer<byte[], byte[]> producer = holder.producer;
        AtomicInteger waiting = new AtomicInteger();
        while (!isOver("piping")) {
            ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(200));
            if (batch.isEmpty()) continue;
            List<Object> polled = new ArrayList<>(List.of("polled", holder.process));
            List<String> targets = new ArrayList<>();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition partition : batch.partitions()) {
                StringBuilder read = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : batch.records(partition)) {
                    String value = new String(record.value()).split(" ")[0];
                    read.append(read.length() == 0 ? "" : ",").append(record.offset()).append(':').append(value);
                    targets.add(chance.nextInt(partitions) + "=" + value);
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
                polled.add(partition + "=" + read);
            }
            tell(polled.toArray());
            producer.beginTransaction();
            String transaction = send(producer, holder.process, "new", results, targets, waiting);
            boolean isCommit = chance.nextDouble() >= ABORTS && sendOffsets(producer, consumer, offsets);
            Ended ended = end(producer, holder.process, transaction, isCommit);
            // The next one goes on where the group has committed.
            if (!ended.isUsable || chance.nextDouble() < (ended.isCommitted ? 0.02 : 0.3)) return;
            if (!ended.isCommitted) rewind(holder.process, consumer, batch);
        }
    }

    static void rewind(
            String process, KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> batch) {
        for (TopicPartition partition : batch.partitions()) {
            long offset = batch.records(partition).get(0).offset();
            try {
                consumer.seek(partition, offset);
                tell("move", process, partition + "=" + offset);
            } catch (IllegalStateException error) {
                // It is somebody else's by now.
            }
        }
    }

    static boolean sendOffsets(
            KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> consumer,
            Map<TopicPartition, OffsetAndMetadata> offsets) {
        while (true) {
            try {
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                return true;
            } catch (KafkaException error) {
                if (!isRetriable(error)) return false;
            }
        }
    }
}
