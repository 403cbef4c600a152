"""A consumer's record behaves like a tuple of its fields, compiled and in pure Python."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

from klamm.consumer.fetch.row_decoder import decode_rows
from klamm.consumer.record import ConsumerRecord, with_contents
from klamm.core import core
from klamm.model import TopicPartition
from klamm.records import RecordSection, TimestampType, encode_batch, read_section

TP = TopicPartition("orders", 2)
FIELDS = ("orders", 2, 7, 1_500, b"k", b"v", (("h", b"x"), ("n", None)), TimestampType.CREATE_TIME, -1)


def fetched() -> ConsumerRecord:
    batch = encode_batch([(1_500, b"k", b"v", (("h", b"x"), ("n", None)))], base_offset=7)
    (record,) = decode_rows(read_section(batch), TP, 0)
    return record


def made() -> ConsumerRecord:
    return ConsumerRecord(*FIELDS)


@pytest.fixture(params=[fetched, made])
def record(request: pytest.FixtureRequest) -> ConsumerRecord:
    made: ConsumerRecord = request.param()
    return made


def test_it_has_its_fields_by_name_by_position_and_in_order(record: ConsumerRecord) -> None:
    assert (record.topic, record.partition, record.offset, record.timestamp) == FIELDS[:4]
    assert (record.key, record.value, record.headers, record.timestamp_type, record.leader_epoch) == FIELDS[4:]
    assert record.topic_partition == TP
    assert [record[index] for index in range(9)] == list(FIELDS) == list(record)
    assert record[2:4] == (7, 1_500)
    assert record[-1] == -1
    assert len(record) == 9
    topic, *_, leader_epoch = record
    assert (topic, leader_epoch) == ("orders", -1)
    with pytest.raises(IndexError):
        record[9]


def test_it_is_equal_to_the_tuple_of_its_fields(record: ConsumerRecord) -> None:
    assert record == FIELDS
    assert FIELDS == record  # noqa: SIM300 - the tuple is asked first
    assert record == made() == fetched()
    assert record != (*FIELDS[:-1], 5)
    assert record != "orders"
    assert hash(record) == hash(FIELDS)
    assert record < (*FIELDS[:2], 8)
    assert record >= made()
    assert {record: 1}[made()] == 1
    assert "orders" in record
    assert record.index(7) == 2
    assert record.count("orders") == 1


def test_it_can_be_copied_changed_and_pickled(record: ConsumerRecord) -> None:
    assert copy.copy(record) == copy.deepcopy(record) == pickle.loads(pickle.dumps(record)) == FIELDS
    changed = record._replace(value=None, offset=9)
    assert changed == (*FIELDS[:2], 9, *FIELDS[3:5], None, *FIELDS[6:])
    assert record._asdict() == dict(zip(record._fields, FIELDS, strict=True))
    assert ConsumerRecord._make(FIELDS) == record
    with pytest.raises((ValueError, TypeError)):
        record._replace(body=b"")  # type: ignore[call-arg]
    assert with_contents(record, 1, "two") == (*FIELDS[:4], 1, "two", *FIELDS[6:])


def test_it_shows_its_fields_and_matches_a_pattern(record: ConsumerRecord) -> None:
    assert repr(record).startswith("ConsumerRecord(topic='orders', partition=2, offset=7, timestamp=1500, key=b'k'")
    match record:
        case ConsumerRecord(topic=topic, value=value):
            assert (topic, value) == ("orders", b"v")
        case _:
            pytest.fail("no match")
    assert ConsumerRecord[bytes, bytes](*FIELDS) == record


def test_it_cannot_be_changed(record: ConsumerRecord) -> None:
    for name in ("offset", "value", "other"):
        with pytest.raises(AttributeError):
            setattr(record, name, 1)


def test_nulls_and_empty_contents_differ() -> None:
    batch = encode_batch([(0, None, None, ()), (0, b"", b"", ())])
    first, second = decode_rows(read_section(batch), TP, 0)
    assert (first.key, first.value, first.headers) == (None, None, ())
    assert (second.key, second.value, second.headers) == (b"", b"", ())


def test_a_record_that_the_application_made_may_refer_to_itself() -> None:
    """The garbage collector finds such a circle."""

    class Value:
        record: Any

    value = Value()
    value.record = ConsumerRecord(*FIELDS[:5], value, *FIELDS[6:])
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None


def kept_section(size_bytes: int) -> tuple[RecordSection, bytearray]:
    answer = bytearray(encode_batch([(0, None, b"v", ())]))
    length = len(answer)
    answer += bytes(size_bytes)
    return read_section(memoryview(answer)[:length]), answer


@pytest.mark.skipif(core is None, reason="in pure Python a record never refers to the answer")
def test_a_kept_record_does_not_keep_a_large_answer() -> None:
    section, answer = kept_section(2_000_000)
    (record,) = decode_rows(section, TP, 0)
    section.data.release()
    answer.clear()  # A memoryview of it would refuse this.
    assert record.value == b"v"


@pytest.mark.skipif(core is None, reason="in pure Python a record never refers to the answer")
def test_a_record_of_a_small_answer_refers_to_it() -> None:
    section, answer = kept_section(1_000)
    (record,) = decode_rows(section, TP, 0)
    with pytest.raises(BufferError):
        answer.clear()
    assert record.value == b"v"
