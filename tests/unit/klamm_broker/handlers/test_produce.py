"""Tests the answer to a produce whose partition moves while it waits for the other replicas."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.handlers.produce import ACKS_ALL, PartitionRecords, Produce, Produced, ProduceHandler
from klamm_broker.handlers.transaction_guards import TransactionGuards
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.leadership import IsrChange
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metadata.entities import NO_LEADER, PartitionImage
from klamm_server.runtime.clock import SystemClock
from tests.support.log_steps import create_log, open_logs

NAME = TopicPartition("t", 0)
TOPIC_ID = TopicId(uuid.UUID(int=7))
THIS, OTHER = 1, 2


class Observer:
    """An observer that wakes parked produces, as the broker does."""

    def __init__(self, produces: PurgatoryDriver) -> None:
        self._produces = produces

    def on_change(self, topic_partition: TopicPartition) -> None:
        self._produces.check_and_complete(topic_partition)

    def on_append(self, topic_partition: TopicPartition) -> None:
        pass

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        pass

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        pass

    def on_role(self, partition: Partition) -> None:
        pass

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_disk_full(self, log_dir: LogDir) -> None:
        pass


def state(leader: int, leader_epoch: int) -> PartitionImage:
    return PartitionImage(
        partition=0,
        replicas=(THIS, OTHER),
        isr=(THIS, OTHER),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=leader_epoch,
    )


async def no_coordinator(*_: object) -> dict[TopicPartition, BrokerError]:
    raise AssertionError("there is no transaction")


async def produce_while_the_leader_becomes(leader: int, tmp_path: Path) -> Produced:
    clock = SystemClock()
    produces = PurgatoryDriver(max_parked=10, clock=clock)
    replicas = ReplicaManager(broker_id=THIS, clock=clock, observer=Observer(produces))
    logs = open_logs(tmp_path, node_id=THIS)
    partition = Partition(
        NAME,
        create_log(logs, NAME, TOPIC_ID, LogConfig()),
        topic_id=TOPIC_ID,
        broker_id=THIS,
        high_watermark=0,
        brokers=replicas.brokers,
        lag_time_max_ms=1_000,
    )
    replicas.host(partition)
    replicas.apply(partition, state(THIS, 1))
    records = PartitionRecords(NAME, memoryview(encode_batch([(0, None, b"v", ())])))
    handler = ProduceHandler(replicas, produces, TransactionGuards(replicas, no_coordinator))
    answers = handler.serve(Produce(ACKS_ALL, 60_000, "", [records]))
    assert not isinstance(answers, list)
    answering = asyncio.create_task(answers)
    await asyncio.sleep(0)
    assert len(produces) == 1
    replicas.apply(partition, state(leader, 2))
    answer = (await answering)[0]
    produces.close()
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
