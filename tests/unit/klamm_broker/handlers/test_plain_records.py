"""Tests how plain records become batches, and how the answers for partitions become those for records."""

from __future__ import annotations

import random

import pytest

from klamm.errors import ErrorCode, RecordError
from klamm.model import TopicPartition
from klamm.partitioner import key_partition
from klamm.records import decode_batch, iter_headers
from klamm_broker.handlers.plain_records import (
    BATCH_BYTES_MAX,
    RecordOutcome,
    Spread,
    invalid_records,
    outcomes_of,
    place,
)
from klamm_broker.handlers.produce import Produced

TOPIC = "flights"
SPREAD = Spread(6, (1, 3))


def record(key=b"k", value=b"v", headers=(), timestamp_ms=1_000):
    return (timestamp_ms, key, value, headers)


def placed(records, spread=SPREAD, *, seed=1, max_message_bytes=BATCH_BYTES_MAX):
    return place(records, spread, random.Random(seed), max_message_bytes=max_message_bytes)


def contents(part):
    """Returns the records of a partition's batches, as they were given."""
    found = []
    for position, header in iter_headers(part.batches):
        data = part.batches[position : position + header.size_bytes]
        found += [(each.timestamp_ms, each.key, each.value, each.headers) for each in decode_batch(data)]
    return found


def outcomes(records, parts, *answers, max_message_bytes=BATCH_BYTES_MAX):
    by_name = {answer.topic_partition: answer for answer in answers}
    return outcomes_of(records, parts, by_name, TOPIC, max_message_bytes=max_message_bytes)


def test_a_record_with_a_key_goes_where_kafkas_clients_send_it():
    records = [record(b"key-%d" % number) for number in range(100)]
    for part in placed(records):
        assert {key_partition(records[number][1], 6) for number in part.indexes} == {part.partition}
        assert contents(part) == [records[number] for number in part.indexes]


def test_an_empty_key_is_a_key():
    assert [part.partition for part in placed([record(b"")])] == [key_partition(b"", 6)]


def test_records_without_a_key_go_to_one_partition_that_this_broker_leads():
    chosen = set()
    for seed in range(50):
        (part,) = placed([record(None)] * 20, seed=seed)
        assert list(part.indexes) == list(range(20))
        chosen.add(part.partition)
    assert chosen == {1, 3}


def test_a_broker_that_leads_none_of_the_partitions_chooses_any():
    chosen = {placed([record(None)], Spread(3, ()), seed=seed)[0].partition for seed in range(50)}
    assert chosen == {0, 1, 2}


def test_a_named_partition_gets_all_records():
    (part,) = placed([record(b"a"), record(None), record(b"b")], SPREAD._replace(named=5))
    assert (part.partition, list(part.indexes)) == (5, [0, 1, 2])


def test_null_and_empty_values_stay_different():
    records = [record(value=None), record(value=b""), record(headers=(("h", None), ("h", b"")))]
    (part,) = placed(records)
    assert contents(part) == records


def test_batches_are_as_large_as_the_topic_allows_and_a_larger_record_has_its_own():
    records = [record(value=bytes(300)) for _ in range(10)] + [record(value=bytes(2_000)), record()]
    (part,) = placed(records, max_message_bytes=1_000)
    sizes = [(header.size_bytes, header.record_count) for _, header in iter_headers(part.batches)]
    assert [count for _, count in sizes] == [2, 2, 2, 2, 2, 1, 1]
    assert [size for size, _ in sizes if size > 1_000] == [sizes[5][0]]
    assert contents(part) == records


def test_no_batch_of_several_records_is_larger_than_a_mebibyte():
    (part,) = placed([record(value=bytes(400_000))] * 5, max_message_bytes=10**9)
    assert [header.record_count for _, header in iter_headers(part.batches)] == [2, 2, 1]


def test_valid_records_have_no_outcome_yet():
    assert invalid_records([record(), record(None, None), record(headers=(("h", None),), timestamp_ms=0)]) == []


@pytest.mark.parametrize(
    ("bad", "code", "text"),
    [
        (record(headers=(("h", b""), ("", b"x"))), ErrorCode.INVALID_RECORD, "header 1 has no key"),
        (record(timestamp_ms=-1), ErrorCode.INVALID_TIMESTAMP, "timestamp_ms=-1; expected milliseconds"),
    ],
)
def test_an_invalid_record_is_named_and_the_others_are_not_appended(bad, code, text):
    first, second, third = invalid_records([record(), bad, record()])
    assert (second.error_code, second.partition, second.offset) == (code, -1, -1)
    assert text in second.error_message
    assert first == third
    assert first.error_code == ErrorCode.INVALID_RECORD
    assert "none of them was appended" in first.error_message


def test_the_offsets_of_records_follow_from_those_of_their_partitions():
    records = [record(b"key-%d" % number) for number in range(20)]
    parts = placed(records)
    answers = [
        Produced(TopicPartition(TOPIC, part.partition), base_offset=100 * part.partition, log_append_time_ms=7)
        for part in parts
    ]
    found = outcomes(records, parts, *answers)
    for part in parts:
        mine = [found[number] for number in part.indexes]
        assert [each.offset for each in mine] == [100 * part.partition + place for place in range(len(mine))]
        assert {(each.partition, each.error_code, each.log_append_time_ms) for each in mine} == {(part.partition, 0, 7)}


def test_a_partition_without_an_answer_was_written_without_acknowledgement():
    assert outcomes([record()], placed([record()], Spread(1, (0,)))) == [RecordOutcome(0)]


def test_an_error_of_a_partition_is_that_of_its_records_only():
    records = [record(b"key-%d" % number) for number in range(20)]
    parts = placed(records)
    bad, *good = (Produced(TopicPartition(TOPIC, part.partition), base_offset=0) for part in parts)
    bad = bad._replace(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message="no", base_offset=-1, current_leader=4
    )
    found = outcomes(records, parts, bad, *good)
    refused = [number for number, one in enumerate(found) if one.error_code]
    assert refused == list(parts[0].indexes)
    assert found[refused[0]] == RecordOutcome(
        parts[0].partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, "no", current_leader=4
    )


def test_records_that_the_append_names_have_the_error_and_the_others_are_valid():
    records = [record()] * 3
    parts = placed(records, Spread(1, (0,)))
    answer = Produced(
        TopicPartition(TOPIC, 0), ErrorCode.INVALID_TIMESTAMP, "batch", record_errors=[RecordError(1, "too late")]
    )
    found = outcomes(records, parts, answer)
    assert [one.error_code for one in found] == [
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    ]
    assert found[1].error_message == "too late"


def test_the_records_that_are_too_large_are_named():
    records = [record(), record(value=bytes(2_000)), record()]
    parts = placed(records, Spread(1, (0,)), max_message_bytes=1_000)
    answer = Produced(TopicPartition(TOPIC, 0), ErrorCode.MESSAGE_TOO_LARGE, "a batch has 2100 bytes")
    found = outcomes(records, parts, answer, max_message_bytes=1_000)
    assert [one.error_code for one in found] == [
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
    ]
