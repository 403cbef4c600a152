"""The metrics of the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm.errors import ErrorCode
from klamm_broker.log.cleaning.log_cleaning import CleaningStats
from klamm_server.metrics.instruments import counter, counters, gauge, gauges

_BYTES_IN = counters("klamm_broker_in_bytes", "Record batches appended for producers.", ["topic"])
_MESSAGES_IN = counters("klamm_broker_in_messages", "Records appended for producers.", ["topic"])
_BYTES_OUT = counters("klamm_broker_out_bytes", "Record batches sent to consumers.", ["topic"])
_BY_TOPIC = (_BYTES_IN, _MESSAGES_IN, _BYTES_OUT)
REPLICATION_BYTES_IN = counter("klamm_broker_replication_in_bytes", "Record batches fetched from leaders.")
REPLICATION_BYTES_OUT = counter("klamm_broker_replication_out_bytes", "Record batches sent to followers.")
EXPIRED_CONNECTIONS = counter(
    "klamm_expired_connections_killed",
    "Connections closed because the Kafka client sent requests after its session had expired.",
)
FAILED_ISR_UPDATES = counter("klamm_broker_failed_isr_updates", "Changes of in-sync sets that the controller refused.")
_ISR_SHRINKS = counter("klamm_broker_isr_shrinks", "In-sync sets that lost members.")
_ISR_EXPANDS = counter("klamm_broker_isr_expands", "In-sync sets that gained members.")
REQUESTS = counters("klamm_broker_requests", "Calls received.", ["rpc"])
_ERRORS = counters("klamm_broker_errors", "Errors in answers, counted for each partition.", ["rpc", "error"])
KAFKA_REQUESTS = counters("klamm_broker_kafka_requests", "Requests of Kafka clients.", ["api", "version"])

FETCH_SESSION_BYTES = gauge(
    "klamm_broker_fetch_session_bytes", "Memory of the fetch sessions, which fetch.session.max.bytes bounds."
)
FETCH_SESSION_REFUSALS = counter(
    "klamm_broker_fetch_session_refusals",
    "Fetches that were served without a session, or whose session ended, because of fetch.session.max.bytes.",
)
_KAFKA_CONNECTIONS = gauge("klamm_broker_kafka_connections", "Connections of Kafka clients.")
_PARKED = gauges("klamm_broker_parked_requests", "Requests that wait in a purgatory.", ["purgatory"])
_PARKED_REFUSALS = counters(
    "klamm_broker_parked_refusals",
    "Requests that could not wait, because their user had no place in max.parked.requests.",
    ["purgatory"],
)
_REQUEST_MEMORY = gauge(
    "klamm_broker_request_memory_bytes", "Bytes of the requests and answers that the broker is handling."
)
_OFFLINE_LOG_DIRS = gauge("klamm_broker_offline_log_dirs", "Log directories that failed.")
_FULL_LOG_DIRS = gauge("klamm_broker_full_log_dirs", "Log directories without space, whose replicas have resigned.")
_PARTITIONS = gauge("klamm_broker_partitions", "Partition replicas that are online.")
_PRODUCER_IDS = gauge("klamm_broker_producer_ids", "Idempotent producers that partitions remember, summed over them.")

HOLD_UNREAD_DELETED = counters(
    "klamm_broker_retention_hold_unread_deleted_records",
    "Records that retention deleted because a bound of retention.hold was reached, although a group had not committed"
    " past them, or no coordinator could tell.",
    ["topic"],
)

_CLEANER_READ = counter("klamm_broker_log_cleaner_read_bytes", "Bytes of logs that compaction read.")
_CLEANER_WRITTEN = counter("klamm_broker_log_cleaner_written_bytes", "Bytes of logs that compaction wrote.")
_CLEANER_RUNS = counter("klamm_broker_log_cleaner_runs", "Logs compacted.")
_CLEANER_SECONDS = gauge("klamm_broker_log_cleaner_last_run_seconds", "How long the last compaction took.")
_CLEANER_RECOPY = gauge(
    "klamm_broker_log_cleaner_recopy_percent", "Percentage of the log that the last compaction kept."
)
_CLEANER_BUFFER = gauge(
    "klamm_broker_log_cleaner_buffer_utilization_percent",
    "Percentage of the dedupe buffer that the last compaction used.",
)
_MAX_DIRTY = gauge("klamm_broker_log_cleaner_max_dirty_percent", "Dirty percentage of the log with the highest one.")
_MAX_DELAY = gauge(
    "klamm_broker_log_cleaner_max_compaction_delay_seconds", "How long a log is past max.compaction.lag.ms."
)
_UNCLEANABLE = gauge("klamm_broker_log_cleaner_uncleanable_partitions", "Logs with a batch that cannot be read.")
_UNCLEANABLE_BYTES = gauge(
    "klamm_broker_log_cleaner_uncleanable_bytes", "Bytes of uncleanable partitions that are not compacted."
)


SCRUB_READ = counter("klamm_broker_log_scrub_read_bytes", "Bytes of logs that were read to find damage.")
SCRUB_REPAIRED = counter("klamm_broker_log_scrub_repaired_segments", "Damaged segments repaired from other replicas.")
_SCRUB_DAMAGED = gauge("klamm_broker_log_scrub_damaged_segments", "Segments that are damaged and not repaired.")
_SCRUB_FINISHED = gauge(
    "klamm_broker_log_scrub_last_finished_seconds",
    "Unix time at which the scrub of a log finished last, 0 if none has finished.",
)


def on_scrub_check(*, damaged_segments: int, last_finished_ms: int) -> None:
    """Sets the scrubber's gauges, each time it chooses what to read next."""
    _SCRUB_DAMAGED.set(damaged_segments)
    _SCRUB_FINISHED.set(max(0, last_finished_ms) / 1000)


def on_cleaner_check(
    *, max_dirty_ratio: float, max_delay_ms: int, uncleanable_partitions: int, uncleanable_bytes: int
) -> None:
    """Sets the cleaner's gauges, each time it has checked all logs."""
    _MAX_DIRTY.set(100 * max_dirty_ratio)
    _MAX_DELAY.set(max_delay_ms / 1000)
    _UNCLEANABLE.set(uncleanable_partitions)
    _UNCLEANABLE_BYTES.set(uncleanable_bytes)


def on_cleaned(stats: CleaningStats, took_ms: int) -> None:
    """Counts a compaction, and sets the gauges of the last compaction."""
    _CLEANER_RUNS.inc()
    _CLEANER_READ.inc(stats.mapped_bytes + stats.read_bytes)
    _CLEANER_WRITTEN.inc(stats.written_bytes)
    _CLEANER_SECONDS.set(took_ms / 1000)
    _CLEANER_RECOPY.set(100 * stats.written_bytes / max(1, stats.read_bytes))
    _CLEANER_BUFFER.set(100 * stats.buffer_utilization)


_LEADERS = gauge("klamm_broker_leader_count", "Partitions that this broker leads.")
_UNDER_REPLICATED = gauge(
    "klamm_broker_under_replicated_partitions", "Partitions led by this broker that have replicas out of sync."
)
_UNDER_MIN_ISR = gauge(
    "klamm_broker_under_min_isr_partition_count",
    "Partitions led by this broker with fewer than min.insync.replicas replicas in sync.",
)
_AT_MIN_ISR = gauge(
    "klamm_broker_at_min_isr_partition_count",
    "Partitions led by this broker with exactly min.insync.replicas replicas in sync.",
)
_OFFLINE_REPLICAS = gauge("klamm_broker_offline_replica_count", "Replicas in failed log directories.")
_REPLICA_MAX_LAG = gauge(
    "klamm_broker_replica_max_lag", "The largest number of records that a follower on this broker is behind its leader."
)
_METADATA_END_INDEX = gauge(
    "klamm_broker_metadata_end_index",
    "Index after the last metadata record that this broker has applied to its replicas.",
)
_THROTTLED_OUT = gauge(
    "klamm_broker_leader_replication_throttled_bytes",
    "Bytes sent for replicas that leader.replication.throttled.rate limits, since the start.",
)
_THROTTLED_IN = gauge(
    "klamm_broker_follower_replication_throttled_bytes",
    "Bytes fetched for replicas that follower.replication.throttled.rate limits, since the start.",
)


def on_append(topic: str, size_bytes: int, record_count: int) -> None:
    """Counts batches that were appended for a producer."""
    _BYTES_IN.labels(topic).inc(size_bytes)
    _MESSAGES_IN.labels(topic).inc(record_count)


def on_fetched(topic: str, size_bytes: int) -> None:
    """Counts batches that are sent to a consumer."""
    _BYTES_OUT.labels(topic).inc(size_bytes)


def start_topic(topic: str) -> None:
    """Creates the topic's counters at 0 when the broker hosts a replica of it. Otherwise a rate would miss the first
    records, because its counter would first appear with them."""
    for family in _BY_TOPIC:
        family.labels(topic)


def forget_topic(topic: str) -> None:
    """Removes the counters of a deleted topic, so that they do not pile up in a cluster that creates and deletes many
    topics."""
    for family in (*_BY_TOPIC, HOLD_UNREAD_DELETED):
        family.forget(topic)


def on_error(rpc: str, code: ErrorCode) -> None:
    """Counts an error in a partition's answer."""
    _ERRORS.labels(rpc, code.name).inc()


def on_isr_change(before: int, after: int) -> None:
    """Counts a change of the size of an in-sync set that this broker leads."""
    if after < before:
        _ISR_SHRINKS.inc()
    elif after > before:
        _ISR_EXPANDS.inc()


def watch_replication(
    *,
    leaders: Callable[[], int],
    under_replicated: Callable[[], int],
    under_min_isr: Callable[[], int],
    at_min_isr: Callable[[], int],
    offline_replicas: Callable[[], int],
    full_log_dirs: Callable[[], int],
    replica_max_lag: Callable[[], int],
    throttled_bytes_out: Callable[[], int],
    throttled_bytes_in: Callable[[], int],
    metadata_end_index: Callable[[], int],
) -> None:
    """Sets the functions that the gauges of replication read (`watch_gauges`)."""
    _LEADERS.set_function(leaders)
    _UNDER_REPLICATED.set_function(under_replicated)
    _UNDER_MIN_ISR.set_function(under_min_isr)
    _AT_MIN_ISR.set_function(at_min_isr)
    _OFFLINE_REPLICAS.set_function(offline_replicas)
    _FULL_LOG_DIRS.set_function(full_log_dirs)
    _REPLICA_MAX_LAG.set_function(replica_max_lag)
    _THROTTLED_OUT.set_function(throttled_bytes_out)
    _THROTTLED_IN.set_function(throttled_bytes_in)
    _METADATA_END_INDEX.set_function(metadata_end_index)


def watch_gauges(
    *,
    parked: Mapping[str, Callable[[], int]],
    parked_refusals: Mapping[str, Callable[[], int]],
    request_memory_bytes: Callable[[], int],
    offline_log_dirs: Callable[[], int],
    partitions: Callable[[], int],
    producer_ids: Callable[[], int],
    kafka_connections: Callable[[], int],
) -> None:
    """Sets the functions that the other gauges read. They run in the thread of the metrics endpoint, so they must only
    read state. `parked` and `parked_refusals` have one function for each purgatory, by its name."""
    for purgatory, read in parked.items():
        _PARKED.labels(purgatory).set_function(read)
    for purgatory, read in parked_refusals.items():
        _PARKED_REFUSALS.labels(purgatory).set_function(read)
    _REQUEST_MEMORY.set_function(request_memory_bytes)
    _OFFLINE_LOG_DIRS.set_function(offline_log_dirs)
    _PARTITIONS.set_function(partitions)
    _PRODUCER_IDS.set_function(producer_ids)
    _KAFKA_CONNECTIONS.set_function(kafka_connections)
