"""Plain records of a client that makes no record batches: checks them, chooses their partitions and makes the batches.

Pure; randomness is an argument. A record with a key goes to the partition that Kafka's clients choose for it. All
records of a request without a key go to one partition that this broker leads, so that they share a batch. Batches are
not compressed, because the append compresses them as the topic's compression.type requires. The records of a partition
are appended together or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.partitioner import key_partition
from klamm.records import RawRecord, encode_batch, estimate_size_bytes
from klamm.records.header import HEADER_SIZE_BYTES
from klamm_broker.handlers.produce import Produced

BATCH_BYTES_MAX: Final = 1024 * 1024
"""The most bytes of a batch of several records, if the topic allows as many."""
_OTHERS_INVALID: Final = "other records are invalid, so none of them was appended"


class Spread(NamedTuple):
    """The partitions among which records are spread."""

    partition_count: int
    led: Sequence[int]
    """The partitions that this broker leads."""
    named: int | None = None
    """The partition that the client wants for all records. None if the broker chooses."""


class PlacedRecords(NamedTuple):
    """The records of one partition."""

    partition: int
    indexes: Sequence[int]
    """The numbers of the records in the request."""
    batches: bytes


class RecordOutcome(NamedTuple):
    """The outcome of one record."""

    partition: int
    """-1 if the broker has chosen none."""
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    offset: int = -1
    log_append_time_ms: int = -1
    current_leader: int = -1


def invalid_records(records: Sequence[RawRecord]) -> list[RecordOutcome]:
    """Returns an outcome for each record if one of them is invalid, so that nothing is appended. Otherwise returns an
    empty list."""
    faults = {number: fault for number, record in enumerate(records) if (fault := _fault(record)) is not None}
    if not faults:
        return []
    others = ErrorCode.INVALID_RECORD, _OTHERS_INVALID
    return [RecordOutcome(-1, *faults.get(number, others)) for number in range(len(records))]


def _fault(record: RawRecord) -> tuple[ErrorCode, str] | None:
    timestamp_ms, _, _, headers = record
    if timestamp_ms < 0:
        return (
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp_ms={timestamp_ms}; expected milliseconds since the epoch, or none for the broker's time",
        )
    for number, (key, _) in enumerate(headers):
        if not key:
            return ErrorCode.INVALID_RECORD, f"header {number} has no key; expected a name for each header"
    return None


def place(
    records: Sequence[RawRecord], spread: Spread, rng: random.Random, *, max_message_bytes: int
) -> list[PlacedRecords]:
    """Returns the records by partition, with batches that the topic allows. Only a record that is larger by itself has
    a batch with more than `max_message_bytes`."""
    without_key = rng.choice(spread.led or range(spread.partition_count))
    indexes: dict[int, list[int]] = {}
    for number, (_, key, _, _) in enumerate(records):
        if spread.named is not None:
            partition = spread.named
        else:
            partition = without_key if key is None else key_partition(key, spread.partition_count)
        indexes.setdefault(partition, []).append(number)
    batch_bytes_max = min(BATCH_BYTES_MAX, max_message_bytes)
    return [
        PlacedRecords(
            partition,
            numbers,
            b"".join(map(encode_batch, _batches([records[number] for number in numbers], batch_bytes_max))),
        )
        for partition, numbers in indexes.items()
    ]


def _batches(records: Sequence[RawRecord], batch_bytes_max: int) -> Iterator[list[RawRecord]]:
    """Yields the records in batches. A batch has at least one record."""
    batch: list[RawRecord] = []
    size_bytes = HEADER_SIZE_BYTES
    for record in records:
        record_bytes = _size_bytes(record)
        if batch and size_bytes + record_bytes > batch_bytes_max:
            yield batch
            batch, size_bytes = [], HEADER_SIZE_BYTES
        batch.append(record)
        size_bytes += record_bytes
    yield batch


def _size_bytes(record: RawRecord) -> int:
    _, key, value, headers = record
    return estimate_size_bytes(key, value, headers)


def outcomes_of(
    records: Sequence[RawRecord],
    placed: Sequence[PlacedRecords],
    answers: Mapping[TopicPartition, Produced],
    topic: str,
    *,
    max_message_bytes: int,
) -> list[RecordOutcome]:
    """Returns the outcomes of the records in the order of the request. A partition without an answer was written with
    acks=0."""
    outcomes: dict[int, RecordOutcome] = {}
    for part in placed:
        answer = answers.get(TopicPartition(topic, part.partition))
        if answer is None:
            outcomes.update(dict.fromkeys(part.indexes, RecordOutcome(part.partition)))
        elif answer.error_code:
            outcomes.update(zip(part.indexes, _refused(records, part, answer, max_message_bytes), strict=True))
        else:
            for place_in_part, number in enumerate(part.indexes):
                offset = answer.base_offset + place_in_part
                outcomes[number] = RecordOutcome(
                    part.partition, offset=offset, log_append_time_ms=answer.log_append_time_ms
                )
    return [outcomes[number] for number in range(len(records))]


def _refused(
    records: Sequence[RawRecord], part: PlacedRecords, answer: Produced, max_message_bytes: int
) -> Iterator[RecordOutcome]:
    """Yields the outcomes of the records of a partition that the broker has refused. If single records are the cause,
    the others have INVALID_RECORD (KIP-467)."""
    causes = dict(answer.record_errors)
    if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE:
        sizes = [_size_bytes(records[number]) + HEADER_SIZE_BYTES for number in part.indexes]
        causes = {place: answer.error_message for place, size in enumerate(sizes) if size > max_message_bytes}
    for place_in_part in range(len(part.indexes)):
        if causes and place_in_part not in causes:
            yield RecordOutcome(part.partition, ErrorCode.INVALID_RECORD, _OTHERS_INVALID)
        else:
            yield RecordOutcome(
                part.partition,
                answer.error_code,
                causes.get(place_in_part, answer.error_message),
                current_leader=answer.current_leader,
            )
