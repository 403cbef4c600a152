"""Tests the answers to produces that wait: for other replicas, or for checks on a thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.records.compression import CompressionType
from klamm.records.encoder import encode_batch
from klamm_broker.handlers.produce import PartitionRecords, Produce, Produced
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX
from klamm_broker.log.log_config import LOG_APPEND_TIME
from klamm_broker.log.segment.check_budget import LATE_NS, CheckBudget
from klamm_server.metadata.entities import NO_LEADER
from klamm_server.runtime.waiting import Waiting
from tests.support.led_partition import NAME, OTHER, LedPartition, led_by
from tests.support.waiting import patience


async def produce_while_the_leader_becomes(leader: int, tmp_path: Path) -> Produced:
    broker = LedPartition(tmp_path)
    answers = broker.produce(encode_batch([(0, None, b"v", ())]))
    assert isinstance(answers, Waiting)
    answering = asyncio.create_task(answers.work)
    await asyncio.sleep(0)
    assert len(broker.produces) == 1
    broker.replicas.apply(broker.partition, led_by(leader, 2))
    answer = (await answering)[0]
    broker.close()
    return answer


def test_a_produce_whose_partition_moved_is_answered_with_the_new_leader(tmp_path: Path) -> None:
    """The replica knows the leader before the image that requests see.

    That image waits for logs of other partitions.
    """
    answer = asyncio.run(produce_while_the_leader_becomes(OTHER, tmp_path))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader, answer.current_leader_epoch) == (OTHER, 2)
    assert answer.base_offset == -1


def test_a_produce_whose_partition_has_no_leader_is_answered_without_a_leader(tmp_path: Path) -> None:
    answer = asyncio.run(produce_while_the_leader_becomes(NO_LEADER, tmp_path))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader, answer.current_leader_epoch) == (-1, -1)


async def produce_to_many_partitions(tmp_path: Path) -> tuple[list[Produced], int, int]:
    """Sends one record to a partition that this broker leads, after thousands that it does not have. Returns the
    answers, the turns of the event loop that they took, and the log's end offset."""
    broker = LedPartition(tmp_path)
    batch = memoryview(few())
    elsewhere = [PartitionRecords(TopicPartition("elsewhere", number), batch) for number in range(PARTITIONS)]
    answering = broker.handler.serve(Produce(1, 60_000, "", [*elsewhere, PartitionRecords(NAME, batch)]))
    assert isinstance(answering, Waiting)
    turns = 0
    task = asyncio.create_task(answering.work)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    broker.close()
    return task.result(), turns, broker.partition.log.log_end_offset


PARTITIONS = 5 * TURN_PARTITIONS_MAX


def test_a_produce_to_many_partitions_lets_other_work_run_in_between(tmp_path: Path) -> None:
    answers, turns, end_offset = asyncio.run(produce_to_many_partitions(tmp_path))
    assert turns >= PARTITIONS / TURN_PARTITIONS_MAX
    assert {answer.error_code for answer in answers[:-1]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [answer.topic_partition.partition for answer in answers[:-1]] == list(range(PARTITIONS))
    assert (answers[-1].topic_partition, answers[-1].base_offset, end_offset) == (NAME, 0, 1)


SLOW = TopicPartition("t", 1)
MANY = 100_000
"""The number of records that are too many for the event loop."""


def many(**options: Any) -> bytes:
    return encode_batch([(0, b"k", b"v", ())] * MANY, compression=CompressionType.ZSTD, **options)


def few(**options: Any) -> bytes:
    return encode_batch([(0, b"k", b"v", ())], **options)


class TestManyRecords:
    """The records are checked on a thread, and everything else is as with few records."""

    def run(self, directory: Path, *batches: bytes, acks: int = 1, **config: Any) -> list[list[Produced]]:
        """Returns the answers to one request for each batch. No request waits for the answers before it."""

        async def produce_all() -> list[list[Produced]]:
            broker = LedPartition(directory, **config)
            waiting = [broker.produce(batch, acks) for batch in batches]
            assert not isinstance(waiting[0], list)
            answers = [one if isinstance(one, list) else await one for one in waiting]
            self.end_offset = broker.partition.log.log_end_offset
            broker.close()
            return answers

        return asyncio.run(produce_all())

    def test_they_are_appended_before_what_is_sent_after_them(self, tmp_path: Path) -> None:
        fields = {"producer_id": 7, "producer_epoch": 0}
        first, second, third = (
            many(base_sequence=0, **fields),
            few(base_sequence=MANY, **fields),
            few(base_sequence=MANY + 1, **fields),
        )
        answers = self.run(tmp_path, first, second, third)
        assert [(answer.error_code, answer.base_offset) for [answer] in answers] == [
            (ErrorCode.NONE, 0),
            (ErrorCode.NONE, MANY),
            (ErrorCode.NONE, MANY + 1),
        ]

    def test_they_wait_for_no_other_partition_of_their_request(self, tmp_path: Path) -> None:
        """The records of the second partition are checked before those of the first, and appended then."""

        async def produce() -> tuple[list[Produced], Produced]:
            broker = LedPartition(tmp_path)
            go_on = threading.Event()
            broker.lead(SLOW)

            def wait(budget: CheckBudget) -> None:
                budget.take(LATE_NS + 1)
                assert go_on.wait(patience())

            waiting = broker.thread.begin(wait, SLOW)
            parts = [PartitionRecords(name, memoryview(many())) for name in (SLOW, NAME)]
            both, one = broker.handler.serve(Produce(1, 60_000, "", parts)), broker.produce(few(), 1)
            assert not isinstance(both, list)
            assert not isinstance(one, list)
            answering = asyncio.ensure_future(both)
            [after] = await one
            assert not answering.done()
            go_on.set()
            await waiting
            answers = await answering
            broker.close()
            return answers, after

        answers, after = asyncio.run(produce())
        assert [answer.base_offset for answer in answers] == [0, 0]
        assert after.base_offset == MANY

    def test_they_are_refused_with_the_same_error(self, tmp_path: Path) -> None:
        no_keys = encode_batch([(0, None, b"v", ())] * MANY, compression=CompressionType.ZSTD)
        [[answer], [after]] = self.run(tmp_path, no_keys, few(), cleanup_policy=("compact",))
        assert answer.error_code is ErrorCode.INVALID_RECORD
        assert answer.record_errors[0].batch_index == 0
        assert after.base_offset == 0

    def test_acks_0_has_no_answer(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, many(), acks=0) == [[]]
        assert self.end_offset == MANY

    def test_the_answer_has_the_timestamp_that_the_records_have(self, tmp_path: Path) -> None:
        [[answer]] = self.run(tmp_path, many(), message_timestamp_type=LOG_APPEND_TIME, compression_type="gzip")
        assert answer.log_append_time_ms > 0
