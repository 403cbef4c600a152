"""Tests where a stream of fetches continues, and how a Fetch message describes a partition."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.grpc.fetch import _advanced, next_offset
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_broker.messages.fetch import encode
from klamm_broker.replica.fetch_reader import FetchCursor, LocatedFetch, PartitionAnswer
from klamm_broker.replica.follower_partition import LogEpochEnd


def batch(base_offset: int, count: int) -> bytes:
    records = bytearray(encode_batch([(0, None, b"v", ())] * count))
    records[:8] = base_offset.to_bytes(8, "big")
    return bytes(records)


def answer(partition: int, **fields: object) -> PartitionAnswer:
    return PartitionAnswer(TopicPartition("t", partition), 10, 9, 1, **fields)


def test_the_next_offset_follows_the_last_batch() -> None:
    assert next_offset(batch(5, 3)) == 8
    assert next_offset(memoryview(batch(5, 3) + batch(8, 1) + batch(20, 2))) == 22


def test_a_fetch_stream_drops_failed_partitions_and_reads_the_served_ones_last() -> None:
    cursors = [FetchCursor(TopicPartition("t", number), 5, 100, last_fetched_epoch=1) for number in range(4)]
    answers = [
        answer(0, records_bytes=9),
        answer(1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        answer(2),
        answer(3, diverging=LogEpochEnd(1, 4)),
    ]
    found = LocatedFetch(answers=answers, slices=[], awaited=[], size_bytes=9, errors=[])
    waiting, served = _advanced(cursors, found, [batch(5, 3)])
    assert (waiting.topic_partition.partition, waiting.offset, waiting.last_fetched_epoch) == (2, 5, 1)
    assert (served.topic_partition.partition, served.offset) == (0, 8)
    assert served.last_fetched_epoch == NO_LEADER_EPOCH


def test_every_field_of_a_partition_answer_is_in_the_fetch_message() -> None:
    told = encode(
        answer(
            3,
            error_code=ErrorCode.FENCED_LEADER_EPOCH,
            error_message="no",
            records_bytes=7,
            aborted_transactions=[AbortedTransaction(11, 120, 130, 150)],
            diverging=LogEpochEnd(4, 40),
            preferred_read_replica=2,
            current_leader=5,
            current_leader_epoch=6,
        )
    )
    assert (told.topic, told.partition, told.error_code, told.error_message) == ("t", 3, 74, "no")
    assert (told.high_watermark, told.last_stable_offset, told.log_start_offset, told.records_bytes) == (10, 9, 1, 7)
    assert [
        (aborted_transaction.producer_id, aborted_transaction.first_offset)
        for aborted_transaction in told.aborted_transactions
    ] == [(11, 120)]
    assert (told.diverging.epoch, told.diverging.end_offset) == (4, 40)
    assert (told.preferred_read_replica, told.current_leader, told.current_leader_epoch) == (2, 5, 6)
    plain = encode(answer(3))
    assert not plain.HasField("diverging")
    assert not plain.HasField("preferred_read_replica")
