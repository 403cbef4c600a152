"""The settings of a log with the cleanup policy compact, and functions that append to such a log and read from it."""

from __future__ import annotations

from typing import Any

from klamm.records import BatchHeader, decode_batch, encode_batch, iter_headers
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog

NOW = 1_000_000
"""The time at which tests append, in milliseconds since the epoch."""

CONFIG = LogConfig(
    segment_bytes=1024,
    index_interval_bytes=100,
    retention_ms=-1,
    cleanup_policy=("compact",),
    delete_retention_ms=5_000,
)
Pairs = list[tuple[bytes | None, bytes | None]]


def append(log: PartitionLog, pairs: Pairs, *, now_ms: int = NOW, roll: bool = False, **fields: Any) -> None:
    """Appends one batch of keys and values. With `roll`, the batch is the last one of its segment."""
    batch = encode_batch([(now_ms, key, value, ()) for key, value in pairs], **fields)
    log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
    if roll:
        seal(log)


def seal(log: PartitionLog) -> None:
    """Ends the active segment, and makes everything durable."""
    log.segments.roll(log.log_end_offset, NOW)
    log.flusher.flush()


def pairs(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Returns the offset, key and value of all records."""
    return [(record.offset, record.key, record.value) for batch in batches(log) for record in decode_batch(batch)]


def batches(log: PartitionLog) -> list[bytes]:
    """Returns all batches as they are on disk."""
    data = log.reader.read(log.log_start_offset, 10**6).records
    found = [data]
    while data and (offset := _headers(data)[-1].next_offset) < log.log_end_offset:
        data = log.reader.read(offset, 10**6).records
        found.append(data)
    whole = b"".join(found)
    return [whole[position : position + header.size_bytes] for position, header in iter_headers(whole)]


def _headers(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_headers(data)]
