"""Tests the streams of a broker: one stream while any partition is placed there, even if its fetcher skips it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm.rpc.grpc_transport import GrpcTransport
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.replica.follower_partition import FollowerUpdate
from klamm_broker.replica.follower_session import FetchBounds
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replication_quota import ReplicationQuota
from klamm_broker.replication.replica_fetcher import ReplicaFetcher, ReplicaFetchers
from klamm_server.metadata.entities import PartitionImage
from klamm_server.runtime.clock import SystemClock
from tests.support.log_steps import create_log, open_logs

TOPIC_ID = TopicId(uuid.UUID(int=7))
FOLLOWER, LEADER, OTHER = 1, 2, 3


class Surroundings:
    """A cluster without addresses of brokers, so that no fetcher connects."""

    broker_epoch = 1

    def address(self, broker_id: int) -> tuple[str, int] | None:
        return None

    def kafka_listener(self, broker_id: int) -> None:
        return None

    def next_session_id(self) -> int:
        return 1

    def on_update(self, partition: Partition, update: FollowerUpdate) -> None:
        raise AssertionError(partition)


class BrokerEpochs:
    def broker_epoch(self, broker_id: int) -> int:
        return broker_id

    def is_eligible(self, broker_id: int) -> bool:
        return True


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = open_logs(tmp_path)
    yield manager
    manager.close(broker_epoch=1)


class Fetching:
    """One stream to each leader, and the fetchers made for them."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self.made: list[ReplicaFetcher] = []
        self.fetchers = ReplicaFetchers(self._make, streams_per_leader=1, watch=lambda task: task)

    def _make(self, leader: int) -> ReplicaFetcher:
        fetcher = ReplicaFetcher(
            GrpcTransport(),
            broker_id=FOLLOWER,
            leader=leader,
            ports=Surroundings(),
            bounds=FetchBounds(max_wait_ms=500, min_bytes=1, max_bytes=1_000, partition_max_bytes=1_000),
            quota=ReplicationQuota(),
            backoff_ms=1_000,
            receive_max_bytes=1_000,
            clock=SystemClock(),
            rng=random.Random(1),
        )
        self.made.append(fetcher)
        return fetcher

    def partition(self, number: int, config: LogConfig | None = None) -> Partition:
        name = TopicPartition("flights", number)
        return Partition(
            name,
            create_log(self._logs, name, TOPIC_ID, config or LogConfig()),
            topic_id=TOPIC_ID,
            broker_id=FOLLOWER,
            high_watermark=0,
            brokers=BrokerEpochs(),
            lag_time_max_ms=1_000,
        )

    def elect(self, partition: Partition, leader: int, leader_epoch: int) -> None:
        image = PartitionImage(
            partition=partition.topic_partition.partition,
            replicas=(FOLLOWER, LEADER, OTHER),
            isr=(FOLLOWER, LEADER, OTHER),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
        )
        partition.apply(image, now_ms=0)
        self.fetchers.on_role(partition)


def test_a_stream_lasts_while_any_partition_follows_that_leader(logs: LogManager) -> None:
    async def scenario() -> None:
        fetching = Fetching(logs)
        first, second = fetching.partition(0), fetching.partition(1)
        fetching.elect(first, LEADER, 0)
        fetching.elect(second, LEADER, 0)
        assert len(fetching.fetchers) == 1
        fetching.elect(first, OTHER, 1)
        assert len(fetching.fetchers) == 2
        fetching.elect(second, OTHER, 1)
        assert len(fetching.fetchers) == 1
        fetching.elect(first, FOLLOWER, 2)
        fetching.elect(second, FOLLOWER, 2)
        assert len(fetching.fetchers) == 0
        await fetching.fetchers.close()

    asyncio.run(scenario())


def test_a_former_leader_syncs_its_records_before_it_follows(logs: LogManager) -> None:
    """Its first fetch tells the new leader that it has them."""

    async def scenario() -> None:
        fetching = Fetching(logs)
        partition = fetching.partition(0, LogConfig(flush_messages=1))
        fetching.elect(partition, FOLLOWER, 0)
        partition.append(ClientAppend(memoryview(encode_batch([(0, None, b"v", ())]))), now_ms=0)
        assert partition.log.flusher.owes_sync
        fetching.elect(partition, LEADER, 1)
        assert partition.log.flusher.synced_offset == 1
        await fetching.fetchers.close()

    asyncio.run(scenario())


def test_a_changed_number_of_fetchers_restarts_all_fetch_streams(logs: LogManager) -> None:
    """An existing stream would be refused for a moved partition, because its session is older."""

    async def scenario() -> None:
        fetching = Fetching(logs)
        partitions = [fetching.partition(number) for number in range(4)]
        for partition in partitions:
            fetching.elect(partition, LEADER, 0)
        (before,) = fetching.made
        fetching.fetchers.resize(1, partitions)
        assert fetching.made == [before]
        fetching.fetchers.resize(2, partitions)
        assert len(fetching.fetchers) == 2
        assert len(fetching.made) == 3
        fetching.fetchers.resize(1, partitions)
        assert len(fetching.fetchers) == 1
        assert len(fetching.made) == 4
        for partition in partitions:
            fetching.elect(partition, FOLLOWER, 1)
        assert len(fetching.fetchers) == 0
        await fetching.fetchers.close()

    asyncio.run(scenario())


def test_a_partition_that_its_fetcher_skips_still_counts_for_its_fetch_stream(logs: LogManager) -> None:
    """A fetcher skips a partition after its leader's permanent refusal. Newer metadata then moves the partition."""

    async def scenario() -> None:
        fetching = Fetching(logs)
        refused, other = fetching.partition(0), fetching.partition(1)
        fetching.elect(refused, LEADER, 0)
        fetching.elect(other, LEADER, 0)
        fetching.made[0].unfollow(refused)
        fetching.elect(other, OTHER, 1)
        assert len(fetching.fetchers) == 2
        fetching.elect(refused, OTHER, 1)
        assert len(fetching.fetchers) == 1
        await fetching.fetchers.close()

    asyncio.run(scenario())
