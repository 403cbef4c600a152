package clients;

import java.io.FileReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What users may do: {@code Rights <directory> <topic> <group> <transactional id> <user>:<step> ...}; the directory has
 * {@code <user>.properties} for each. Prints a line for each step: {@code <user>:<step> done}, or the error's class.
 */
public final class Rights {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

    private final Properties settings;
    private final String topic;
    private final String group;
    private final String transactionalId;

    private Rights(Properties settings, String[] arguments) {
        this.settings = settings;
        this.topic = arguments[1];
        this.group = arguments[2];
        this.transactionalId = arguments[3];
    }

    public static void main(String[] arguments) throws Exception {
        for (String asked : List.of(arguments).subList(4, arguments.length)) {
            String[] parts = asked.split(":");
            var settings = new Properties();
            try (var file = new FileReader(Path.of(arguments[0], parts[0] + ".properties").toFile())) {
                settings.load(file);
            }
            System.out.println(asked + " " + new Rights(settings, arguments).outcome(parts[1]));
        }
    }

    private String outcome(String step) {
        try {
            switch (step) {
                case "produces" -> produce();
                case "consumes" -> consume();
                case "begins" -> begin();
                case "creates" -> create();
                case "lists" -> list();
                case "shows" -> show();
                default -> throw new IllegalArgumentException(step);
            }
            return "done";
        } catch (Exception error) {
            return nameOf(error instanceof ExecutionException ? error.getCause() : error);
        }
    }

    private static String nameOf(Throwable error) {
        return error.getClass().getSimpleName();
    }

    private void produce() throws Exception {
        try (var producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(topic, "java")).get();
        }
    }

    /** A transaction of one record. */
    private void begin() throws Exception {
        try (var producer = producer(Map.of("transactional.id", transactionalId))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "java")).get();
            producer.commitTransaction();
        }
    }

    private void consume() {
        settings.putAll(Map.of("group.id", group, "auto.offset.reset", "earliest"));
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + TIMEOUT.toNanos();
            while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException("no record");
                }
            }
            consumer.commitSync();
        }
    }

    private void create() throws Exception {
        try (var admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic + "-new", 1, (short) 1))).all().get();
        }
    }

    /** Fails unless there is a topic to be seen. */
    private void list() throws Exception {
        try (var admin = Admin.create(settings)) {
            if (admin.listTopics().names().get().isEmpty()) {
                throw new NothingSeen();
            }
        }
    }

    private void show() throws Exception {
        try (var admin = Admin.create(settings)) {
            admin.describeAcls(AclBindingFilter.ANY).values().get();
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        settings.putAll(more);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** A list that is empty. */
    private static final class NothingSeen extends Exception {}
}
