package klamm;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.message.AbortedTxn;
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Opens directories of partitions as Kafka's broker would at its start, and prints a line of JSON about each.
 *
 * <p>Usage: OpenLogs clean|unclean DIRECTORY...; "unclean" has Kafka recover them as after a crash. It writes to them.
 */
public final class OpenLogs {
    private static final int PRODUCER_ID_EXPIRATION_MS = 86_400_000;
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 900_000;

    private OpenLogs() {}

    /** See the class. */
    public static void main(String[] arguments) throws Exception {
        boolean isClean = arguments[0].equals("clean");
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        ObjectMapper json = new ObjectMapper();
        for (String directory : List.of(arguments).subList(1, arguments.length)) {
            try (UnifiedLog log = open(new File(directory), isClean, scheduler)) {
                log.updateHighWatermark(log.logEndOffset());
                System.out.println(json.writeValueAsString(describe(log)));
            }
        }
        scheduler.shutdown();
    }

    private static UnifiedLog open(File directory, boolean isClean, KafkaScheduler scheduler) throws Exception {
        return UnifiedLog.create(
                directory,
                new LogConfig(Map.of()),
                0,
                0,
                scheduler,
                new BrokerTopicStats(),
                Time.SYSTEM,
                MAX_TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, true),
                PRODUCER_ID_EXPIRATION_MS,
                new LogDirFailureChannel(1),
                isClean,
                Optional.empty());
    }

    private static Map<String, Object> describe(UnifiedLog log) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("partition", log.topicPartition().toString());
        facts.put("topic_id", log.topicId().map(Object::toString).orElse(null));
        facts.put("start_offset", log.logStartOffset());
        facts.put("end_offset", log.logEndOffset());
        facts.put("last_stable_offset", log.lastStableOffset());
        facts.put("segments", log.logSegments().stream().map(one -> one.baseOffset()).toList());
        facts.put("epochs", log.leaderEpochCache().epochEntries().stream()
                .map(one -> List.of(one.epoch(), one.startOffset()))
                .toList());
        facts.put("producers", log.activeProducers().stream().map(OpenLogs::describe).toList());
        facts.put("aborted", log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()).stream()
                .map(OpenLogs::describe)
                .toList());
        return facts;
    }

    private static Map<String, Object> describe(ProducerState state) {
        return Map.of(
                "producer_id", state.producerId(),
                "producer_epoch", state.producerEpoch(),
                "last_sequence", state.lastSequence(),
                "last_timestamp_ms", state.lastTimestamp(),
                "coordinator_epoch", state.coordinatorEpoch(),
                "current_txn_start_offset", state.currentTxnStartOffset());
    }

    private static List<Long> describe(AbortedTxn aborted) {
        return List.of(aborted.producerId(), aborted.firstOffset(), aborted.lastOffset());
    }
}
