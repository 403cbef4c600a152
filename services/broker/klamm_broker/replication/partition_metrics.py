"""Owns the broker's metrics of single partitions.

The thread of the metrics endpoint reads the values whenever the metrics are requested. It must only read state. It may
or may not see a change that happens at the same time.

Prometheus computes the lag of groups from the offsets here and from the committed offsets, which the coordinator shows.
`deploy/monitoring/prometheus/rules/lag.yml` has these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from klamm_broker.replica.partition import Partition
from klamm_server.metrics.instruments import Reading, Readings

_LABELS: Final = ("topic", "partition")
_HIGH_WATERMARK = Readings(
    "klamm_broker_partition_high_watermark",
    "Offset after the last record that consumers can read, of a partition led by this broker.",
    _LABELS,
)
_LOG_START = Readings(
    "klamm_broker_partition_log_start_offset",
    "Offset of the first record in the log, of a partition led by this broker.",
    _LABELS,
)
FORECAST_MS: Final = 4 * 3_600_000
"""How far ahead the log start offset is forecast, in milliseconds. Four hours are enough time for an operator to
react."""
_LOG_START_IN_4H = Readings(
    "klamm_broker_partition_log_start_offset_in_4h",
    "The log start offset that retention will have set in four hours, of a partition led here. By retention.ms it is"
    " known. By retention.bytes, the log is assumed to grow as much as in the last four hours.",
    _LABELS,
)
_LOG_SIZE = Readings("klamm_broker_log_size_bytes", "Bytes of a replica's .log files here.", _LABELS)
_OUT_OF_SYNC = Readings(
    "klamm_broker_partition_out_of_sync_replicas",
    "Replicas out of sync of a partition led here, if it has any.",
    _LABELS,
)
_REFUSES = Readings(
    "klamm_broker_partition_refuses_writes",
    "1 for a partition led by this broker that refuses records with acks=all, with the reason.",
    (*_LABELS, "reason"),
)
_OPEN_TRANSACTION = Readings(
    "klamm_broker_partition_open_transaction_idle_seconds",
    "Time since the last write of the producer with the earliest open transaction, of a partition led by this broker.",
    _LABELS,
)


def watch_partitions(partitions: Callable[[], Sequence[Partition]], wall_ms: Callable[[], int]) -> None:
    """Registers the metrics of all replicas. `partitions` returns the replicas whenever the metrics are read."""

    def of_led(value: Callable[[Partition], float]) -> Callable[[], Iterable[Reading]]:
        return lambda: [
            (partition.topic_partition, value(partition)) for partition in partitions() if partition.is_leader
        ]

    _HIGH_WATERMARK.set_function(of_led(lambda partition: partition.high_watermark))
    _LOG_START.set_function(of_led(lambda partition: partition.log.log_start_offset))
    _LOG_START_IN_4H.set_function(lambda: _forecasts(partitions(), wall_ms()))
    _LOG_SIZE.set_function(
        lambda: [(partition.topic_partition, partition.log.segments.size_bytes) for partition in partitions()]
    )
    _OUT_OF_SYNC.set_function(lambda: _out_of_sync(partitions()))
    _REFUSES.set_function(lambda: _refusals(partitions()))
    _OPEN_TRANSACTION.set_function(lambda: _open_transactions(partitions(), wall_ms()))


def _forecasts(partitions: Iterable[Partition], now_ms: int) -> Iterator[Reading]:
    for partition in partitions:
        if partition.is_leader:
            start_offset = partition.log.retention.forecast_start(
                now_ms=now_ms, ahead_ms=FORECAST_MS, high_watermark=partition.high_watermark
            )
            yield partition.topic_partition, start_offset


def _out_of_sync(partitions: Iterable[Partition]) -> Iterator[Reading]:
    for partition in partitions:
        leadership = partition.leadership
        if leadership is not None and len(leadership.isr) < leadership.replica_count:
            yield partition.topic_partition, leadership.replica_count - len(leadership.isr)


def _refusals(partitions: Iterable[Partition]) -> Iterator[Reading]:
    for partition in partitions:
        leadership = partition.leadership
        if leadership is not None and (reason := leadership.refusal(partition.log.config.min_insync_replicas)):
            yield (*partition.topic_partition, reason), 1


def _open_transactions(partitions: Iterable[Partition], now_ms: int) -> Iterator[Reading]:
    for partition in partitions:
        if partition.is_leader and (last_ms := partition.log.producers.open_transaction_last_ms()) is not None:
            yield partition.topic_partition, max(0, now_ms - last_ms) / 1000
