"""The compiled core against the pure Python, which is the reference: equal bytes, records, errors and choices."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import core as chooser
from klamm.consumer.fetch.row_decoder import decode_rows
from klamm.consumer.record import ConsumerRecord
from klamm.core import core
from klamm.model import TopicPartition
from klamm.records import (
    CompressionType,
    CorruptBatchError,
    RawRecord,
    TimestampType,
    decode_batch,
    encode_batch,
    estimate_size_bytes,
    read_section,
)

needs_core = pytest.mark.skipif(core is None, reason="klamm was built without a C compiler, or KLAMM_CORE=pure")

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CONTENTS = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
TIMES_MS = st.integers(0, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)
RECORDS = st.lists(
    st.tuples(TIMES_MS, CONTENTS, CONTENTS, st.lists(st.tuples(NAMES, CONTENTS), max_size=3).map(tuple)), min_size=1
)


def compiled(records: list[RawRecord]) -> Any:
    batch = core.OpenBatch()
    for index, record in enumerate(records):
        assert batch.append(record) == index
    batch.close()
    return batch


def in_pure_python(section: Any, tp: TopicPartition, first_offset: int) -> list[ConsumerRecord]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klamm.consumer.fetch.row_decoder.core", None)
        return decode_rows(section, tp, first_offset)


TP = TopicPartition("orders", 7)


def test_the_choice_names_what_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match="KLAMM_CORE='fast': expected auto, pure, compiled"):
        chooser._load("fast")
    monkeypatch.setattr("importlib.import_module", lambda name: (_ for _ in ()).throw(ImportError(f"no {name}")))
    assert chooser._load("auto") is None
    with pytest.raises(ImportError, match=r"KLAMM_CORE=compiled, but klamm has no compiled core \(no klamm._core\)"):
        chooser._load("compiled")


@needs_core
@given(RECORDS, st.sampled_from(list(CompressionType)))
def test_both_encode_the_same_bytes(records: list[RawRecord], compression: CompressionType) -> None:
    numbers = {"producer_id": 17, "producer_epoch": 3, "base_sequence": 99, "is_transactional": True}

    encoded = encode_batch(compiled(records), compression=compression, **numbers)

    assert bytes(encoded) == encode_batch(records, compression=compression, **numbers)


@needs_core
@given(RECORDS)
def test_an_open_batch_is_a_sequence_of_its_records(records: list[RawRecord]) -> None:
    batch = compiled(records)

    assert len(batch) == len(records)
    assert list(batch) == [batch[index] for index in range(len(batch))] == records
    assert batch[1:] == records[1:]
    for index, (timestamp_ms, key, value, _) in enumerate(records):
        sizes = timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value)
        assert batch.sizes(index) == sizes
    batch.forget()
    assert [batch.sizes(index)[0] for index in range(len(batch))] == [record[0] for record in records]


@needs_core
@given(RECORDS)
def test_a_record_is_no_larger_than_its_estimate(records: list[RawRecord]) -> None:
    batch = core.OpenBatch()
    bound = 61
    for timestamp_ms, key, value, headers in records:
        batch.append((timestamp_ms, key, value, headers))
        bound += estimate_size_bytes(key, value, headers)
    batch.close()

    assert len(memoryview(batch)) <= bound


@needs_core
@given(RECORDS, st.integers(0, 2**63 - 2**31), st.integers(-3, 3), st.sampled_from(list(CompressionType)))
def test_both_decode_the_same_records(
    records: list[RawRecord], base_offset: int, ahead: int, compression: CompressionType
) -> None:
    section = read_section(encode_batch(records, base_offset=base_offset, compression=compression))

    rows = core.decode_rows(section, "orders", 7, section.header.timestamp_type, base_offset + ahead)

    assert rows == in_pure_python(section, TP, base_offset + ahead)
    assert all(type(row) is ConsumerRecord for row in rows)


@needs_core
@given(RECORDS, st.randoms(use_true_random=False))
def test_both_say_the_same_of_damaged_batches(records: list[RawRecord], rng: random.Random) -> None:
    damaged = bytearray(encode_batch(records))
    for _ in range(rng.randint(1, 3)):
        # The timestamps of the header, or the records.
        position = rng.choice([rng.randrange(27, 43), rng.randrange(61, len(damaged))])
        damaged[position] = rng.randrange(256)
    section = read_section(bytes(damaged), check_crc=False)
    try:
        expected: Any = in_pure_python(section, TP, 0)
    except CorruptBatchError as error:
        expected = error

    rows = core.decode_rows(section, "orders", 7, section.header.timestamp_type, 0)

    if isinstance(expected, CorruptBatchError):
        assert rows is None
        with pytest.raises(type(expected)) as raised:
            decode_rows(section, TP, 0)
        assert str(raised.value) == str(expected)
    else:
        assert rows == expected


@needs_core
@pytest.mark.parametrize(
    ("base_ms", "is_whole"), [(-(2**63), False), (-(2**63) + 1, True), (2**63 - 2, True), (2**63 - 1, False)]
)
def test_both_refuse_the_same_timestamps(base_ms: int, is_whole: bool) -> None:
    section = read_section(encode_batch([(0, None, b"a", ()), (1, None, b"b", ())]))
    section = section._replace(header=section.header._replace(base_timestamp_ms=base_ms))
    rows = core.decode_rows(section, "orders", 7, 0, 0)
    if is_whole:
        assert rows == in_pure_python(section, TP, 0)
        return
    assert rows is None
    with pytest.raises(CorruptBatchError, match="do not all fit 64 bits"):
        in_pure_python(section, TP, 0)


@needs_core
def test_both_read_the_least_delta_of_a_timestamp() -> None:
    section = read_section(encode_batch([(2**63 - 1, None, b"a", ()), (-1, None, b"b", ())]))
    rows = core.decode_rows(section, "orders", 7, 0, 0)
    assert [row.timestamp for row in rows] == [2**63 - 1, -1]
    assert rows == in_pure_python(section, TP, 0)


@needs_core
@given(st.binary(max_size=100))
def test_any_bytes_give_records_or_nothing(data: bytes) -> None:
    """The data is random. The header says that it has as many records as could fit."""
    section = read_section(encode_batch([(0, None, b"", ())]))
    section = section._replace(
        header=section.header._replace(record_count=len(data) // 7), data=data, start=0, end=len(data)
    )

    rows = core.decode_rows(section, "orders", 7, section.header.timestamp_type, 0)

    assert rows is None or len(rows) == len(data) // 7


@needs_core
@pytest.mark.parametrize(
    "record",
    [
        (0, "text", b"", ()),
        (0, None, 17, ()),
        (0, None, b"", ((b"name", b""),)),
        (0, None, b"", (("name", "text"),)),
        (0, None, b"", (("name",),)),
        (2**63, None, b"", ()),
        (0, None, b""),
        (0, None, b"", (("\ud800", b""),)),
    ],
)
def test_a_wrong_record_leaves_the_batch_as_it_was(record: Any) -> None:
    batch = core.OpenBatch()
    batch.append((5, b"k", b"v", ()))

    with pytest.raises((TypeError, ValueError, OverflowError, UnicodeEncodeError, IndexError)):
        batch.append(record)

    batch.append((6, None, b"w", ()))
    assert list(batch) == [(5, b"k", b"v", ()), (6, None, b"w", ())]


@needs_core
def test_a_closed_batch_takes_no_record_and_an_open_one_shows_no_bytes() -> None:
    batch = core.OpenBatch()
    with pytest.raises(BufferError):
        memoryview(batch)
    batch.close()
    assert batch.append((0, None, b"", ())) == -1
    assert len(batch) == 0


@needs_core
def test_a_batch_keeps_its_bytes_while_something_reads_them() -> None:
    batch = compiled([(0, None, b"value", ())])
    view = memoryview(batch)
    batch.forget()
    assert bytes(view).endswith(b"value\0")
    view.release()
    batch.forget()
    with pytest.raises(BufferError):
        memoryview(batch)
    with pytest.raises(IndexError):
        batch.sizes(1)


@needs_core
@given(st.binary(max_size=100), st.integers(1, 1_000))
def test_both_hash_a_key_alike(key: bytes, partition_count: int) -> None:
    from klamm.partitioner import DefaultPartitioner, key_partition, murmur2

    assert core.murmur2(key) == murmur2(key)
    partitioner = DefaultPartitioner(ignore_keys=False, rng=random.Random(1))
    partitioner.update([None] * partition_count, [])
    assert partitioner.choose(key, 1) == key_partition(key, partition_count)


@needs_core
def test_the_lock_is_reentrant_and_keeps_other_threads_out() -> None:
    lock = core.Lock()
    with lock, lock:
        taken = []
        other = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
        other.start()
        other.join()
        assert taken == [False]
    with pytest.raises(RuntimeError, match="cannot release un-acquired lock"):
        lock.release()


@needs_core
def test_a_condition_gives_up_a_lock_that_is_held_twice() -> None:
    lock = core.Lock()
    room = threading.Condition(lock)
    seen = []

    def wait() -> None:
        with lock, lock:
            ready.set()
            seen.append(room.wait(60))

    ready = threading.Event()
    waiter = threading.Thread(target=wait)
    waiter.start()
    ready.wait()
    with lock:
        room.notify_all()
    waiter.join()
    assert seen == [True]


@needs_core
def test_threads_append_to_one_counter_under_the_lock() -> None:
    lock, count = core.Lock(), [0]

    def add() -> None:
        for _ in range(20_000):
            with lock:
                count[0] += 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == [80_000]


@needs_core
def test_the_last_record_frees_its_batch() -> None:
    """A bytearray cannot be resized while something refers to its memory."""
    data = bytearray(encode_batch([(0, b"k", b"v", (("h", b"x"),))] * 1_000))
    rows = core.decode_rows(read_section(data), "orders", 7, TimestampType.CREATE_TIME, 0)
    last = rows[-1]
    del rows
    with pytest.raises(BufferError):
        data.clear()
    assert last.value == b"v"

    del last
    data.clear()


@needs_core
def test_a_batch_of_records_is_what_other_readers_expect() -> None:
    records = [(1_700_000_000_000 + number, b"k%d" % number, None, ()) for number in range(1_000)]
    decoded = decode_batch(bytes(encode_batch(compiled(records))))
    assert [(each.timestamp_ms, each.key, each.value, each.headers) for each in decoded] == records
