"""Random inputs to the compiled core of the client, each compared with pure Python.

An input is a number. The seed and this number decide its kind and its bytes, so that one input can run again alone. The
bytes lie in arrays that have exactly their size. So AddressSanitizer reports the first byte that is read behind them.
"""

from __future__ import annotations

import array
import itertools
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm.consumer.fetch import row_decoder
from klamm.core import core
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition
from klamm.partitioner import key_partition
from klamm.records import (
    CompressionType,
    CorruptBatchError,
    InvalidRecordError,
    RawRecord,
    Record,
    RecordSection,
    decode_section,
    encode_batch,
    encode_headers,
    read_section,
)
from klamm.wire.framed import decode_framed, encode_framed
from klamm.wire.v1 import broker_pb2

INT64_MAX: Final = 2**63 - 1
CORPUS_SIZE: Final = 64
TP: Final = TopicPartition("orders", 7)
COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
BYTES: Final = (0, 1, 2, 6, 14, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
"""Bytes that are the ends of ranges, or parts of numbers of several bytes."""
OFFSETS: Final = (-1, 0, 5, 2**31 - 1, 2**63 - 2**31, 2**63 - 2**31 + 1, INT64_MAX)
TIMES_MS: Final = (-(2**63), -(2**63) + 1, -1, 0, 1_700_000_000_000, INT64_MAX - 1, INT64_MAX)
NAMES: Final = ("", "name", "é", "\N{GRINNING FACE}" * 3, "n" * 70)
WRONG: Final[tuple[Any, ...]] = (
    (0, "text", b"", ()),
    (0, None, 17, ()),
    (0, None, bytearray(b"x"), ()),
    (0, None, b"", ((b"name", b""),)),
    (0, None, b"", (("name", "text"),)),
    (0, None, b"", (("name",),)),
    (0, None, b"", (("name", b"x"), ("\ud800", b""))),
    (0, None, b"", (["name", b"x"],)),
    (2**63, None, b"", ()),
    (0, None, b""),
    None,
)
"""Records that cannot be encoded."""
_REFUSALS: Final = (TypeError, ValueError, OverflowError, IndexError)
_InvalidRequestError: Final = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


def exact(data: bytes | bytearray) -> array.array[int]:
    """Returns the bytes in memory of exactly their size. A slice of an array has no room for more items."""
    return array.array("B", data)[:]


def content(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.2:
        return None
    size = rng.randrange(6) if kind < 0.8 else rng.choice((40, 63, 64, 65, 127, 128, 200))
    return rng.randbytes(size)


def some_headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((rng.choice(NAMES), content(rng)) for _ in range(rng.choice((0, 0, 0, 1, 2, 3))))


def some_records(rng: random.Random) -> list[RawRecord]:
    base_ms = rng.choice((0, 1_700_000_000_000, INT64_MAX - 1_000))
    count = rng.choice((1, 1, 2, 3, 5, 70))
    return [(base_ms + rng.choice((0, 0, 1, 999)), content(rng), content(rng), some_headers(rng)) for _ in range(count)]


def damage(rng: random.Random, data: bytearray) -> None:
    """Changes, removes or adds some bytes, or none."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind < 4 and at < len(data):
            data[at] = rng.choice(BYTES) if kind < 2 else rng.randrange(256)
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            del data[at : at + rng.randrange(1, 4)]
        elif kind == 6:
            data[at:at] = rng.randbytes(rng.randrange(1, 4))
        else:
            data[at:at] = data[at : at + rng.randrange(1, 30)]


class Checks:
    """Makes inputs of one seed, and raises AssertionError if the core differs from pure Python."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = random.Random(seed)
        self._corpus = [encode_batch(some_records(rng), base_offset=rng.randrange(100)) for _ in range(CORPUS_SIZE)]
        self._kinds: list[Callable[[random.Random], None]] = [
            *[self.check_rows] * 8,
            *[self.check_columns] * 5,
            *[self.check_sent] * 3,
            *[self.check_packed] * 2,
            self.check_keys,
            self.check_answer,
        ]

    def run(self, number: int) -> None:
        """Makes and checks the input with this number."""
        rng = random.Random(self._seed << 40 | number)
        rng.choice(self._kinds)(rng)

    def _damaged_section(self, rng: random.Random) -> RecordSection:
        """Returns the records of a batch after some damage. The number of records is one that `read_section` allows."""
        section = read_section(rng.choice(self._corpus))
        data = bytearray(section.data[section.start : section.end])
        damage(rng, data)
        header = section.header
        if rng.random() < 0.1:
            header = header._replace(base_offset=rng.choice(OFFSETS))
        if rng.random() < 0.1:
            header = header._replace(base_timestamp_ms=rng.choice(TIMES_MS))
        if rng.random() < 0.1:
            header = header._replace(attributes=8, max_timestamp_ms=rng.choice(TIMES_MS))
        count = header.record_count if rng.random() < 0.8 else rng.randrange(header.record_count + 3)
        return RecordSection(header._replace(record_count=min(count, len(data) // 7)), bytes(data), 0, len(data))

    def check_rows(self, rng: random.Random) -> None:
        section = self._damaged_section(rng)
        first_offset = section.header.base_offset + rng.choice((-1, 0, 0, 1, 3))
        first_offset = max(-INT64_MAX, min(first_offset, INT64_MAX))
        exactly = section._replace(data=exact(section.data))
        rows = core.decode_rows(exactly, *TP, section.header.timestamp_type, first_offset)
        check_same_rows(rows, pure_rows(section), first_offset)

    def check_columns(self, rng: random.Random) -> None:
        wanted = COLUMNS if rng.random() < 0.7 else [name for name in COLUMNS if rng.random() < 0.5]
        rows = core.ColumnRows(wanted)
        expected: list[tuple[Record, RecordSection]] = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            section = self._damaged_section(rng)
            start, end = rng.choice(((0, INT64_MAX), (0, INT64_MAX), (2, 5), (50, 52)))
            records = pure_rows(section)
            is_added = rows.add(section._replace(data=exact(section.data)), start, end)
            assert is_added == (records is not None), (is_added, records)
            expected += [(record, section) for record in records or () if start <= record.offset < end]
            assert rows.row_count == len(expected)
        if rng.random() < 0.5:
            rows.shrink()
        check_same_columns(rows, expected)

    def check_sent(self, rng: random.Random) -> None:
        batch = core.OpenBatch()
        records = some_records(rng)
        for record in records:
            if rng.random() < 0.1:
                check_refused(batch, rng.choice(WRONG))
            batch.append(record)
        batch.close()
        assert batch.append(records[0]) == -1
        encoded = bytes(encode_batch(batch))
        assert encoded == encode_batch(records)
        assert bytes(batch.seal(encoded[:61])) == encoded
        assert list(batch) == records
        if rng.random() < 0.5:
            batch.forget()
        at = rng.randrange(len(records))
        timestamp_ms, key, value, _ = records[at]
        assert batch.sizes(at) == (timestamp_ms, size_of(key), size_of(value))

    def check_packed(self, rng: random.Random) -> None:
        records = some_records(rng)[:20]
        targets = [rng.choice((5, 6, 1 << 32)) for _ in records]
        order = sorted(range(len(records)), key=targets.__getitem__)
        if rng.random() < 0.5:
            targets.sort()
            order = list(range(len(records)))
        is_sorted = targets == sorted(targets) and rng.random() < 0.5
        keys = None if rng.random() < 0.3 else column(rng, [record[1] for record in records])
        headers = None if rng.random() < 0.3 else column(rng, [encode_headers(record[3]) for record in records])
        values = column(rng, [record[2] for record in records])
        if values is None or (keys is None and headers is None and rng.random() < 0.5):
            return
        batches = core.pack_rows(
            keys,
            values,
            headers,
            array.array("q", targets)[:],
            array.array("q", [record[0] for record in records])[:],
            None if is_sorted else array.array("q", order)[:],
            rng.choice((1, 50, 200, 100_000)),
        )
        packed = [
            (record[0], None if keys is None else record[1], record[2], () if headers is None else record[3])
            for record in (records[at] for at in order)
        ]
        check_batches(batches, packed, order, [targets[at] for at in order])

    def check_keys(self, rng: random.Random) -> None:
        keys = [content(rng) for _ in range(rng.randrange(1, 10))]
        keyed = column(rng, keys)
        if keyed is None:
            return
        count = rng.randrange(1, 1_000)
        before = [rng.choice((-1, -1, 3)) for _ in keys]
        partitions = array.array("q", before)[:]
        core.place_by_key(keyed, partitions, count)
        assert list(partitions) == [
            key_partition(key, count) if number == -1 and key is not None else number
            for number, key in zip(before, keys, strict=True)
        ]

    def check_answer(self, rng: random.Random) -> None:
        """An answer to a fetch with several batches, and damage at any place."""
        batches = [rng.choice(self._corpus) for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.2:
            batches.append(encode_batch(some_records(rng), compression=rng.choice(list(CompressionType))))
        message = bytearray(encode_framed(broker_pb2.FetchHeader(), batches))
        damage(rng, message)
        try:
            _, data = decode_framed(memoryview(exact(message)), broker_pb2.FetchHeader)
        except _InvalidRequestError:
            return
        position = 0
        while position < len(data):
            try:
                section = read_section(data, position, check_crc=False, max_decompressed_bytes=1_000_000)
            except CorruptBatchError:
                return
            check_consumed(section)
            position += section.header.size_bytes


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def pure_rows(section: RecordSection) -> list[Record] | None:
    """Returns the records that the pure decoder returns, or None if it refuses the section."""
    try:
        return decode_section(section)
    except InvalidRecordError:
        return None


def check_same_rows(rows: Sequence[Any] | None, expected: list[Record] | None, first_offset: int) -> None:
    if expected and expected[0].offset < first_offset:
        expected = [record for record in expected if record.offset >= first_offset]
    made = None if rows is None else [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in rows]
    assert made == expected, (made, expected)


def check_consumed(section: RecordSection) -> None:
    """Checks that a consumer gets the records of the pure decoder, or its error."""
    expected = outcome_of(lambda: decode_section(section))
    rows = outcome_of(lambda: row_decoder.decode_rows(section, TP, -INT64_MAX))
    if isinstance(expected, str):
        assert rows == expected, (rows, expected)
    else:
        check_same_rows(rows, expected, -INT64_MAX)


def outcome_of(decode: Callable[[], list[Any]]) -> Any:
    """Returns the records, or the text of the error."""
    try:
        return decode()
    except InvalidRecordError as error:
        return str(error)


def check_refused(batch: Any, record: Any) -> None:
    try:
        index = batch.append(record)
    except _REFUSALS:
        return
    raise AssertionError(f"{record} is record {index}")


def integers(array_of_core: Any, kind: str) -> list[int]:
    data = bytes(array_of_core)
    return list(struct.unpack(f"={len(data) // struct.calcsize('=' + kind)}{kind}", data))


def contents(rows: Any) -> list[bytes | None]:
    """Returns the items of a binary column."""
    valid, ends, data = bytes(rows.valid), integers(rows.ends, "i"), bytes(rows.data)
    assert (len(ends), len(data)) == (rows.row_count + 1, ends[-1])
    items = [data[ends[at] : ends[at + 1]] if valid[at >> 3] >> (at & 7) & 1 else None for at in range(rows.row_count)]
    assert items.count(None) == rows.null_count
    return items


def check_same_columns(rows: Any, expected: list[tuple[Record, RecordSection]]) -> None:
    records = [record for record, _ in expected]
    headers = [section.header for _, section in expected]
    wanted: list[tuple[Any, Callable[[Any], list[Any]], list[Any]]] = [
        (rows.offset, lambda each: integers(each, "q"), [record.offset for record in records]),
        (rows.timestamp, lambda each: integers(each, "q"), [record.timestamp_ms for record in records]),
        (rows.timestamp_type, lambda each: integers(each, "b"), [header.timestamp_type for header in headers]),
        (rows.leader_epoch, lambda each: integers(each, "i"), [header.partition_leader_epoch for header in headers]),
        (rows.key, contents, [record.key for record in records]),
        (rows.value, contents, [record.value for record in records]),
    ]
    for made, read, right in wanted:
        assert made is None or read(made) == right, (read(made), right)
    if rows.header_ends is not None:
        pairs = list(zip(contents(rows.header_names), contents(rows.header_values), strict=True))
        ends = integers(rows.header_ends, "i")
        made = [pairs[begin:end] for begin, end in itertools.pairwise(ends)]
        assert made == [[(name.encode(), header) for name, header in record.headers] for record in records], made


def column(rng: random.Random, items: list[bytes | None]) -> Any:
    """Returns a binary column of the items, or None if a random change made it one that must be refused."""
    first = rng.choice((0, 0, 1, 3))
    items = [content(rng) for _ in range(first)] + items
    ends = [0]
    for item in items:
        ends.append(ends[-1] + len(item or b""))
    data = exact(b"".join(item or b"" for item in items))
    valid = array.array("B", bytes((len(items) + 7) // 8))[:]
    for at, item in enumerate(items):
        valid[at >> 3] |= (item is not None) << (at & 7)
    is_damaged = rng.random() < 0.1
    if is_damaged:
        ends[rng.randrange(len(ends))] = rng.choice((-1, 0, 3, len(data), len(data) + 1, 2**31 - 1))
    shown = ends[first:]
    is_whole = shown == sorted(shown) and shown[0] >= 0 and shown[-1] <= len(data)
    bits = valid if None in items or rng.random() < 0.5 else None
    arguments = bits, array.array("i", ends)[:], data if data or rng.random() < 0.5 else None, first
    try:
        made = core.BinaryColumn(*arguments, len(items) - first)
    except ValueError:
        assert not is_whole, shown
        return None
    assert is_whole, shown
    return None if is_damaged else made


def check_batches(batches: list[Any], records: list[RawRecord], order: list[int], targets: list[int]) -> None:
    """Checks that batches have all rows in their order, as the pure encoder writes them."""
    at = 0
    for first, count, data, base_timestamp_ms, max_timestamp_ms in batches:
        rows = records[at : at + count]
        times_ms = [row[0] for row in rows]
        assert first == order[at]
        assert len(set(targets[at : at + count])) == 1
        assert data == encode_batch(rows)[61:]
        assert (base_timestamp_ms, max_timestamp_ms) == (times_ms[0], max(times_ms))
        at += count
    assert at == len(records)
