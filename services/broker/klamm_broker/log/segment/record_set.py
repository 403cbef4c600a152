"""Checks a record set before a leader appends it, and assigns its offsets.

A record set is the batches of one produce request for one partition, or of one replica fetch. The checks read batch
headers and the checksum once. Of a client's records, they read lengths and timestamps, because some clients leave a
wrong largest timestamp in the header. They read more only if a config requires it: another `compression.type`, a
bounded `message.timestamp.before.max.ms`, or a `cleanup.policy` with compact, for which every record needs a key. Pure:
bytes in, buffers out. Follows Kafka's `LogValidator`, which reads all fields of each record (docs/decisions/022).
If a batch is refused because of some records, they are read once more to name them (KIP-467). A batch that is large
when it is decompressed is read in pieces (docs/decisions/064).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.errors import BrokerError, ErrorCode, RecordError
from klamm.model import TopicPartition
from klamm.records.compression import CompressionType, decompress, open_decompressed
from klamm.records.contents import MAX_DECOMPRESSED_BYTES
from klamm.records.control import ControlRecord, ControlRecordType, decode_control_record
from klamm.records.decoder import decode_batch
from klamm.records.encoder import NO_PRODUCER_EPOCH
from klamm.records.errors import DecompressedTooLargeError, InvalidRecordError
from klamm.records.header import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    PREFIX_SIZE_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    iter_headers,
    offset_prefix,
    read_header,
    set_create_time,
    set_log_append_time,
    validate_batch,
)
from klamm.records.keys import RecordKeys, parse_keys
from klamm.records.pieces import check_record_sizes, part_header, record_pieces
from klamm.records.record import RECORD_SIZE_BYTES_MIN
from klamm.records.record_times import check_count, largest_timestamp_ms
from klamm.records.rewrite import recompress, recompress_pieces
from klamm_broker.log.files.storage_failure import UnexpectedOffset
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.segment.check_budget import (
    COMPRESSED_BYTE_NS,
    DECOMPRESSED_BYTE_NS,
    KEY_NS,
    RECORD_NS,
    WHOLE_BYTES_MAX,
    WHOLE_NS,
    CheckBudget,
    OverBudgetError,
)
from klamm_broker.log.segment.time_index import latest_timestamp_ms

_RECORD_ERRORS_MAX: Final = 1_000
"""The most refused records that an answer names, because a batch can have a hundred thousand."""


class AppendedBatch(NamedTuple):
    """The properties of an appended batch that its segment needs."""

    last_offset: int
    max_timestamp_ms: int
    """The largest timestamp of the batch, or -1 if it has no record with a timestamp (`latest_timestamp_ms`)."""
    size_bytes: int


class AppendOrigin(enum.Enum):
    """The kind of writer of the records. Only coordinators may write control batches, or a producer's batches without
    sequence numbers."""

    CLIENT = enum.auto()
    COORDINATOR = enum.auto()


class CheckedBatch(NamedTuple):
    """A batch that passed the checks, with its header and all its bytes."""

    header: BatchHeader
    data: Buffer


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """A record set of a client that was checked before the append."""

    batches: list[CheckedBatch]
    size_bytes: int
    """The size of the set as the client sent it."""
    now_ms: int
    """The time of the check, which is the timestamp of the records with LogAppendTime."""

    def __len__(self) -> int:
        return self.size_bytes


class RecordSet(NamedTuple):
    """A record set that is ready for `Segment.append`."""

    buffers: list[Buffer]
    batches: list[AppendedBatch]
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    """The largest timestamp of the set, or -1 if no record has one."""


def check_produced(
    records: Buffer, config: LogConfig, *, now_ms: int, origin: AppendOrigin, budget: CheckBudget | None = None
) -> list[CheckedBatch]:
    """Checks the batches of `records` and returns them as they will be stored. A batch whose header has another largest
    timestamp than its records gets the right one. The config may require compression or new timestamps.

    Raises CorruptBatchError, or the exception of INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE or
    RECORD_LIST_TOO_LARGE. The first two have `record_errors` if single records caused them. Raises OverBudgetError if
    the checks need more than `budget`; None has no bound."""
    view = memoryview(records)
    checked: list[CheckedBatch] = []
    position = size = record_count = 0
    while position < len(view):
        header = validate_batch(view, position)
        end = position + header.batch_length + LENGTH_OVERHEAD_BYTES
        if header.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK) or header.producer_id >= 0:
            _check_producer(header, origin)
        batch = CheckedBatch(header, view[position:end])
        if header.attributes & CONTROL_MASK:
            _check_record_count(header)
        else:
            batch = _check_records(batch, config, now_ms, origin, record_count, budget)
        if not config.is_created:
            batch = _stamped(batch, now_ms)
        batch_bytes = len(batch.data)
        if batch_bytes > config.max_message_bytes:
            raise ErrorCode.MESSAGE_TOO_LARGE.exception(
                f"a batch has {batch_bytes} bytes; expected at most max.message.bytes={config.max_message_bytes}"
            )
        checked.append(batch)
        size += batch_bytes
        record_count += header.record_count
        position = end
    if not checked:
        raise ErrorCode.INVALID_RECORD.exception("the record set is empty")
    if size > config.segment_bytes:
        raise ErrorCode.RECORD_LIST_TOO_LARGE.exception(
            f"the record set has {size} bytes; expected at most segment.bytes={config.segment_bytes}"
        )
    return checked


def _check_producer(header: BatchHeader, origin: AppendOrigin) -> None:
    attributes = header.attributes
    if attributes & CONTROL_MASK and origin is AppendOrigin.CLIENT:
        raise ErrorCode.INVALID_RECORD.exception("clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0 and origin is AppendOrigin.CLIENT:
        raise ErrorCode.INVALID_RECORD.exception(
            f"a batch of producer {header.producer_id} has sequence {header.base_sequence}; expected 0 or more"
        )
    if header.producer_id >= 0 and header.producer_epoch < NO_PRODUCER_EPOCH:
        raise ErrorCode.INVALID_PRODUCER_EPOCH.exception(
            f"a batch of producer {header.producer_id} has epoch {header.producer_epoch}; expected -1 or more"
        )
    if attributes & TRANSACTIONAL_MASK and header.producer_id < 0:
        raise ErrorCode.INVALID_RECORD.exception("a transactional batch has no producer id")


def _check_records(
    batch: CheckedBatch,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    first_index: int,
    budget: CheckBudget | None,
) -> CheckedBatch:
    """Checks the records as far as the config requires it. Returns the batch with the right largest timestamp and the
    topic's compression, usually the same object."""
    header, data = batch
    # Servers write right headers.
    is_timed = config.is_created and origin is AppendOrigin.CLIENT
    is_plain = config.is_plain
    compression = None if is_plain else _other_compression(header, config)
    is_each_checked = not is_plain and (config.is_compacted or config.is_dated)
    if not (is_timed or is_each_checked or compression is not None or _is_limited(header, config)):
        _check_record_count(header)
        return batch
    if header.attributes & COMPRESSION_MASK:
        try:
            records: Buffer = _decompressed(batch, config, budget)
        except _LargeBatchError:
            return _check_large(batch, config, now_ms, first_index, budget, is_timed=is_timed, compression=compression)
    else:
        records = data[HEADER_SIZE_BYTES:]
    if budget is not None:
        budget.take(RECORD_NS * header.record_count)
    if is_timed:
        max_timestamp_ms = largest_timestamp_ms(header, records)
        if max_timestamp_ms != header.max_timestamp_ms or header.attributes & TIMESTAMP_TYPE_MASK:
            batch = _with_create_time(batch, max_timestamp_ms)
        if max_timestamp_ms - now_ms > config.message_timestamp_after_max_ms:
            is_each_checked = True
    elif compression is not None:
        check_count(header, records)
    if is_each_checked:
        if budget is not None:
            budget.take(KEY_NS * header.record_count)
        _check_each(batch.header, parse_keys(header, bytes(records)), config, now_ms, first_index)
    return batch if compression is None else _recompressed(batch.header, bytes(records), compression, budget)


def _recompressed(
    header: BatchHeader, records: bytes, compression: CompressionType, budget: CheckBudget | None
) -> CheckedBatch:
    if budget is not None:
        budget.take(COMPRESSED_BYTE_NS * len(records))
    data = recompress(header, records, compression)
    return CheckedBatch(read_header(data), data)


def _other_compression(header: BatchHeader, config: LogConfig) -> CompressionType | None:
    """Returns the compression that the topic requires, or None if the batch has it already."""
    if config.compression_type == "producer":
        return None
    wanted = compression_of(config.compression_type)
    return None if header.compression is wanted else wanted


def _is_limited(header: BatchHeader, config: LogConfig) -> bool:
    """Returns whether the topic limits the size of each record of a batch like this."""
    return config.max_decompressed_message_bytes < MAX_DECOMPRESSED_BYTES and bool(header.attributes & COMPRESSION_MASK)


def _decompressed(batch: CheckedBatch, config: LogConfig, budget: CheckBudget | None) -> bytes:
    """Returns the records of a compressed batch. Raises CorruptBatchError, OverBudgetError or _LargeBatchError."""
    header, data = batch
    allowed_bytes = WHOLE_BYTES_MAX
    if budget is not None and budget.left_ns < WHOLE_NS:
        allowed_bytes = budget.left_ns // DECOMPRESSED_BYTE_NS
    try:
        records = decompress(header.compression, memoryview(data)[HEADER_SIZE_BYTES:], max_bytes=allowed_bytes)
    except DecompressedTooLargeError:
        is_last = budget is None or not budget.is_bounded
        raise (_LargeBatchError if is_last else OverBudgetError) from None
    if budget is not None:
        budget.take(DECOMPRESSED_BYTE_NS * len(records))
    if len(records) > config.max_decompressed_message_bytes:
        if budget is not None:
            budget.take(RECORD_NS * header.record_count)
        check_record_sizes(records, header.record_count, config.max_decompressed_message_bytes)
    return records


class _LargeBatchError(Exception):
    """The records are more than `WHOLE_BYTES_MAX` bytes, so they are read in pieces."""


def _check_large(
    batch: CheckedBatch,
    config: LogConfig,
    now_ms: int,
    first_index: int,
    budget: CheckBudget | None,
    *,
    is_timed: bool,
    compression: CompressionType | None,
) -> CheckedBatch:
    """Checks the records of a large batch like `_check_records`, but in pieces. Each check decompresses the batch
    again."""
    is_too_new = False
    max_timestamp_ms = _walk_large(batch, config, budget, is_timed=is_timed)
    if max_timestamp_ms is not None:
        header = batch.header
        if max_timestamp_ms != header.max_timestamp_ms or header.attributes & TIMESTAMP_TYPE_MASK:
            batch = _with_create_time(batch, max_timestamp_ms)
        is_too_new = max_timestamp_ms - now_ms > config.message_timestamp_after_max_ms
    if config.is_compacted or config.is_dated or is_too_new:
        _check_each_large(batch, config, now_ms, first_index, budget)
    return batch if compression is None else _recompressed_large(batch, config, compression, budget)


def _walk_large(batch: CheckedBatch, config: LogConfig, budget: CheckBudget | None, *, is_timed: bool) -> int | None:
    """Checks the count and the size of the records. With `is_timed`, returns their largest timestamp."""
    header = batch.header
    largest_ms: int | None = None
    with _opened(batch, budget) as data:
        limit_bytes = config.max_decompressed_message_bytes
        for piece in record_pieces(header, data, with_keys=False, max_record_bytes=limit_bytes):
            if is_timed:
                timestamp_ms = largest_timestamp_ms(part_header(header, piece), piece.data)
                largest_ms = timestamp_ms if largest_ms is None else max(largest_ms, timestamp_ms)
    return largest_ms


def _check_each_large(
    batch: CheckedBatch, config: LogConfig, now_ms: int, first_index: int, budget: CheckBudget | None
) -> None:
    header = batch.header
    refused = _RefusedRecords()
    last_offset_delta, index = -1, first_index
    with _opened(batch, budget) as data:
        for piece in record_pieces(header, data, with_keys=False):
            records = parse_keys(part_header(header, piece), piece.data)
            if records.offset_deltas[0] <= last_offset_delta:
                raise InvalidRecordError(f"offset delta {records.offset_deltas[0]} follows {last_offset_delta}")
            last_offset_delta = records.offset_deltas[-1]
            refused.add(header, records, config, now_ms, index)
            index += piece.record_count
    if refused.count:
        raise refused.error(header.record_count)
    if config.is_compacted:
        _check_last_offset(header, last_offset_delta)


def _recompressed_large(
    batch: CheckedBatch, config: LogConfig, compression: CompressionType, budget: CheckBudget | None
) -> CheckedBatch:
    with _opened(batch, budget) as pieces:
        data = recompress_pieces(batch.header, pieces, compression, max_bytes=config.max_message_bytes)
    if data is None:
        raise ErrorCode.MESSAGE_TOO_LARGE.exception(
            f"a batch is too large with compression.type={config.compression_type}; expected at most"
            f" max.message.bytes={config.max_message_bytes}"
        )
    return CheckedBatch(read_header(data), data)


@contextmanager
def _opened(batch: CheckedBatch, budget: CheckBudget | None) -> Iterator[Iterator[bytes]]:
    """Opens the decompressed records. No reader could read more than `MAX_DECOMPRESSED_BYTES`."""
    section = memoryview(batch.data)[HEADER_SIZE_BYTES:]
    with open_decompressed(batch.header.compression, section, max_bytes=MAX_DECOMPRESSED_BYTES) as data:
        yield data if budget is None else budget.pacing(data)


def _with_create_time(batch: CheckedBatch, max_timestamp_ms: int) -> CheckedBatch:
    """Returns the batch with this largest timestamp in its header and with the timestamps of its records, as Kafka's
    broker stores it. Some clients leave -1, 0 or the first record's timestamp there."""
    corrected = bytearray(batch.data)
    set_create_time(corrected, max_timestamp_ms)
    return CheckedBatch(read_header(corrected), corrected)


def _check_each(header: BatchHeader, records: RecordKeys, config: LogConfig, now_ms: int, first_index: int) -> None:
    """Checks the key and the timestamp of each record. `header` has the right largest timestamp."""
    created = config.is_created
    if (config.is_compacted and None in records.keys) or (
        created
        and (
            _too_new(header.max_timestamp_ms, config, now_ms)
            or any(_too_old(timestamp, config, now_ms) for timestamp in _timestamps(header, records))
        )
    ):
        refused = _RefusedRecords()
        refused.add(header, records, config, now_ms, first_index)
        raise refused.error(header.record_count)
    if config.is_compacted:
        _check_last_offset(header, records.offset_deltas[-1])


class _RefusedRecords:
    """The records for which a batch is refused."""

    def __init__(self) -> None:
        self.count = 0
        self._code = ErrorCode.INVALID_RECORD
        self._first: list[RecordError] = []

    def add(self, header: BatchHeader, records: RecordKeys, config: LogConfig, now_ms: int, first_index: int) -> None:
        """Adds the invalid ones of some records. The timestamp of a record without a key is not checked."""
        created = config.is_created
        for index, (key, timestamp_ms) in enumerate(zip(records.keys, _timestamps(header, records), strict=True)):
            message = ""
            if config.is_compacted and key is None:
                message = "the record has no key, which cleanup.policy=compact requires"
            elif created and (message := _out_of_range(timestamp_ms, config, now_ms)):
                self._code = ErrorCode.INVALID_TIMESTAMP
            if message:
                self.count += 1
                if len(self._first) < _RECORD_ERRORS_MAX:
                    self._first.append(RecordError(first_index + index, message))

    def error(self, record_count: int) -> BrokerError:
        """Returns the error for a batch with `record_count` records."""
        first = self._first[0]
        error = self._code.exception(
            f"{self.count} of {record_count} records were refused; record {first.batch_index}: {first.message}"
        )
        error.record_errors = tuple(self._first)
        return error


def _timestamps(header: BatchHeader, records: RecordKeys) -> Iterator[int]:
    base_ms = header.base_timestamp_ms
    return (base_ms + delta for delta in records.timestamp_deltas)


def _out_of_range(timestamp_ms: int, config: LogConfig, now_ms: int) -> str:
    return _too_new(timestamp_ms, config, now_ms) or _too_old(timestamp_ms, config, now_ms)


def _too_new(timestamp_ms: int, config: LogConfig, now_ms: int) -> str:
    if timestamp_ms - now_ms <= config.message_timestamp_after_max_ms:
        return ""
    limit = f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms}"
    return f"timestamp {timestamp_ms} is more than {limit} after the broker's {now_ms}"


def _too_old(timestamp_ms: int, config: LogConfig, now_ms: int) -> str:
    if timestamp_ms < 0 or now_ms - timestamp_ms <= config.message_timestamp_before_max_ms:
        return ""
    limit = f"message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}"
    return f"timestamp {timestamp_ms} is more than {limit} before the broker's {now_ms}"


def marker_of(header: BatchHeader, data: Buffer) -> ControlRecord | None:
    """Returns the end transaction marker of a control batch, or None for another type or an emptied batch. Raises
    CorruptBatchError."""
    if not header.record_count:
        return None
    record = decode_batch(data, check_crc=False)[0]
    marker = decode_control_record(record.key, record.value)
    return None if marker.type is ControlRecordType.UNKNOWN else marker


def _check_last_offset(header: BatchHeader, last_offset_delta: int) -> None:
    """Raises INVALID_RECORD if the last record does not match the header. Compaction could not read such a batch, and
    would stop for ever."""
    if last_offset_delta != header.last_offset_delta:
        raise ErrorCode.INVALID_RECORD.exception(
            f"the last of {header.record_count} records has offset delta {last_offset_delta}; expected"
            f" {header.last_offset_delta}"
        )


def _check_record_count(header: BatchHeader) -> None:
    """Raises INVALID_RECORD if a batch whose records are not read is too small for its record count. Each record uses
    up an offset, so otherwise a few bytes could use up two billion offsets."""
    if header.attributes & COMPRESSION_MASK:
        return
    size_bytes = header.size_bytes - HEADER_SIZE_BYTES
    if header.record_count * RECORD_SIZE_BYTES_MIN > size_bytes:
        raise ErrorCode.INVALID_RECORD.exception(
            f"a batch announces {header.record_count} records in {size_bytes} bytes; expected at least"
            f" {RECORD_SIZE_BYTES_MIN} bytes for each record"
        )


def _stamped(batch: CheckedBatch, now_ms: int) -> CheckedBatch:
    """Returns the batch with the broker's time as the timestamp of all its records."""
    stamped = bytearray(batch.data)
    set_log_append_time(stamped, now_ms)
    return CheckedBatch(read_header(stamped), stamped)


def compression_of(compression_type: str) -> CompressionType:
    """Returns the codec of a topic's `compression.type`, which must not be `producer`."""
    if compression_type == "uncompressed":
        return CompressionType.NONE
    return CompressionType.from_name(compression_type)


def with_offsets(batches: Sequence[CheckedBatch], base_offset: int, leader_epoch: int) -> RecordSet:
    """Returns the set as a leader stores it, with offsets from `base_offset` and the leader epoch in every batch.
    Copies no records."""
    buffers: list[Buffer] = []
    appended: list[AppendedBatch] = []
    offset, size_bytes, max_timestamp_ms = base_offset, 0, -1
    for header, data in batches:
        batch_bytes, timestamp_ms = len(data), header.max_timestamp_ms
        buffers.append(offset_prefix(offset, header.batch_length, leader_epoch))
        buffers.append(memoryview(data)[PREFIX_SIZE_BYTES:])
        offset += header.last_offset_delta + 1
        appended.append(AppendedBatch(offset - 1, timestamp_ms, batch_bytes))
        size_bytes += batch_bytes
        if timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = timestamp_ms
    return RecordSet(buffers, appended, size_bytes, base_offset, offset - 1, max_timestamp_ms)


def check_replicated(
    records: Buffer, topic_partition: TopicPartition, *, end_offset: int, leader_epoch: int
) -> list[CheckedBatch]:
    """Checks the batches that a leader sent to a log that ends at `end_offset`. Offsets may have gaps (compaction).

    Returns the batches before the first one with an epoch after `leader_epoch`, as Kafka does. A former leader may have
    appended that one as a follower while it sent its file. Raises UnexpectedOffset if a batch begins before the
    previous one ends, and CorruptBatchError."""
    view = memoryview(records)
    batches: list[CheckedBatch] = []
    for position, _ in iter_headers(view):
        header = validate_batch(view, position, allow_gaps=True)
        if header.partition_leader_epoch > leader_epoch:
            return batches
        if header.base_offset < end_offset:
            raise UnexpectedOffset(
                f"{topic_partition}: a batch has offset {header.base_offset}; expected {end_offset} or later"
            )
        end_offset = header.next_offset
        batch = CheckedBatch(header, view[position : position + header.size_bytes])
        if header.is_control:
            marker_of(*batch)
        batches.append(batch)
    if not batches:
        raise UnexpectedOffset(f"{topic_partition}: the record set is empty")
    return batches


def groups_by_size(batches: Sequence[CheckedBatch], segment_bytes: int) -> Iterator[list[CheckedBatch]]:
    """Yields groups of batches that fit into one segment. A batch larger than `segment.bytes` is a group of its own."""
    group: list[CheckedBatch] = []
    size_bytes = 0
    for batch in batches:
        if group and size_bytes + batch.header.size_bytes > segment_bytes:
            yield group
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += batch.header.size_bytes
    yield group


def as_replicated(batches: Sequence[CheckedBatch]) -> RecordSet:
    """Returns the set as a follower stores it, exactly as the leader sent it."""
    return RecordSet(
        buffers=[batch.data for batch in batches],
        batches=[AppendedBatch(header.last_offset, latest_timestamp_ms(header), len(data)) for header, data in batches],
        size_bytes=sum(len(batch.data) for batch in batches),
        base_offset=batches[0].header.base_offset,
        last_offset=batches[-1].header.last_offset,
        max_timestamp_ms=max(batch.header.max_timestamp_ms for batch in batches),
    )
