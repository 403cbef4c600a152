package clients;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** One behaviour of the Java client a run: {@code Behaviours <behaviour> <bootstrap> <name>}; ends with 0 if it holds. */
public final class Behaviours {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);
    private static final int COUNT = 300;

    private final String bootstrap;
    private final String name;

    private Behaviours(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        Behaviours it = new Behaviours(arguments[1], arguments[2]);
        switch (arguments[0]) {
            case "codecs" -> it.codecs();
            case "idempotent" -> it.idempotent();
            case "transactions" -> it.transactions();
            case "fencing" -> it.fencing();
            case "rebalance" -> it.rebalance(assignedBy(RangeAssignor.class));
            case "cooperative" -> it.rebalance(assignedBy(CooperativeStickyAssignor.class));
            case "new-protocol" -> it.newProtocol();
            case "static" -> it.staticMember();
            case "offsets" -> it.offsets();
            case "topics" -> it.topics();
            case "groups" -> it.groups();
            case "replicas" -> it.replicas();
            case "transaction-admin" -> it.transactionAdmin();
            case "cluster" -> it.cluster();
            case "errors" -> it.errors();
            case "failover" -> it.failover();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("holds");
    }

    // Producing and consuming

    private void codecs() throws Exception {
        createTopic(name, 3);
        Map<String, Set<String>> expected = new TreeMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (var producer = producer(Map.of(ProducerConfig.COMPRESSION_TYPE_CONFIG, codec))) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int number = 0; number < COUNT; number++) {
                    var record = new ProducerRecord<>(name, null, 1_000L + number, codec, codec + number);
                    record.headers().add("n", Integer.toString(number).getBytes());
                    sent.add(producer.send(record));
                    expected.computeIfAbsent(codec, key -> new HashSet<>()).add(codec + number);
                }
                for (var one : sent) {
                    check(one.get().hasOffset(), "an offset");
                }
            }
        }
        try (var consumer = consumer(name, Map.of())) {
            consumer.subscribe(List.of(name));
            Map<String, Set<String>> seen = new TreeMap<>();
            for (var record : read(consumer, 5 * COUNT)) {
                seen.computeIfAbsent(record.key(), key -> new HashSet<>()).add(record.value());
                String number = record.value().substring(record.key().length());
                equal(number, new String(record.headers().lastHeader("n").value()));
                equal(1_000L + Integer.parseInt(number), record.timestamp());
            }
            equal(expected, seen);
        }
    }

    /** Each record once and in order, and the partition knows its producer by the last sequence. */
    private void idempotent() throws Exception {
        createTopic(name, 1);
        var partition = new TopicPartition(name, 0);
        var config = Map.<String, Object>of(
            ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true, ProducerConfig.BATCH_SIZE_CONFIG, 200);
        try (var producer = producer(config); var admin = admin()) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>(name, "k", Integer.toString(number)));
            }
            producer.flush();
            var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            equal(1, states.size());
            equal(COUNT - 1, states.get(0).lastSequence());
        }
        try (var consumer = consumer(name, Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            var values = read(consumer, COUNT).stream().map(one -> Integer.parseInt(one.value())).toList();
            equal(IntStream.range(0, COUNT).boxed().toList(), values);
        }
    }

    private void transactions() throws Exception {
        String target = name + "-out";
        createTopic(name, 1);
        createTopic(target, 1);
        try (var source = producer(Map.of())) {
            for (int number = 0; number < 30; number++) {
                source.send(new ProducerRecord<>(name, "k", Integer.toString(number))).get();
            }
        }
        var committed = Map.<String, Object>of(
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed", ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 10);
        try (var consumer = consumer(name, committed);
                var producer = producer(Map.of(ProducerConfig.TRANSACTIONAL_ID_CONFIG, name))) {
            producer.initTransactions();
            consumer.subscribe(List.of(name));
            for (int round = 0; round < 3; round++) {
                var records = read(consumer, 10);
                equal(10, records.size());
                producer.beginTransaction();
                for (var record : records) {
                    producer.send(new ProducerRecord<>(target, "k", round == 1 ? "never seen" : record.value()));
                }
                long next = records.get(9).offset() + 1;
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (round == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    equal(10L * round + 10, consumer.committed(Set.of(new TopicPartition(name, 0)))
                        .get(new TopicPartition(name, 0)).offset());
                }
            }
        }
        try (var reader = consumer(target, committed)) {
            reader.subscribe(List.of(target));
            var values = read(reader, 20).stream().map(one -> Integer.parseInt(one.value())).toList();
            equal(IntStream.range(0, 30).filter(one -> one < 10 || one >= 20).boxed().toList(), values);
        }
        try (var reader = consumer(target + "-all", Map.of())) {
            reader.subscribe(List.of(target));
            equal(30, read(reader, 30).size());
        }
    }

    private void fencing() throws Exception {
        createTopic(name, 1);
        var config = Map.<String, Object>of(ProducerConfig.TRANSACTIONAL_ID_CONFIG, name);
        try (var old = producer(config); var current = producer(config)) {
            old.initTransactions();
            old.beginTransaction();
            old.send(new ProducerRecord<>(name, "k", "from the past")).get();
            current.initTransactions();
            fails(ProducerFencedException.class, old::commitTransaction);
            current.beginTransaction();
            current.send(new ProducerRecord<>(name, "k", "from now"));
            current.commitTransaction();
        }
        try (var reader = consumer(name, Map.of(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed"))) {
            reader.subscribe(List.of(name));
            equal("from now", read(reader, 1).get(0).value());
        }
    }

    // Groups

    /** Three members come and one goes, with records flowing: each record is read, and none is committed unread. */
    private void rebalance(Map<String, Object> protocol) throws Exception {
        createTopic(name, 6);
        Set<String> seen = new HashSet<>();
        int[] sent = {0};
        Map<String, Object> config = new HashMap<>(protocol);
        config.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 50);
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        Set<TopicPartition> lost = new HashSet<>();
        try (var producer = producer(Map.of())) {
            Runnable flow = () -> {
                for (int number = 0; number < 20; number++) {
                    producer.send(new ProducerRecord<>(name, sent[0] % 6, null, Integer.toString(sent[0]++)));
                }
                for (var member : members) {
                    for (var record : member.poll(Duration.ofMillis(20))) {
                        seen.add(record.value());
                    }
                    try {
                        member.commitSync();
                    } catch (RebalanceInProgressException again) {
                        // A cooperative member keeps its partitions meanwhile, and commits the next time.
                    }
                }
            };
            for (int count = 1; count <= 3; count++) {
                var member = consumer(name, config);
                member.subscribe(List.of(name), new ConsumerRebalanceListener() {
                    @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) { }
                    @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
                    @Override public void onPartitionsLost(Collection<TopicPartition> partitions) {
                        lost.addAll(partitions);
                    }
                });
                members.add(member);
                int share = 6 / count;
                until(flow, () -> members.stream().allMatch(one -> one.assignment().size() == share));
            }
            // A member that is closed while others rebalance loses what it has: that does not count.
            var leaver = members.remove(0);
            equal(Set.of(), Set.copyOf(lost));
            leaver.close();
            lost.clear();
            until(flow, () -> members.stream().allMatch(one -> one.assignment().size() == 3));
            producer.flush();
            until(flow, () -> seen.size() >= sent[0] - 200);
            int all = sent[0];
            producer.flush();
            until(() -> members.forEach(one -> one.poll(Duration.ofMillis(20)).forEach(r -> seen.add(r.value()))),
                () -> seen.size() == all);
        }
        equal(Set.of(), Set.copyOf(lost));
        members.forEach(KafkaConsumer::close);
    }

    private static Map<String, Object> assignedBy(Class<?> assignor) {
        return Map.of(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, List.of(assignor));
    }

    /** KIP-848: the coordinator assigns, partitions move one by one, and it matches expressions. */
    private void newProtocol() throws Exception {
        var config = Map.<String, Object>of(ConsumerConfig.GROUP_PROTOCOL_CONFIG, "consumer");
        rebalance(config);
        String group = name + "-pattern";
        var ofInstance = new HashMap<>(config);
        ofInstance.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, "one");
        try (var consumer = consumer(group, ofInstance); var admin = admin()) {
            consumer.subscribe(new SubscriptionPattern(name + "(-later)?"));
            until(() -> consumer.poll(Duration.ofMillis(50)), () -> consumer.assignment().size() == 6);
            createTopic(name + "-later", 1);
            until(() -> consumer.poll(Duration.ofMillis(50)), () -> consumer.assignment().size() == 7);
            consumer.commitSync(Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(1)));
            var described = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
            equal(GroupType.CONSUMER, described.type());
            equal(GroupState.STABLE, described.groupState());
            equal("uniform", described.partitionAssignor());
            var member = described.members().iterator().next();
            equal(Optional.of("one"), member.groupInstanceId());
            equal(7, member.assignment().topicPartitions().size());
            equal(described.targetAssignmentEpoch().get(), member.memberEpoch().get());
        }
        try (var back = consumer(group, ofInstance)) {
            back.subscribe(new SubscriptionPattern(name + "(-later)?"));
            until(() -> back.poll(Duration.ofMillis(50)), () -> back.assignment().size() == 7);
            equal(1L, back.committed(Set.of(new TopicPartition(name, 0))).get(new TopicPartition(name, 0)).offset());
        }
    }

    private void staticMember() throws Exception {
        createTopic(name, 3);
        var config = Map.<String, Object>of(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, "one");
        for (int life = 0; life < 2; life++) {
            try (var consumer = consumer(name, config)) {
                consumer.subscribe(List.of(name));
                until(() -> consumer.poll(Duration.ofMillis(50)), () -> consumer.assignment().size() == 3);
                equal(Optional.of("one"), consumer.groupMetadata().groupInstanceId());
                equal(1, consumer.groupMetadata().generationId());
            }
        }
    }

    private void offsets() throws Exception {
        createTopic(name, 1);
        var partition = new TopicPartition(name, 0);
        try (var producer = producer(Map.of())) {
            for (long number = 1; number <= 10; number++) {
                producer.send(new ProducerRecord<>(name, 0, 1_000 * number, "k", "v")).get();
            }
        }
        try (var consumer = consumer(name, Map.of()); var admin = admin()) {
            equal(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
            equal(Map.of(partition, 10L), consumer.endOffsets(List.of(partition)));
            var found = consumer.offsetsForTimes(Map.of(partition, 5_500L)).get(partition);
            equal(5L, found.offset());
            equal(6_000L, found.timestamp());
            check(consumer.offsetsForTimes(Map.of(partition, 99_000L)).get(partition) == null, "nothing so late");
            equal(9L, admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get().offset());
            var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)));
            equal(4L, deleted.lowWatermarks().get(partition).get().lowWatermark());
            equal(Map.of(partition, 4L), consumer.beginningOffsets(List.of(partition)));
        }
    }

    // Administration

    private void topics() throws Exception {
        try (var admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, Optional.of(2), Optional.empty())
                .configs(Map.of("retention.ms", "60000")))).all().get();
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all().get();
            until(() -> describe(admin, name).map(found -> found.partitions().size()).orElse(0) == 4);
            equal(3, describe(admin, name).orElseThrow().partitions().get(0).replicas().size());
            check(admin.listTopics().names().get().contains(name), "the topic is listed");
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("segment.ms", "7000"), AlterConfigOp.OpType.SET)))).all().get();
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            equal("60000", config.get("retention.ms").value());
            equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config.get("segment.ms").source());
            equal(ConfigEntry.ConfigType.LONG, config.get("segment.ms").type());
            check(admin.listConfigResources().all().get().contains(resource), "the topic has configs");
            var broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
            check(!admin.describeConfigs(List.of(broker)).all().get().get(broker).entries().isEmpty(), "configs");
            admin.deleteTopics(List.of(name)).all().get();
            until(() -> describe(admin, name).isEmpty());
        }
    }

    private void groups() throws Exception {
        createTopic(name, 2);
        var partition = new TopicPartition(name, 0);
        try (var admin = admin()) {
            try (var consumer = consumer(name, Map.of(ConsumerConfig.CLIENT_ID_CONFIG, "me"))) {
                consumer.subscribe(List.of(name));
                until(() -> consumer.poll(Duration.ofMillis(50)), () -> consumer.assignment().size() == 2);
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(7, Optional.of(0), "mine")));
                var found = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
                equal(1, found.members().size());
                var member = found.members().iterator().next();
                equal("me", member.clientId());
                equal("/127.0.0.1", member.host());
                equal(2, member.assignment().topicPartitions().size());
                fails(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(name)).all().get());
            }
            check(admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(name)), "it is listed");
            var offset = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().get(partition);
            equal(7L, offset.offset());
            equal("mine", offset.metadata());
            admin.alterConsumerGroupOffsets(name, Map.of(partition, new OffsetAndMetadata(3))).all().get();
            equal(3L, admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().get(partition).offset());
            admin.deleteConsumerGroupOffsets(name, Set.of(partition)).all().get();
            check(admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().get(partition) == null, "gone");
            admin.deleteConsumerGroups(List.of(name)).all().get();
            check(admin.listGroups().all().get().stream().noneMatch(one -> one.groupId().equals(name)), "it is gone");
        }
    }

    private void replicas() throws Exception {
        var partition = new TopicPartition(name, 0);
        try (var admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, Map.of(0, List.of(1, 2))))).all().get();
            until(() -> leader(admin, name) == 1);
            admin.alterPartitionReassignments(
                Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(3, 1))))).all().get();
            until(() -> listed(() -> admin.listPartitionReassignments(Set.of(partition)).reassignments().get().isEmpty()));
            until(() -> describe(admin, name).orElseThrow().partitions().get(0).replicas().get(0).id() == 3);
            var elected = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
            check(elected.containsKey(partition), "an answer for the partition");
            until(() -> leader(admin, name) == 3);
            equal(List.of(), describe(admin, name).orElseThrow().partitions().get(0).elr());
            var dirs = admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get();
            Set<Integer> holders = dirs.entrySet().stream()
                .filter(one -> one.getValue().values().stream().anyMatch(dir -> dir.replicaInfos().containsKey(partition)))
                .map(Map.Entry::getKey).collect(Collectors.toSet());
            check(holders.containsAll(Set.of(1, 3)), "the replicas are on disk: " + holders);
            for (var dir : dirs.get(1).values()) {
                check(dir.totalBytes().getAsLong() >= dir.usableBytes().getAsLong(), "sizes");
            }
        }
    }

    private void transactionAdmin() throws Exception {
        createTopic(name, 1);
        var partition = new TopicPartition(name, 0);
        try (var admin = admin(); var producer = producer(Map.of(ProducerConfig.TRANSACTIONAL_ID_CONFIG, name))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, "k", "v")).get();
            var described = admin.describeTransactions(List.of(name)).description(name).get();
            equal(TransactionState.ONGOING, described.state());
            equal(Set.of(partition), described.topicPartitions());
            check(admin.listTransactions().all().get().stream().anyMatch(
                one -> one.transactionalId().equals(name) && one.state() == TransactionState.ONGOING), "it is listed");
            var producers = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            equal(1, producers.size());
            equal(described.producerId(), producers.get(0).producerId());
            equal(0L, producers.get(0).currentTransactionStartOffset().getAsLong());
            admin.fenceProducers(List.of(name)).all().get();
            fails(ProducerFencedException.class, producer::commitTransaction);
        }
    }

    private void cluster() throws Exception {
        try (var admin = admin()) {
            var cluster = admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true));
            equal(Set.of(1, 2, 3), cluster.nodes().get().stream().map(one -> one.id()).collect(Collectors.toSet()));
            check(Set.of(1, 2, 3).contains(cluster.controller().get().id()), "the controller is a broker");
            var quorum = admin.describeMetadataQuorum().quorumInfo().get();
            check(quorum.voters().stream().anyMatch(one -> one.replicaId() == quorum.leaderId()), "the leader votes");
            check(quorum.highWatermark() > 0, "something is committed");
            equal(Set.of(1, 2, 3), quorum.observers().stream().map(one -> one.replicaId()).collect(Collectors.toSet()));
            admin.describeFeatures().featureMetadata().get();
            equal(Map.of(), admin.describeUserScramCredentials().all().get());
            fails(SecurityDisabledException.class, () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        }
    }

    private void errors() throws Exception {
        try (var admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 3).configs(Map.of("max.message.bytes", "1000"))))
                .all().get();
            until(() -> describe(admin, name).isPresent());
            fails(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get());
            fails(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all().get());
            fails(InvalidReplicationFactorException.class,
                () -> admin.createTopics(List.of(new NewTopic(name + "x", 1, (short) 9))).all().get());
            fails(InvalidConfigurationException.class, () -> admin.createTopics(List.of(
                new NewTopic(name + "y", 1, (short) 1).configs(Map.of("no.such.config", "1")))).all().get());
            fails(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(name + "z")).all().get());
            fails(UnknownTopicOrPartitionException.class,
                () -> admin.describeTopics(List.of(name + "z")).allTopicNames().get());
        }
        try (var producer = producer(Map.of())) {
            fails(RecordTooLargeException.class,
                () -> producer.send(new ProducerRecord<>(name, "k", "v".repeat(2_000))).get());
            fails(InvalidTopicException.class, () -> producer.send(new ProducerRecord<>("a b", "k", "v")).get());
        }
    }

    // Fail-over

    /** Says "running" when records flow, and goes on until a line comes in; then all that was acknowledged is there. */
    private void failover() throws Exception {
        Set<String> acknowledged = new HashSet<>();
        Set<String> seen = new HashSet<>();
        List<Exception> failures = new ArrayList<>();
        try (var producer = producer(Map.of()); var consumer = consumer(name, Map.of())) {
            consumer.subscribe(List.of(name));
            int number = 0;
            boolean running = false;
            while (System.in.available() == 0) {
                String value = Integer.toString(number++);
                producer.send(new ProducerRecord<>(name, value, value), (metadata, failure) -> {
                    synchronized (acknowledged) {
                        if (failure == null) {
                            acknowledged.add(value);
                        } else {
                            failures.add(failure);
                        }
                    }
                });
                consumer.poll(Duration.ofMillis(5)).forEach(record -> check(seen.add(record.value()), "read once"));
                if (!running && seen.size() > 100) {
                    running = true;
                    System.out.println("running");
                }
            }
            producer.flush();
            equal(List.of(), failures);
            equal(number, acknowledged.size());
            until(() -> consumer.poll(Duration.ofMillis(50)).forEach(one -> check(seen.add(one.value()), "read once")),
                () -> seen.size() >= acknowledged.size());
        }
        equal(new TreeSet<>(acknowledged), new TreeSet<>(seen));
    }

    // Helpers

    private interface Action {
        void run() throws Exception;
    }

    private interface Question {
        boolean ask() throws Exception;
    }

    private static boolean listed(Question question) {
        try {
            return question.ask();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put(ProducerConfig.LINGER_MS_CONFIG, 5);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        if (!"consumer".equals(config.get(ConsumerConfig.GROUP_PROTOCOL_CONFIG))) {
            config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 500);
        }
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private void createTopic(String topic, int partitions) throws Exception {
        try (var admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 3))).all().get();
        }
    }

    private static Optional<TopicDescription> describe(Admin admin, String topic) {
        try {
            return Optional.of(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic));
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                return Optional.empty();
            }
            throw new IllegalStateException(failure);
        } catch (InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static int leader(Admin admin, String topic) {
        return describe(admin, topic).map(found -> found.partitions().get(0).leader().id()).orElse(-1);
    }

    private static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        until(() -> consumer.poll(Duration.ofMillis(100)).forEach(records::add), () -> records.size() >= count);
        return records;
    }

    private static void until(BooleanSupplier condition) {
        until(() -> {
            try {
                Thread.sleep(50);
            } catch (InterruptedException failure) {
                throw new IllegalStateException(failure);
            }
        }, condition);
    }

    private static void until(Runnable step, BooleanSupplier condition) {
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "it came true within " + TIMEOUT);
            step.run();
        }
    }

    private static void fails(Class<? extends Exception> expected, Action action) throws Exception {
        try {
            action.run();
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            check(expected.isInstance(cause), "expected " + expected.getSimpleName() + ", met " + cause);
            return;
        }
        throw new AssertionError(expected.getSimpleName() + " was expected");
    }

    private static void equal(Object expected, Object met) {
        check(expected.equals(met), "expected " + expected + ", met " + met);
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }
}
