"""Tests a broker's description of the cluster, and the topics that it creates on the way."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from klamm.errors import ErrorCode
from klamm.model import coordinator_shard
from klamm.wire.v1 import broker_pb2 as b
from klamm.wire.v1 import metadata_pb2 as m
from klamm.wire.v1.common_pb2 import Endpoint, TopicPartitions
from tests.support.broker_harness import (
    CLUSTER_ID,
    RunningBroker,
    ScriptedController,
    StartBroker,
    batch,
    config_record,
)


def test_a_metadata_response_describes_brokers_topics_and_partitions(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker(configs={"broker.rack": "r1"}) as (broker, controller):
            await controller.create_topic("trains")
            await controller.create_topic("flights", 2, replicas=(1, 2))
            await controller.change_leader("flights", 1, -1)
            await controller.create_topic("__consumer_offsets")
            await broker.wait_for_topic("__consumer_offsets")
            response = await broker.stub.metadata(b.MetadataRequest(all_topics=True))
            assert response.cluster_id == CLUSTER_ID
            [node] = response.brokers
            assert (node.node_id, node.endpoint.host, node.endpoint.port) == (1, "localhost", broker.port)
            assert [one.endpoint.host for one in response.controllers] == ["localhost"]
            internal, flights, trains = response.topics
            assert [topic.name for topic in response.topics] == ["__consumer_offsets", "flights", "trains"]
            assert (internal.internal, flights.internal, trains.topic_id) == (
                True,
                False,
                controller.topic_ids["trains"],
            )
            led, leaderless = flights.partitions
            assert (led.error_code, led.leader, led.leader_epoch, list(led.replicas)) == (0, 1, 0, [1, 2])
            assert list(led.offline_replicas) == [2]
            assert (leaderless.error_code, leaderless.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)

    asyncio.run(scenario())


async def codes(broker: RunningBroker, *topics: str, allow: bool = True) -> list[int]:
    request = b.MetadataRequest(topics=topics, allow_auto_topic_creation=allow)
    return [topic.error_code for topic in (await broker.stub.metadata(request)).topics]


def test_topics_are_created_on_first_use_when_both_sides_allow_it(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            assert await codes(broker, "flights", allow=False) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            invalid, meanwhile = await codes(broker, "no spaces", "flights")
            assert (invalid, meanwhile) == (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE)
            await broker.wait_for_topic("flights")
            assert [topic.name for topic in controller.created] == ["flights"]
            assert (await broker.produce("flights", batch(1))).error_code == 0

    asyncio.run(scenario())


def test_topics_are_not_created_when_the_broker_forbids_it(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker(configs={"auto.create.topics.enable": "false"}) as (broker, controller):
            assert await codes(broker, "flights") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert controller.created == []

    asyncio.run(scenario())


async def find(broker: RunningBroker, *groups: str, key_type: int = 0) -> list[b.FoundCoordinator]:
    request = b.FindCoordinatorRequest(key_type=key_type, keys=groups)
    return list((await broker.stub.find_coordinator(request)).coordinators)


async def add_coordinator(controller: ScriptedController, *, fenced: bool) -> None:
    record = m.RegisterCoordinatorRecord(
        coordinator_id=8, coordinator_epoch=1, endpoint=Endpoint(host="there", port=77), fenced=fenced
    )
    await controller.add(m.MetadataRecord(register_coordinator=record))


async def assign_shard(controller: ScriptedController, shard: int) -> None:
    record = m.ShardAssignmentRecord(
        topic="__consumer_offsets", shard=shard, coordinator_id=8, producer_id=1, writer_epoch=1
    )
    await controller.add(m.MetadataRecord(shard_assignment=record))


def test_find_coordinator_names_the_owner_of_the_groups_shard(start_broker: StartBroker) -> None:
    """The first use creates the internal topic. A shard without a live owner is not available."""

    async def scenario() -> None:
        async with start_broker(configs={"offsets.topic.num.partitions": "4"}) as (broker, controller):
            empty, first = await find(broker, "", "g1")
            assert (empty.error_code, first.error_code) == (
                ErrorCode.INVALID_GROUP_ID,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
            await broker.wait_for_topic("__consumer_offsets", 4)
            [created] = controller.created
            assert (created.partition_count, created.configs["cleanup.policy"]) == (4, "compact")
            await add_coordinator(controller, fenced=False)
            await assign_shard(controller, coordinator_shard("g1", 4))
            await controller.create_topic("later")
            await broker.wait_for_topic("later")
            other = next(f"x{n}" for n in range(99) if coordinator_shard(f"x{n}", 4) != coordinator_shard("g1", 4))
            found, missing = await find(broker, "g1", other)
            assert (found.error_code, found.node.node_id, found.node.endpoint.port) == (0, 8, 77)
            assert missing.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            [transactional] = await find(broker, "t1", key_type=1)
            assert transactional.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())


def test_log_dirs_are_described(start_broker: StartBroker, tmp_path: object) -> None:
    dirs = [f"{tmp_path}/a", f"{tmp_path}/b"]

    async def scenario() -> None:
        async with start_broker(configs={"log.dirs": ",".join(dirs)}) as (broker, controller):
            await controller.create_topic("flights", 2)
            await controller.create_topic("trains", 1)
            await broker.wait_for_topic("trains")
            await broker.produce("flights", batch(3), partition=1)
            described = (await broker.stub.describe_log_dirs(b.DescribeLogDirsRequest())).log_dirs
            assert [one.path for one in described] == dirs
            assert all(one.total_bytes >= one.usable_bytes > 0 for one in described)
            replicas = {
                (replica.topic, replica.partition): replica for log_dir in described for replica in log_dir.replicas
            }
            assert sorted(replicas) == [("flights", 0), ("flights", 1), ("trains", 0)]
            assert replicas["flights", 1].size_bytes == len(batch(3))
            assert replicas["flights", 1].log_end_offset == 3
            wanted = b.DescribeLogDirsRequest(topics=[TopicPartitions(topic="flights", partitions=[1])])
            described = (await broker.stub.describe_log_dirs(wanted)).log_dirs
            named = [(replica.topic, replica.partition) for log_dir in described for replica in log_dir.replicas]
            assert named == [("flights", 1)]

    asyncio.run(scenario())


def test_topic_configs_change_at_run_time(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker(configs={"message.max.bytes": "2000"}) as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            large = batch(1, value=bytes(3_000))
            assert (await broker.produce("flights", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
            await controller.add(config_record("flights", "max.message.bytes", "4000"))
            await controller.create_topic("later")
            await broker.wait_for_topic("later")
            assert (await broker.produce("flights", large)).error_code == 0
            assert (await broker.produce("later", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
            every_broker = m.ConfigRecord(
                resource_type=m.CONFIG_RESOURCE_TYPE_BROKER, name="message.max.bytes", value="5000"
            )
            await controller.add(m.MetadataRecord(config=every_broker))
            await controller.create_topic("last")
            await broker.wait_for_topic("last")
            assert (await broker.produce("later", large)).error_code == 0

    asyncio.run(scenario())


def test_calls_before_the_broker_is_ready_are_unavailable(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, _):
            broker.server._servicer.is_open = False
            stream = broker.stub.fetch_stream(b.FetchRequest(replica_id=-1))
            for call in (broker.stub.metadata(b.MetadataRequest()), stream.read()):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(scenario())


def test_producer_ids_come_in_blocks_from_the_controller(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            controller.producer_id_errors = [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]
            refused = await broker.stub.init_producer_id(b.InitProducerIdRequest(client_id="c"))
            assert (refused.error_code, refused.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            assert "STALE_BROKER_EPOCH" in refused.error_message
            given = [await broker.stub.init_producer_id(b.InitProducerIdRequest()) for _ in range(3)]
            assert [(one.error_code, one.producer_id, one.producer_epoch) for one in given] == [
                (0, 10, 0),
                (0, 11, 0),
                (0, 20, 0),
            ]

    asyncio.run(scenario())
