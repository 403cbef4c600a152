package clients;

import java.util.Locale;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Sends each value in capitals from the topic {@code <name>-in} to {@code <name>-out}. A value that begins with "bad" fails
 * after it was sent, and goes to {@code <name>-in-dlt} after three attempts:
 * {@code Shouter <bootstrap> <name> transactions|retries}.
 */
public final class Shouter {
    private Shouter() { }

    public static void main(String[] arguments) {
        System.setProperty("bootstrap", arguments[0]);
        System.setProperty("name", arguments[1]);
        Class<?> mode = arguments[2].equals("transactions") ? InTransactions.class : WithRetries.class;
        new AnnotationConfigApplicationContext(Topics.class, mode, Listener.class).registerShutdownHook();
    }

    private static final FixedBackOff TWO_RETRIES = new FixedBackOff(100, 2);

    private static DefaultKafkaProducerFactory<String, String> producers(String bootstrap) {
        // Spring makes a producer for its first record, and a consumer waits for the offsets of open transactions before
        // that. So the transactions of a killed application end by their timeout only (KIP-447).
        Map<String, Object> config = Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap, ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 10_000);
        return new DefaultKafkaProducerFactory<>(config, new StringSerializer(), new StringSerializer());
    }

    private static ConcurrentKafkaListenerContainerFactory<String, String> containers(String bootstrap) {
        Map<String, Object> config = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
            ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6_000);
        ConcurrentKafkaListenerContainerFactory<String, String> factory = new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(
            new DefaultKafkaConsumerFactory<>(config, new StringDeserializer(), new StringDeserializer()));
        factory.setConcurrency(2);
        return factory;
    }

    /** The topics, which KafkaAdmin creates before the listener starts. */
    @Configuration
    public static class Topics {
        @Bean
        public KafkaAdmin admin(@Value("${bootstrap}") String bootstrap) {
            KafkaAdmin admin = new KafkaAdmin(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap));
            admin.setFatalIfBrokerNotAvailable(true);
            return admin;
        }

        @Bean
        public NewTopic input(@Value("${name}") String name) {
            return TopicBuilder.name(name + "-in").partitions(4).replicas(3).build();
        }

        @Bean
        public NewTopic output(@Value("${name}") String name) {
            return TopicBuilder.name(name + "-out").partitions(2).replicas(3).build();
        }

        @Bean
        public NewTopic deadLetters(@Value("${name}") String name) {
            return TopicBuilder.name(name + "-in-dlt").partitions(4).replicas(3).build();
        }
    }

    /** Each record, what it becomes and its offset are one transaction; so is a dead letter with the offset of its record. */
    @Configuration
    @EnableKafka
    public static class InTransactions {
        @Bean
        public DefaultKafkaProducerFactory<String, String> producerFactory(
                @Value("${bootstrap}") String bootstrap, @Value("${name}") String name) {
            DefaultKafkaProducerFactory<String, String> factory = producers(bootstrap);
            factory.setTransactionIdPrefix(name + "-");
            return factory;
        }

        @Bean
        public KafkaTemplate<String, String> template(DefaultKafkaProducerFactory<String, String> factory) {
            return new KafkaTemplate<>(factory);
        }

        @Bean
        public KafkaTransactionManager<String, String> transactions(DefaultKafkaProducerFactory<String, String> factory) {
            return new KafkaTransactionManager<>(factory);
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
                @Value("${bootstrap}") String bootstrap,
                KafkaTransactionManager<String, String> transactions,
                KafkaTemplate<String, String> template) {
            ConcurrentKafkaListenerContainerFactory<String, String> factory = containers(bootstrap);
            factory.getContainerProperties().setKafkaAwareTransactionManager(transactions);
            factory.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(
                new DeadLetterPublishingRecoverer(template), TWO_RETRIES, template, true));
            return factory;
        }
    }

    /** No transactions: the error handler tries a record that fails again, and hands it to the recoverer in the end. */
    @Configuration
    @EnableKafka
    public static class WithRetries {
        @Bean
        public KafkaTemplate<String, String> template(@Value("${bootstrap}") String bootstrap) {
            return new KafkaTemplate<>(producers(bootstrap));
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
                @Value("${bootstrap}") String bootstrap, KafkaTemplate<String, String> template) {
            ConcurrentKafkaListenerContainerFactory<String, String> factory = containers(bootstrap);
            factory.setCommonErrorHandler(
                new DefaultErrorHandler(new DeadLetterPublishingRecoverer(template), TWO_RETRIES));
            return factory;
        }
    }

    /** The listener of both modes. */
    @Configuration
    public static class Listener {
        private final KafkaTemplate<String, String> template;
        private final String target;

        public Listener(KafkaTemplate<String, String> template, @Value("${name}") String name) {
            this.template = template;
            this.target = name + "-out";
        }

        @KafkaListener(topics = "${name}-in", groupId = "${name}")
        public void listen(ConsumerRecord<String, String> record) {
            template.send(target, record.key(), record.value().toUpperCase(Locale.ROOT));
            if (record.value().startsWith("bad")) {
                System.out.println("failed " + record.value());
                throw new IllegalStateException(record.value());
            }
        }
    }
}
