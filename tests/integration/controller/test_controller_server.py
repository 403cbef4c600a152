"""Tests a controller in this process over real gRPC, as clients, brokers and coordinators see it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading

import grpc
import pytest
from grpc import aio

from klamm.errors import ErrorCode, KlammError
from klamm.model import GROUP_METADATA_TOPIC
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeTopicsRequest,
    NewTopic,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    ReplicaAssignment,
    WatchMetadataRequest,
)
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm_controller.config import ControllerConfig
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.server import ControllerServer
from klamm_server.config.server_config import load
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.net.listeners import plain_listeners
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.clock import SystemClock
from tests.support.raw_stub import RawStub
from tests.support.waiting import patience


class Running:
    """A started controller, and stubs to talk to it."""

    def __init__(self, server: ControllerServer, port: int, channel: aio.Channel) -> None:
        self.server = server
        self.port = port
        self.admin = RawStub(channel, ADMIN)
        self.nodes = RawStub(channel, CONTROLLER)

    async def add_broker(self, broker_id: int = 1) -> None:
        request = RegisterBrokerRequest(
            broker_id=broker_id,
            incarnation_id=random.randbytes(16),
            endpoint=Endpoint(host="localhost", port=9_000 + broker_id),
            log_dir_ids=[bytes([broker_id]) * 16],
        )
        epoch = (await self.nodes.register_broker(request)).epoch
        beat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, metadata_end_index=epoch + 1)
        assert not (await self.nodes.broker_heartbeat(beat)).fenced

    async def add_coordinator(self, coordinator_id: int = 1) -> int:
        request = RegisterCoordinatorRequest(
            coordinator_id=coordinator_id,
            incarnation_id=random.randbytes(16),
            endpoint=Endpoint(host="localhost", port=9_500),
        )
        epoch = (await self.nodes.register_coordinator(request)).epoch
        beat = CoordinatorHeartbeatRequest(
            coordinator_id=coordinator_id, coordinator_epoch=epoch, metadata_end_index=epoch + 1
        )
        assert not (await self.nodes.coordinator_heartbeat(beat)).fenced
        return epoch

    async def create(self, *names: str, **more: object) -> list[int]:
        topics = [NewTopic(name=name, partition_count=1, replication_factor=-1) for name in names]
        response = await self.admin.create_topics(CreateTopicsRequest(topics=topics, **more))
        return [topic.error_code for topic in response.topics]

    async def topics(self) -> list[str]:
        return [topic.name for topic in (await self.admin.describe_topics(DescribeTopicsRequest())).topics]

    async def end_index(self) -> int:
        return (await self.admin.describe_cluster(DescribeClusterRequest())).metadata_end_index


def config(directory, **properties: str) -> ControllerConfig:
    wanted = {"node.id": "1", "listeners": "GRPC://127.0.0.1:0", "metadata.log.dir": str(directory)}
    return load(ControllerConfig, {**wanted, **{name.replace("_", "."): text for name, text in properties.items()}})


@contextlib.asynccontextmanager
async def controller(directory, *, port: int = 0, started: bool = True, **properties: str):
    made = config(directory, **properties)
    server = ControllerServer(made)
    rpc = RpcServer(max_message_bytes=made.socket_request_max_bytes, max_concurrent_rpcs=1_000)
    try:
        await server.open()
        server.register(rpc)
        bound_port = await rpc.start("127.0.0.1", port)
        if started:
            await server.start(plain_listeners("127.0.0.1", bound_port))
        async with aio.insecure_channel(
            f"127.0.0.1:{bound_port}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            yield Running(server, bound_port, channel)
    finally:
        await server.stop()
        await rpc.stop(0)


def test_the_admin_api_end_to_end(tmp_path):
    async def run():
        async with controller(tmp_path) as running:
            assert await running.create("a") == [ErrorCode.INVALID_REPLICATION_FACTOR]
            await running.add_broker()
            assert await running.create("a", "b", "c c") == [0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION]
            assert await running.topics() == ["a", "b"]
            await running.admin.delete_topics(DeleteTopicsRequest(topics=["a"]))
            assert await running.topics() == ["b"]
            cluster = await running.admin.describe_cluster(DescribeClusterRequest())
            assert cluster.cluster_id == running.server.cluster_id
            assert cluster.controller_id == 1
            assert [(n.node_id, n.endpoint.port) for n in cluster.controllers] == [(1, running.port)]
            assert [(n.node_id, n.fenced) for n in cluster.brokers] == [(1, False)]

    asyncio.run(run())


def test_a_new_topic_without_numbers_gets_the_clusters_defaults(tmp_path):
    async def run():
        async with controller(tmp_path, num_partitions="3") as running:
            await running.add_broker()
            by_hand = NewTopic(name="b", assignments=[ReplicaAssignment(broker_ids=[1])])
            response = await running.admin.create_topics(CreateTopicsRequest(topics=[NewTopic(name="a"), by_hand]))
            assert [(topic.error_code, topic.partition_count) for topic in response.topics] == [(0, 3), (0, 1)]
            none = CreateTopicsRequest(topics=[NewTopic(name="c", partition_count=0)])
            assert (await running.admin.create_topics(none)).topics[0].error_code == ErrorCode.INVALID_PARTITIONS

    asyncio.run(run())


def test_a_server_that_has_not_started_answers_not_controller(tmp_path):
    async def run():
        async with controller(tmp_path, started=False) as running:
            response = await running.admin.create_topics(
                CreateTopicsRequest(topics=[NewTopic(name="a", partition_count=1, replication_factor=1)])
            )
            assert response.error_code == ErrorCode.NOT_CONTROLLER
            beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
            assert (await running.nodes.broker_heartbeat(beat)).error_code == ErrorCode.NOT_CONTROLLER

    asyncio.run(run())


def test_topics_and_the_cluster_id_survive_a_restart_of_the_controller(tmp_path):
    async def life(names):
        async with controller(tmp_path, metadata_log_max_record_bytes_between_snapshots="700") as running:
            before = await running.topics()
            await running.add_broker()
            for name in names:
                assert await running.create(name) == [0]
            return before, running.server.cluster_id, await running.end_index()

    first = [f"a{n}" for n in range(30)]
    second = [f"b{n}" for n in range(30)]
    before, cluster_id, end_index = asyncio.run(life(first))
    assert before == []
    again, same_cluster_id, later_index = asyncio.run(life(second))
    assert (again, same_cluster_id) == (sorted(first), cluster_id)
    assert later_index > end_index
    assert asyncio.run(life([]))[0] == sorted(first + second)


def test_a_data_directory_in_use_and_one_of_another_cluster_are_refused(tmp_path):
    async def run():
        async with controller(tmp_path):
            with pytest.raises(KlammError, match="in use by another process"):
                async with controller(tmp_path):
                    raise AssertionError("two controllers have one directory")
        with pytest.raises(KlammError, match=r"the controller has cluster\.id=other"):
            async with controller(tmp_path, cluster_id="other"):
                raise AssertionError("opened as another cluster")
        async with controller(tmp_path) as running:
            assert await running.topics() == []

    asyncio.run(run())


def test_the_group_topic_gets_its_shards_and_producer_ids_stay_unique_after_a_restart(tmp_path):
    async def life():
        async with controller(tmp_path) as running:
            await running.add_broker()
            epoch = await running.add_coordinator()
            await running.create(GROUP_METADATA_TOPIC)
            image = await current_image(running)
            assert len(image.topics_by_name[GROUP_METADATA_TOPIC].partitions) == 50
            assert {shard.coordinator_id for shard in image.shards.values()} == {1}
            assert len(image.shards) == 50
            request = AllocateProducerIdsRequest(coordinator_id=1, coordinator_epoch=epoch)
            block = await running.nodes.allocate_producer_ids(request)
            epochs = {shard.writer_epoch for shard in image.shards.values()}
            return set(range(block.first_producer_id, block.first_producer_id + block.count)), epochs

    first_block, first_epochs = asyncio.run(life())
    second_block, second_epochs = asyncio.run(life())
    assert not first_block & second_block
    assert min(second_epochs) > max(first_epochs)


async def current_image(running: Running) -> MetadataImage:
    """Returns the metadata image that a new watcher receives."""
    image = MetadataImage.empty()
    async for batch in running.nodes.watch_metadata(WatchMetadataRequest()):
        image = replay(image, batch.records, batch.end_index if batch.snapshot_end else 0)
        if batch.snapshot_end:
            break
    return image


def test_a_metadata_stream_continues_at_the_callers_index_or_begins_with_a_snapshot(tmp_path):
    async def run():
        async with controller(tmp_path) as running:
            await running.add_broker()
            index = await running.end_index()
            await running.create("a")
            watch = running.nodes.watch_metadata(WatchMetadataRequest(start_index=index))
            first = await watch.read()
            assert (first.base_index, first.snapshot_begin, len(first.records)) == (index, False, 2)
            await running.create("b")
            assert (await watch.read()).base_index == first.end_index
            watch.cancel()

            for nowhere in (index + 1, 10_000):
                watch = running.nodes.watch_metadata(WatchMetadataRequest(start_index=nowhere))
                assert (await watch.read()).snapshot_begin
                watch.cancel()

            refused = running.nodes.watch_metadata(WatchMetadataRequest(cluster_id="other"))
            with pytest.raises(aio.AioRpcError) as error:
                await refused.read()
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "other" in error.value.details()

    asyncio.run(run())


def test_metadata_links_miss_no_delta_over_snapshots_trimmed_tails_and_restarts(tmp_path):
    """One link follows from the start, others come and go.

    Because the tail is small, slow links begin from snapshots.
    """

    small = {"metadata_log_max_record_bytes_between_snapshots": "500", "metadata_log_tail_max_bytes": "300"}

    async def run():
        published: list[tuple[int, int]] = []

        async def on_image(old, new):
            published.append((old.end_index, new.end_index))

        link: MetadataLink | None = None
        task: asyncio.Task[None] | None = None
        names: list[str] = []
        port = 0
        for life in range(3):
            async with controller(tmp_path, port=port, **small) as running:
                port = running.port
                await running.add_broker()
                if link is None:
                    link = MetadataLink(
                        GrpcTransport(),
                        Controllers([("127.0.0.1", port)]),
                        cluster_id="",
                        on_image=on_image,
                        clock=SystemClock(),
                        rng=random.Random(1),
                    )
                    task = asyncio.create_task(link.run())
                for number in range(40):
                    names.append(f"t{life}-{number}")
                    assert await running.create(names[-1]) == [0]
                end_index = await running.end_index()
                image = await link.wait_for(lambda image, end=end_index: image.end_index >= end)
                assert sorted(image.topics_by_name) == sorted(names)
                assert image == await current_image(running)
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        assert all(old < new for old, new in published)
        assert [new for _, new in published[:-1]] == [old for old, _ in published[1:]]

    asyncio.run(run())


def test_a_request_that_cannot_commit_in_time_gets_request_timed_out(tmp_path, monkeypatch):
    held = threading.Event()
    write = RaftStore.write

    def slow_disk(self, persists):
        held.wait(30)
        write(self, persists)

    async def run():
        async with controller(tmp_path) as running:
            await running.add_broker()
            monkeypatch.setattr(RaftStore, "write", slow_disk)
            topics = [NewTopic(name="a", partition_count=1, replication_factor=1)]
            request = CreateTopicsRequest(topics=topics, timeout_ms=50)
            response = await running.admin.create_topics(request)
            assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert await running.topics() == [], "not seen before it is certain"
            held.set()
            assert await running.create("a") == [ErrorCode.TOPIC_ALREADY_EXISTS]
            assert await running.topics() == ["a"]

    asyncio.run(run())


def test_open_metadata_streams_do_not_delay_the_stop_of_the_controller(tmp_path):
    async def run():
        async with asyncio.timeout(patience()), contextlib.AsyncExitStack() as stack:
            running = await stack.enter_async_context(controller(tmp_path))
            watch = running.nodes.watch_metadata(WatchMetadataRequest())
            assert (await watch.read()).snapshot_begin
            await running.server.stop()
            assert await watch.read() is aio.EOF

    asyncio.run(run())
