"""A real broker on real log dirs, over real gRPC, with a controller that follows a script.

The scripted controller keeps a list of metadata records and streams it. It decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from grpc import aio

from klamm.records.encoder import encode_batch
from klamm.wire.framed import decode_framed, encode_framed, split_records
from klamm.wire.v1 import broker_pb2 as b
from klamm.wire.v1 import controller_pb2 as c
from klamm.wire.v1 import metadata_pb2 as m
from klamm.wire.v1.broker_rpc import BROKER
from klamm_broker.server import BrokerServer
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.disk import Disk
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.raw_stub import RawStub
from tests.support.waiting import until

CLUSTER_ID = "c0ffeec0ffeec0ffeec0ff"
MESSAGE_BYTES_MAX = 8 * 1024**2
LONG_MS = 3_600_000
"""An hour, which is longer than pytest's time-out. A test whose request waits for this time fails unless an event wakes
the request."""


class ScriptedController:
    """Serves Controller and Admin from a list of records that only grows."""

    def __init__(self, cluster_id: str = CLUSTER_ID) -> None:
        self.records = [m.MetadataRecord(cluster=m.ClusterRecord(cluster_id=cluster_id))]
        self.topic_ids: dict[str, bytes] = {}
        self.heartbeats: list[c.BrokerHeartbeatRequest] = []
        self.registrations: list[c.RegisterBrokerRequest] = []
        self.created: list[c.NewTopic] = []
        self.isr_changes: list[c.IsrChange] = []
        self.offline_replicas: set[tuple[bytes, int]] = set()
        self.resigned_replicas: set[tuple[bytes, int]] = set()
        self.producer_id_errors: list[int] = []
        """The errors for the next requests for producer ids. After these, each block has two ids, from 10, 20 ...
        on."""
        self.producer_id_blocks = 0
        self._grown = asyncio.Condition()
        self._cluster_id = cluster_id
        self._unfenced: set[int] = set()

    async def add(self, *records: m.MetadataRecord) -> None:
        async with self._grown:
            self.records += records
            self._grown.notify_all()

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        leader: int = 1,
        replicas: Sequence[int] = (1,),
        isr: Sequence[int] | None = None,
    ) -> None:
        topic_id = self.topic_ids[name] = uuid.uuid4().bytes
        records = [m.MetadataRecord(topic=m.TopicRecord(name=name, topic_id=topic_id))]
        for number in range(partitions):
            partition = m.PartitionRecord(
                topic_id=topic_id,
                partition=number,
                replicas=replicas,
                isr=replicas if isr is None else isr,
                leader=leader,
            )
            records.append(m.MetadataRecord(partition=partition))
        for key, value in (configs or {}).items():
            records.append(config_record(name, key, value))
        await self.add(*records)

    async def delete_topic(self, name: str) -> None:
        await self.add(m.MetadataRecord(remove_topic=m.RemoveTopicRecord(topic_id=self.topic_ids.pop(name))))

    async def change_leader(self, name: str, partition: int, leader: int) -> None:
        change = m.PartitionChangeRecord(topic_id=self.topic_ids[name], partition=partition, leader=leader)
        await self.add(m.MetadataRecord(partition_change=change))

    async def change_isr(self, name: str, partition: int, isr: Sequence[int]) -> None:
        change = m.PartitionChangeRecord(
            topic_id=self.topic_ids[name], partition=partition, isr=m.BrokerIds(broker_ids=isr)
        )
        await self.add(m.MetadataRecord(partition_change=change))

    # Controller

    async def register_broker(self, request: c.RegisterBrokerRequest, context: Any) -> c.RegisterResponse:
        self.registrations.append(request)
        epoch = len(self.records)
        record = m.RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            endpoint=request.endpoint,
            fenced=True,
            log_dir_ids=request.log_dir_ids,
        )
        await self.add(m.MetadataRecord(register_broker=record))
        return c.RegisterResponse(epoch=epoch, cluster_id=self._cluster_id)

    async def broker_heartbeat(self, request: c.BrokerHeartbeatRequest, context: Any) -> c.HeartbeatResponse:
        self.heartbeats.append(request)
        epoch = request.broker_epoch
        if request.metadata_end_index > epoch and epoch not in self._unfenced:
            self._unfenced.add(epoch)
            change = m.BrokerChangeRecord(broker_id=request.broker_id, broker_epoch=epoch, fenced=False)
            await self.add(m.MetadataRecord(broker_change=change))
        return c.HeartbeatResponse(should_shutdown=request.want_shutdown)

    async def hold_session(self, request: c.HoldSessionRequest, context: Any) -> AsyncIterator[c.HoldSessionResponse]:
        yield c.HoldSessionResponse()
        await asyncio.Event().wait()

    async def watch_metadata(self, request: c.WatchMetadataRequest, context: Any) -> AsyncIterator[m.MetadataBatch]:
        sent = request.start_index
        while True:
            async with self._grown:
                while len(self.records) <= sent:
                    await self._grown.wait()
                records = self.records[sent:]
            yield m.MetadataBatch(base_index=sent, end_index=sent + len(records), records=records)
            sent += len(records)

    async def alter_partition(self, request: c.AlterPartitionRequest, context: Any) -> c.AlterPartitionResponse:
        """Grants every change, and reports it to no other broker."""
        self.isr_changes += request.partitions
        granted = [
            c.AlteredPartition(
                topic_id=change.topic_id,
                partition=change.partition,
                leader=request.broker_id,
                leader_epoch=change.leader_epoch,
                isr=[member.broker_id for member in change.new_isr],
                partition_epoch=change.partition_epoch + 1,
            )
            for change in request.partitions
        ]
        return c.AlterPartitionResponse(partitions=granted)

    async def report_offline_replicas(
        self, request: c.ReportOfflineReplicasRequest, context: Any
    ) -> c.ReportOfflineReplicasResponse:
        self.offline_replicas |= {(topic.topic_id, number) for topic in request.topics for number in topic.partitions}
        return c.ReportOfflineReplicasResponse()

    async def resign_replicas(self, request: c.ResignReplicasRequest, context: Any) -> c.ResignReplicasResponse:
        self.resigned_replicas |= {(topic.topic_id, n) for topic in request.resigned for n in topic.partitions}
        self.resigned_replicas -= {(topic.topic_id, n) for topic in request.resumed for n in topic.partitions}
        return c.ResignReplicasResponse()

    async def register_coordinator(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def coordinator_heartbeat(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def allocate_producer_ids(self, request: Any, context: Any) -> c.AllocateProducerIdsResponse:
        assert request.broker_epoch > 0, request
        if self.producer_id_errors:
            return c.AllocateProducerIdsResponse(error_code=self.producer_id_errors.pop(0))
        self.producer_id_blocks += 1
        return c.AllocateProducerIdsResponse(first_producer_id=10 * self.producer_id_blocks, count=2)

    # Admin

    async def create_topics(self, request: c.CreateTopicsRequest, context: Any) -> c.CreateTopicsResponse:
        self.created += request.topics
        for topic in request.topics:
            await self.create_topic(topic.name, max(1, topic.partition_count), configs=topic.configs)
        return c.CreateTopicsResponse(topics=[c.CreatedTopic(name=topic.name) for topic in request.topics])

    def __getattr__(self, name: str) -> Any:
        """Returns a method that fails its caller. It stands for the methods of Admin that a broker must not call."""
        if name.startswith("_"):
            raise AttributeError(name)

        async def unexpected(request: Any, context: Any) -> Any:
            raise NotImplementedError(name)

        return unexpected


def config_record(topic: str, name: str, value: str) -> m.MetadataRecord:
    return m.MetadataRecord(
        config=m.ConfigRecord(resource_type=m.CONFIG_RESOURCE_TYPE_TOPIC, resource_name=topic, name=name, value=value)
    )


class RunningBroker:
    """A broker that serves, and a stub for it."""

    def __init__(self, server: BrokerServer, rpc: RpcServer, port: int) -> None:
        self.server = server
        self.port = port
        self._rpc = rpc
        self.channel = aio.insecure_channel(
            f"localhost:{port}",
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
        )
        self.stub = RawStub(self.channel, BROKER)

    async def stop(self) -> None:
        await self.server.stop()
        await self._rpc.stop(1.0)
        await self.channel.close()

    @contextlib.asynccontextmanager
    async def another_connection(self) -> AsyncIterator[RawStub]:
        """Yields a stub with a connection of its own. Otherwise gRPC shares connections between channels."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(f"localhost:{self.port}", options=options) as channel:
            yield RawStub(channel, BROKER)

    # What most tests ask for

    async def produce(
        self,
        topic: str,
        records: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 20_000,
        current_leader_epoch: int = 0,
    ) -> b.ProducedPartition:
        request = produce_request(
            [(topic, partition, records)], acks=acks, timeout_ms=timeout_ms, current_leader_epoch=current_leader_epoch
        )
        response = await self.stub.produce(request)
        return response.partitions[0] if response.partitions else b.ProducedPartition()

    async def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, **settings: int
    ) -> tuple[b.FetchedPartition, bytes]:
        answers = await self.fetch_many([(topic, partition, offset)], **settings)
        return answers[0]

    @property
    def parked_fetches(self) -> int:
        return self.server.parked_fetches

    @property
    def parked_produces(self) -> int:
        return self.server.parked_produces

    async def fetch_many(
        self, wanted: Sequence[tuple[str, int, int]], **settings: int
    ) -> list[tuple[b.FetchedPartition, bytes]]:
        return split_fetch(await self.stub.fetch(fetch_request(wanted, **settings)))

    async def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        """Waits until the broker knows the topic."""

        async def knows() -> bool:
            response = await self.stub.metadata(b.MetadataRequest(topics=[name]))
            return len(response.topics[0].partitions) >= partitions

        await until(knows, pause_s=0.005)


def batch(count: int = 1, *, value: bytes = b"value", timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """Returns a batch of `count` records, as a producer sends it."""
    return bytes(encode_batch([(timestamp_ms + number, None, value, ()) for number in range(count)]))


def produce_request(
    parts: Sequence[tuple[str, int, bytes]], *, acks: int = -1, timeout_ms: int = 20_000, current_leader_epoch: int = 0
) -> bytes:
    header = b.ProduceHeader(
        acks=acks,
        timeout_ms=timeout_ms,
        client_id="test",
        partitions=[
            b.ProducePartition(
                topic=topic,
                partition=partition,
                records_bytes=len(records),
                current_leader_epoch=current_leader_epoch,
            )
            for topic, partition, records in parts
        ],
    )
    return encode_framed(header, [records for _, _, records in parts])


def fetch_request(wanted: Sequence[tuple[str, int, int]], **settings: Any) -> b.FetchRequest:
    partition_max_bytes = settings.pop("partition_max_bytes", 1024**2)
    leader_epoch = settings.pop("current_leader_epoch", -1)
    last_fetched_epoch = settings.pop("last_fetched_epoch", -1)
    return b.FetchRequest(
        replica_id=settings.pop("replica_id", -1),
        max_wait_ms=settings.pop("max_wait_ms", 0),
        min_bytes=settings.pop("min_bytes", 1),
        max_bytes=settings.pop("max_bytes", 50 * 1024**2),
        partitions=[
            b.FetchPartition(
                topic=topic,
                partition=partition,
                fetch_offset=offset,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
                max_bytes=partition_max_bytes,
            )
            for topic, partition, offset in wanted
        ],
        **settings,
    )


def split_fetch(message: bytes) -> list[tuple[b.FetchedPartition, bytes]]:
    header, records = decode_framed(message, b.FetchHeader)
    parts = split_records(records, [partition.records_bytes for partition in header.partitions])
    return [(answer, bytes(part)) for answer, part in zip(header.partitions, parts, strict=True)]


@contextlib.asynccontextmanager
async def serving(servicers: Mapping[Any, object]) -> AsyncIterator[int]:
    rpc = RpcServer(max_message_bytes=MESSAGE_BYTES_MAX, max_concurrent_rpcs=10_000)
    for service, servicer in servicers.items():
        rpc.add_service(service, servicer)
    port = await rpc.start("localhost", 0)
    try:
        yield port
    finally:
        await rpc.stop(0)


class StartBroker(Protocol):
    """The fixture `start_broker`."""

    def __call__(
        self,
        *,
        controller: ScriptedController | None = None,
        configs: Mapping[str, str] | None = None,
        disk: Disk | None = None,
        authorizer: StandardAuthorizer | None = None,
    ) -> contextlib.AbstractAsyncContextManager[tuple[RunningBroker, ScriptedController]]: ...
