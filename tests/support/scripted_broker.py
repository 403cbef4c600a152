"""Brokers whose answers a test writes: real gRPC servers and real batch checks over an imaginary cluster.

`ScriptedCluster` holds topics, leaders and appended records. Each Produce takes the next `Answer` of `produce_answers`
(`usual_answer` when there is none), each Metadata the next of `metadata_errors`. Broker 0 is the coordinator of all
groups and transactional ids. Each of its calls about transactions takes the next of `transaction_script`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records import Record, decode_batch, iter_headers, read_header
from klamm.wire.framed import decode_framed, split_records
from klamm.wire.v1 import broker_pb2, common_pb2, coordinator_pb2
from klamm.wire.v1.broker_rpc import BROKER
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm_broker.log.producers.producer_state import ProducerStates
from klamm_server.rpc.server import RpcServer
from tests.support.waiting import patience


@dataclass(kw_only=True)
class Answer:
    """The treatment of one Produce request."""

    error: ErrorCode = ErrorCode.NONE
    """The error for every partition of the request, or for `only`."""
    only: TopicPartition | None = None
    append: bool | None = None
    """True if the batches are stored. By default they are stored if there is no error."""
    drop: bool = False
    """True if the broker answers UNAVAILABLE, as if the connection was broken."""
    wait_for: threading.Event | None = None
    """If set, the broker answers only after this event. It stores the batches before."""
    leader_hint: tuple[int, int] = (-1, -1)
    """The current leader and its epoch in the answer (KIP-951); -1 for unknown."""
    throttle_ms: int = 0
    """The throttle time that the client gets."""


@dataclass
class Partition:
    """One partition of the imaginary cluster."""

    leader: int
    leader_epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    producers: ProducerStates = field(default_factory=ProducerStates)


@dataclass
class ProduceSeen:
    """One Produce request as it arrived."""

    broker_id: int
    header: broker_pb2.ProduceHeader
    batch_counts: list[int]


class Dropped(enum.Enum):
    """A call that ends as UNAVAILABLE, as if the connection was broken."""

    BEFORE = enum.auto()
    """The call is dropped before it has an effect."""
    AFTER = enum.auto()
    """The call has its usual effect, and the answer is lost."""


Fate = ErrorCode | Dropped | threading.Event
"""The outcome of a call to the coordinator. An error is its answer. With an event, the call waits for it and continues
as usual."""


class ScriptedCluster:
    """Topics and scripted answers shared by the brokers `serve` starts."""

    def __init__(self, broker_count: int = 1, racks: tuple[str, ...] = ()) -> None:
        self.broker_count = broker_count
        self.racks = racks or ("",) * broker_count
        self.topics: dict[str, list[Partition]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.auto_create_partitions = 0
        self.max_message_bytes = 1 << 40
        self.log_append_time_ms = -1
        self.produce_answers: deque[Answer] = deque()
        self.usual_answer = Answer()
        self.metadata_errors: deque[ErrorCode] = deque()
        self.coordinator_errors: deque[ErrorCode] = deque()
        self.producer_id_errors: deque[ErrorCode] = deque()
        self.producer_id_count = 0
        self.produced: list[ProduceSeen] = []
        self.transaction_script: dict[str, deque[Fate]] = defaultdict(deque)
        """The outcomes of the next calls, by the call's name: init_producer_id, end_txn, txn_offset_commit."""
        self.transaction_calls: list[tuple[str, Any]] = []
        """The name and request of each call, in order. "produce" has its header."""
        self.transactional_epoch = -1
        self.only_offset: TopicPartition | None = None
        """The partition to which a refusal of txn_offset_commit applies. None for all of them."""
        self.coordinator_lookups = 0
        self.next_producer: tuple[int, int] | None = None
        """The producer id and epoch in the answer of EndTxn. None for the next epoch of the same producer."""
        self.in_flight_max = 0
        self.metadata_count = 0
        self.on_drop: Callable[[], None] = lambda: None
        """Called when an answer is dropped."""
        self.ports: list[int] = []
        self._in_flight = 0

    def create_topic(self, name: str, partition_count: int, leaders: list[int] | None = None) -> None:
        """Creates a topic. The leader of partition p is broker p modulo the number of brokers, unless `leaders` names
        the leaders."""
        assigned = leaders or [number % self.broker_count for number in range(partition_count)]
        self.topics[name] = [Partition(leader) for leader in assigned]
        self.topic_ids[name] = uuid.uuid4()

    def move_leader(self, tp: TopicPartition, leader: int) -> None:
        """Gives the partition a new leader with the next leader epoch."""
        partition = self.topics[tp.topic][tp.partition]
        partition.leader = leader
        partition.leader_epoch += 1

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """Returns all records that were appended to the partition."""
        return [record for batch in self.topics[topic][partition].batches for record in decode_batch(batch)]

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Returns the values of all records that were appended to the partition."""
        return [record.value for record in self.records(topic, partition)]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for the setting bootstrap.servers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[ScriptedCluster]:
        """Runs the brokers on this event loop."""
        servers = []
        for broker_id in range(self.broker_count):
            server = RpcServer(max_message_bytes=100 << 20, max_concurrent_rpcs=1_000)
            server.add_service(BROKER, _ScriptedBroker(self, broker_id))
            server.add_service(COORDINATOR, _ScriptedCoordinator(self))
            self.ports.append(await server.start("127.0.0.1", 0))
            servers.append(server)
        try:
            yield self
        finally:
            await asyncio.gather(*(server.stop(0) for server in servers))

    @contextlib.contextmanager
    def serve_in_thread(self) -> Iterator[ScriptedCluster]:
        """Runs the brokers on a loop and thread of their own, for tests of the synchronous clients."""
        started = threading.Event()
        finished: list[asyncio.Event] = []

        async def main() -> None:
            finished.append(asyncio.Event())
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            async with self.serve():
                started.set()
                await finished[0].wait()

        loop = asyncio.new_event_loop()

        def run() -> None:
            loop.run_until_complete(main())
            loop.close()

        thread = threading.Thread(target=run, name="scripted-brokers")
        thread.start()
        assert started.wait(patience())
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(finished[0].set)
            thread.join()

    def metadata(self, request: broker_pb2.MetadataRequest) -> broker_pb2.MetadataResponse:
        """Returns the answer to a Metadata request, which is the same on every broker."""
        self.metadata_count += 1
        error = self.metadata_errors.popleft() if self.metadata_errors else ErrorCode.NONE
        names = sorted(self.topics) if request.all_topics else list(request.topics)
        if request.allow_auto_topic_creation and self.auto_create_partitions:
            for name in set(names) - set(self.topics):
                self.create_topic(name, self.auto_create_partitions)
        nodes = [self._node(broker_id) for broker_id in range(self.broker_count)]
        return broker_pb2.MetadataResponse(
            cluster_id="scripted",
            brokers=nodes,
            controllers=nodes[:1],
            coordinators=nodes[:1],
            topics=[self._topic(name, error) for name in names],
        )

    def _node(self, broker_id: int) -> common_pb2.Node:
        return common_pb2.Node(
            node_id=broker_id,
            endpoint=common_pb2.Endpoint(host="127.0.0.1", port=self.ports[broker_id]),
            rack=self.racks[broker_id],
        )

    def _topic(self, name: str, error: ErrorCode) -> broker_pb2.TopicMetadata:
        if name not in self.topics and not error:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error:
            return broker_pb2.TopicMetadata(error_code=error, name=name)
        return broker_pb2.TopicMetadata(
            name=name,
            topic_id=self.topic_ids[name].bytes,
            partitions=[
                broker_pb2.PartitionMetadata(
                    partition=number,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replicas=[max(0, partition.leader)],
                    isr=[max(0, partition.leader)],
                    error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader < 0 else 0,
                )
                for number, partition in enumerate(self.topics[name])
            ],
        )

    async def produce(self, broker_id: int, message: bytes, context: Any) -> broker_pb2.ProduceResponse:
        """Checks and stores the batches unless the next answer says otherwise."""
        answer = self.produce_answers.popleft() if self.produce_answers else self.usual_answer
        header, records = decode_framed(message, broker_pb2.ProduceHeader)
        parts = split_records(records, [partition.records_bytes for partition in header.partitions])
        if header.transactional_id:
            self.transaction_calls.append(("produce", header))
        self.produced.append(ProduceSeen(broker_id, header, [len(list(iter_headers(part))) for part in parts]))
        self._in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self._in_flight)
        try:
            outcomes = [
                self._append(broker_id, answer, asked, part)
                for asked, part in zip(header.partitions, parts, strict=True)
            ]
            if answer.wait_for is not None:
                await asyncio.to_thread(answer.wait_for.wait, patience())
        finally:
            self._in_flight -= 1
        if answer.drop:
            self.on_drop()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "dropped by the script")
        return broker_pb2.ProduceResponse(
            partitions=[outcome for outcome in outcomes if header.acks or outcome.error_code],
            throttle_time_ms=answer.throttle_ms,
        )

    def _append(
        self, broker_id: int, answer: Answer, asked: broker_pb2.ProducePartition, part: memoryview
    ) -> broker_pb2.ProducedPartition:
        tp = TopicPartition(asked.topic, asked.partition)
        outcome = broker_pb2.ProducedPartition(
            topic=tp.topic,
            partition=tp.partition,
            base_offset=-1,
            log_append_time_ms=self.log_append_time_ms,
            current_leader=answer.leader_hint[0],
            current_leader_epoch=answer.leader_hint[1],
        )
        partition = self.topics[tp.topic][tp.partition]
        batches = _split_batches(bytes(part))
        error = answer.error if answer.only in (None, tp) else ErrorCode.NONE
        if partition.leader != broker_id:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif any(len(batch) > self.max_message_bytes for batch in batches):
            error = ErrorCode.MESSAGE_TOO_LARGE
        outcome.error_code = error
        if answer.append if answer.append is not None else not (error or answer.drop):
            try:
                outcome.base_offset = store(partition, batches)
            except BrokerError as refusal:
                outcome.error_code = refusal.code
        return outcome


def store(partition: Partition, batches: list[bytes]) -> int:
    """Appends batches as a broker does, unless they are duplicates. Returns their base offset."""
    headers = [read_header(batch) for batch in batches]
    if headers[0].producer_id >= 0:
        is_new = partition.end_offset == 0
        duplicate = partition.producers.check(headers, is_verified=True, is_new_log=is_new)
        if duplicate is not None:
            return duplicate.base_offset
    base_offset = partition.end_offset
    for header, batch in zip(headers, batches, strict=True):
        partition.producers.note(header, base_offset=partition.end_offset, now_ms=0)
        partition.batches.append(batch)
        partition.end_offset += header.last_offset_delta + 1
    return base_offset


def _split_batches(part: bytes) -> list[bytes]:
    return [part[position : position + header.size_bytes] for position, header in iter_headers(part)]


class _ScriptedBroker:
    """The servicer of one broker. Calls that the scripted cluster does not support are not implemented."""

    def __init__(self, cluster: ScriptedCluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id

    async def metadata(self, request: Any, context: Any) -> broker_pb2.MetadataResponse:
        return self._cluster.metadata(request)

    async def find_coordinator(self, request: Any, context: Any) -> broker_pb2.FindCoordinatorResponse:
        self._cluster.coordinator_lookups += 1
        errors = self._cluster.coordinator_errors
        error = errors.popleft() if errors else ErrorCode.NONE
        node = self._cluster.metadata(broker_pb2.MetadataRequest()).brokers[0]
        return broker_pb2.FindCoordinatorResponse(
            coordinators=[
                broker_pb2.FoundCoordinator(key=key, error_code=error, node=None if error else node)
                for key in request.keys
            ]
        )

    async def init_producer_id(self, request: Any, context: Any) -> broker_pb2.InitProducerIdResponse:
        errors = self._cluster.producer_id_errors
        if errors:
            return broker_pb2.InitProducerIdResponse(error_code=errors.popleft(), producer_id=-1)
        self._cluster.producer_id_count += 1
        return broker_pb2.InitProducerIdResponse(producer_id=self._cluster.producer_id_count)

    async def produce(self, request: bytes, context: Any) -> broker_pb2.ProduceResponse:
        return await self._cluster.produce(self._broker_id, request, context)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def unimplemented(request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, name)

        return unimplemented


class _ScriptedCoordinator:
    """The coordinator of one transactional id and of every group."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster

    async def init_producer_id(self, request: Any, context: Any) -> coordinator_pb2.InitTransactionalIdResponse:
        def answer() -> coordinator_pb2.InitTransactionalIdResponse:
            self._cluster.transactional_epoch += 1
            return coordinator_pb2.InitTransactionalIdResponse(
                producer_id=7_000, producer_epoch=self._cluster.transactional_epoch
            )

        def refuse(code: ErrorCode) -> coordinator_pb2.InitTransactionalIdResponse:
            return coordinator_pb2.InitTransactionalIdResponse(error_code=code, producer_id=-1)

        return await self._play("init_producer_id", request, context, answer, refuse)

    async def end_txn(self, request: Any, context: Any) -> coordinator_pb2.EndTxnResponse:
        def answer() -> coordinator_pb2.EndTxnResponse:
            # A second EndTxn of the same epoch is the first one again, whose answer got lost.
            self._cluster.transactional_epoch = request.producer_epoch + 1
            usual = (request.producer_id, request.producer_epoch + 1)
            producer_id, epoch = self._cluster.next_producer or usual
            return coordinator_pb2.EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)

        def refuse(code: ErrorCode) -> coordinator_pb2.EndTxnResponse:
            return coordinator_pb2.EndTxnResponse(error_code=code, producer_id=-1)

        return await self._play("end_txn", request, context, answer, refuse)

    async def txn_offset_commit(self, request: Any, context: Any) -> coordinator_pb2.TxnOffsetCommitResponse:
        def answer(code: ErrorCode = ErrorCode.NONE) -> coordinator_pb2.TxnOffsetCommitResponse:
            return coordinator_pb2.TxnOffsetCommitResponse(
                partitions=[
                    common_pb2.PartitionResult(
                        topic=offset.topic,
                        partition=offset.partition,
                        error_code=code if self._cluster.only_offset in (None, (offset.topic, offset.partition)) else 0,
                    )
                    for offset in request.offsets
                ]
            )

        return await self._play("txn_offset_commit", request, context, answer, answer)

    async def _play(
        self, name: str, request: Any, context: Any, answer: Callable[[], Any], refuse: Callable[[ErrorCode], Any]
    ) -> Any:
        self._cluster.transaction_calls.append((name, request))
        script = self._cluster.transaction_script[name]
        fate = script.popleft() if script else ErrorCode.NONE
        if isinstance(fate, ErrorCode) and fate:
            return refuse(fate)
        if isinstance(fate, threading.Event):
            await asyncio.to_thread(fate.wait, patience())
        response = answer() if fate is not Dropped.BEFORE else None
        if isinstance(fate, Dropped):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "dropped by the script")
        return response

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def unimplemented(request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, name)

        return unimplemented
