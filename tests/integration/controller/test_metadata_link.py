"""Tests MetadataLink and Registration against a real gRPC server whose Controller follows a script."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.retry import Backoff
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import (
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    HeartbeatResponse,
    HoldSessionResponse,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    RegisterResponse,
    WatchMetadataRequest,
)
from klamm.wire.v1.controller_rpc import CONTROLLER
from klamm.wire.v1.metadata_pb2 import (
    BrokerChangeRecord,
    ClusterRecord,
    ConfigRecord,
    CoordinatorChangeRecord,
    MetadataBatch,
    MetadataRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterCoordinatorRecord,
)
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.links.registration import BrokerRegistrant, CoordinatorRegistrant, Registrant, Registration
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.image_records import snapshot_records
from klamm_server.metadata.replay import replay
from klamm_server.net.listeners import encode, plain_listeners
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.clock import SystemClock
from tests.support.ports import closed_port, free_port
from tests.support.waiting import patience

FAST = Backoff(initial_ms=5, max_ms=20)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a coroutine test in a loop of its own, for at most patience() seconds."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), patience()))

    run.__name__ = test.__name__
    return run


# ---- a metadata log of small records: record i sets the config "k" of broker 0 to i


def cluster_record(cluster_id: str = "c") -> MetadataRecord:
    return MetadataRecord(cluster=ClusterRecord(cluster_id=cluster_id))


def record(index: int) -> MetadataRecord:
    if index == 0:
        return cluster_record()
    return MetadataRecord(config=ConfigRecord(resource_type=4, resource_name="0", name=f"k{index}", value=str(index)))


def delta(start: int, end: int) -> MetadataBatch:
    return MetadataBatch(base_index=start, end_index=end, records=[record(i) for i in range(start, end)])


def image_at(end: int) -> MetadataImage:
    return replay(MetadataImage.empty(), [record(i) for i in range(end)], end)


def snapshot(end: int, *, size: int) -> list[MetadataBatch]:
    """Returns the state before index `end` as a snapshot, with `size` records per batch."""
    records = list(snapshot_records(image_at(end)))
    pieces = [records[i : i + size] for i in range(0, len(records), size)]
    return [
        MetadataBatch(
            base_index=end,
            end_index=end,
            records=piece,
            snapshot_begin=i == 0,
            snapshot_end=i == len(pieces) - 1,
        )
        for i, piece in enumerate(pieces)
    ]


class Cut(Exception):
    """Ends a scripted stream as a crash would, so that the client sees a failed call."""


Script = Sequence[MetadataBatch | type[Cut] | asyncio.Event]


class ScriptedController:
    """A controller that plays one script per stream: it sends batches, waits for events, and breaks the stream at a
    Cut.

    A stream ends after its script. When all scripts are used up, streams stay open and silent.
    """

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self.watched: list[tuple[int, str]] = []
        self.called = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition is true. Checks it after every call of a client."""
        while not condition():
            self.called.clear()
            await self.called.wait()

    async def watch_metadata(self, request: WatchMetadataRequest, context: Any) -> AsyncIterator[MetadataBatch]:
        self.watched.append((request.start_index, request.cluster_id))
        self.called.set()
        if not self._scripts:
            await asyncio.Event().wait()
        for step in self._scripts.pop(0):
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, MetadataBatch):
                yield step
            else:
                await context.abort(14, "the controller went away")  # UNAVAILABLE

    async def register_broker(self, request: Any, context: Any) -> RegisterResponse:
        raise NotImplementedError

    async def broker_heartbeat(self, request: Any, context: Any) -> HeartbeatResponse:
        raise NotImplementedError

    async def register_coordinator(self, request: Any, context: Any) -> RegisterResponse:
        raise NotImplementedError

    async def coordinator_heartbeat(self, request: Any, context: Any) -> HeartbeatResponse:
        raise NotImplementedError

    async def hold_session(self, request: Any, context: Any) -> AsyncIterator[HoldSessionResponse]:
        yield HoldSessionResponse()
        await asyncio.Event().wait()

    async def allocate_producer_ids(self, request: Any, context: Any) -> AllocateProducerIdsResponse:
        raise NotImplementedError

    async def alter_partition(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def report_offline_replicas(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def resign_replicas(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    async def report_replica_logs(self, request: Any, context: Any) -> Any:
        raise NotImplementedError


@asynccontextmanager
async def serving(servicer: object) -> AsyncIterator[int]:
    server = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100)
    server.add_service(CONTROLLER, servicer)
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop(0)


class Follower:
    """A running MetadataLink that records the images it published."""

    def __init__(self, ports: Sequence[int], *, cluster_id: str = "") -> None:
        self.published: list[tuple[MetadataImage, MetadataImage]] = []
        self.link = MetadataLink(
            GrpcTransport(),
            Controllers([("127.0.0.1", port) for port in ports]),
            cluster_id=cluster_id,
            on_image=self._on_image,
            clock=SystemClock(),
            rng=random.Random(1),
            reconnect=FAST,
        )

    async def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self.published.append((old, new))

    @property
    def end_indexes(self) -> list[int]:
        return [new.end_index for _, new in self.published]

    def assert_unbroken(self) -> None:
        """Checks that each image is the state of its log, and that each change starts at the image before it."""
        olds, news = zip(*self.published, strict=True)
        assert olds[0] == MetadataImage.empty()
        assert all(old is former for old, former in zip(olds[1:], news, strict=False))
        assert all(new == image_at(new.end_index) for new in news)
        assert self.link.image is news[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MetadataLink]:
        task = asyncio.create_task(self.link.run())
        try:
            yield self.link
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()

    async def reach(self, end_index: int) -> None:
        await self.link.wait_for(lambda image: image.end_index >= end_index)


def follow(*scripts: Script, until: int, streams: int) -> tuple[Follower, ScriptedController]:
    """Follows the scripts until the image ends at `until` and the link has opened `streams` streams."""
    controller = ScriptedController(*scripts)
    followers: list[Follower] = []

    async def run() -> None:
        async with serving(controller) as port:
            follower = Follower([port])
            followers.append(follower)
            async with follower.running():
                await follower.reach(until)
                await controller.until(lambda: len(controller.watched) >= streams)

    asyncio.run(asyncio.wait_for(run(), patience()))
    return followers[0], controller


def test_a_link_applies_deltas_from_the_start() -> None:
    follower, controller = follow([delta(0, 3), delta(3, 4), delta(4, 9)], until=9, streams=1)
    follower.assert_unbroken()
    assert follower.end_indexes == [3, 4, 9]
    assert controller.watched[0] == (0, "")


def test_a_link_applies_a_snapshot_and_then_deltas() -> None:
    follower, _ = follow([*snapshot(50, size=7), delta(50, 52)], until=52, streams=1)
    follower.assert_unbroken()
    assert follower.end_indexes == [50, 52]


def test_a_link_applies_a_snapshot_that_comes_in_one_batch() -> None:
    follower, _ = follow(snapshot(5, size=100), until=5, streams=1)
    follower.assert_unbroken()
    assert follower.end_indexes == [5]


@pytest.mark.parametrize("cut", [[], [Cut]], ids=["stream ends", "stream fails"])
def test_a_link_continues_after_a_lost_stream_without_gap_or_repeat(cut: list[type[Cut]]) -> None:
    follower, controller = follow(
        [delta(0, 3), delta(3, 5), *cut], [delta(5, 6), *cut], cut, [delta(6, 10)], until=10, streams=4
    )
    follower.assert_unbroken()
    assert follower.end_indexes == [3, 5, 6, 10]
    assert controller.watched[:4] == [(0, ""), (3 + 2, "c"), (6, "c"), (6, "c")]


def test_a_link_discards_an_incomplete_snapshot() -> None:
    follower, controller = follow(
        [delta(0, 2), *snapshot(60, size=9)[:-1], Cut],
        [*snapshot(61, size=9), delta(61, 62)],
        until=62,
        streams=2,
    )
    follower.assert_unbroken()
    assert follower.end_indexes == [2, 61, 62]
    assert controller.watched[1] == (2, "c")


FOREIGN_SNAPSHOT = MetadataBatch(
    base_index=9, end_index=9, records=[cluster_record("other")], snapshot_begin=True, snapshot_end=True
)


@pytest.mark.parametrize(
    "bad",
    [
        [delta(4, 6)],
        [delta(2, 4)],
        [MetadataBatch(base_index=3, end_index=9, records=[record(3)])],
        [MetadataBatch(base_index=3, end_index=3, snapshot_end=True)],
        snapshot(2, size=100),
        [FOREIGN_SNAPSHOT],
    ],
    ids=["gap", "repeat", "wrong length", "end without begin", "older snapshot", "snapshot of another cluster"],
)
def test_a_stream_that_does_not_continue_the_image_is_dropped(bad: Script) -> None:
    follower, controller = follow([delta(0, 3), *bad, asyncio.Event()], [delta(3, 5)], until=5, streams=2)
    follower.assert_unbroken()
    assert follower.end_indexes == [3, 5]
    assert controller.watched[1] == (3, "c")


@in_loop
async def test_a_link_switches_to_another_controller_when_one_dies() -> None:
    first, second = ScriptedController([delta(0, 4), asyncio.Event()]), ScriptedController([delta(4, 7)])
    async with serving(second) as second_port:
        async with serving(first) as first_port:
            follower = Follower([first_port, second_port])
            running = follower.running()
            await running.__aenter__()
            await follower.reach(4)
        await follower.reach(7)
        await running.__aexit__(None, None, None)
    follower.assert_unbroken()
    assert second.watched[0] == (4, "c")


@in_loop
async def test_a_link_waits_for_a_controller_that_starts_later() -> None:
    port = free_port()
    follower = Follower([port])
    async with follower.running():
        server = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100)
        server.add_service(CONTROLLER, ScriptedController([delta(0, 2)]))
        await server.start("127.0.0.1", port)
        await follower.reach(2)
        await server.stop(0)
    follower.assert_unbroken()


@in_loop
async def test_a_metadata_record_that_cannot_be_replayed_ends_the_link_with_an_error() -> None:
    impossible = MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=-1))
    script = [MetadataBatch(base_index=0, end_index=1, records=[impossible])]
    async with serving(ScriptedController(script)) as port:
        with pytest.raises(AssertionError, match="producer ids go back from 0 to -1"):
            await Follower([port]).link.run()


@in_loop
async def test_a_link_requests_its_own_cluster_id_and_drops_a_cancelled_waiter() -> None:
    controller = ScriptedController([delta(0, 1), asyncio.Event()])
    async with serving(controller) as port:
        follower = Follower([port], cluster_id="c")
        async with follower.running():
            waiting = asyncio.create_task(follower.reach(100))
            await follower.reach(1)
            waiting.cancel()
            await asyncio.wait({waiting})
            assert follower.link._waiters == []
    assert controller.watched == [(0, "c")]


# ---- registration


class RegistrarController(ScriptedController):
    """A quorum of one controller that knows only epochs, fencing and controlled shutdown.

    It answers each registration or heartbeat with the next of `answers` until they are used up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[MetadataRecord] = [cluster_record()]
        self.grown = asyncio.Event()
        self.registrations: list[Any] = []
        self.heartbeats: list[Any] = []
        self.register_answers: list[RegisterResponse] = []
        self.heartbeat_answers: list[HeartbeatResponse] = []
        self.holds: list[tuple[Any, asyncio.Event]] = []
        """The calls of HoldSession, each with the event that ends it."""
        self.epoch = -1

    def append(self, new: MetadataRecord) -> None:
        self.log.append(new)
        self.grown.set()
        self.grown = asyncio.Event()

    async def watch_metadata(self, request: WatchMetadataRequest, context: Any) -> AsyncIterator[MetadataBatch]:
        sent = request.start_index
        while True:
            grown = self.grown
            if sent < (end := len(self.log)):
                yield MetadataBatch(base_index=sent, end_index=end, records=self.log[sent:end])
                sent = end
            await grown.wait()

    def _register(self, request: Any, make_record: Callable[[int], MetadataRecord]) -> RegisterResponse:
        self.registrations.append(request)
        self.called.set()
        if self.register_answers:
            return self.register_answers.pop(0)
        self.epoch = len(self.log)
        self.append(make_record(self.epoch))
        return RegisterResponse(epoch=self.epoch, cluster_id="c")

    async def hold_session(self, request: Any, context: Any) -> AsyncIterator[HoldSessionResponse]:
        over = asyncio.Event()
        self.holds.append((request, over))
        self.called.set()
        yield HoldSessionResponse()
        await over.wait()

    async def register_broker(self, request: RegisterBrokerRequest, context: Any) -> RegisterResponse:
        return self._register(
            request,
            lambda epoch: MetadataRecord(
                register_broker=RegisterBrokerRecord(broker_id=request.broker_id, broker_epoch=epoch, fenced=True)
            ),
        )

    async def register_coordinator(self, request: RegisterCoordinatorRequest, context: Any) -> RegisterResponse:
        return self._register(
            request,
            lambda epoch: MetadataRecord(
                register_coordinator=RegisterCoordinatorRecord(
                    coordinator_id=request.coordinator_id, coordinator_epoch=epoch, fenced=True
                )
            ),
        )

    def _heartbeat(self, request: Any, epoch: int, unfence: MetadataRecord) -> HeartbeatResponse:
        self.heartbeats.append(request)
        self.called.set()
        if self.heartbeat_answers:
            return self.heartbeat_answers.pop(0)
        if epoch != self.epoch:
            return HeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        if request.metadata_end_index > epoch and unfence not in self.log:
            self.append(unfence)
        return HeartbeatResponse(should_shutdown=request.want_shutdown)

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, context: Any) -> HeartbeatResponse:
        epoch = request.broker_epoch
        change = BrokerChangeRecord(broker_id=request.broker_id, broker_epoch=epoch, fenced=False)
        return self._heartbeat(request, epoch, MetadataRecord(broker_change=change))

    async def coordinator_heartbeat(self, request: CoordinatorHeartbeatRequest, context: Any) -> HeartbeatResponse:
        epoch = request.coordinator_epoch
        change = CoordinatorChangeRecord(coordinator_id=request.coordinator_id, coordinator_epoch=epoch, fenced=False)
        return self._heartbeat(request, epoch, MetadataRecord(coordinator_change=change))


BROKER = BrokerRegistrant(
    broker_id=1,
    incarnation_id=bytes(range(16)),
    listeners=plain_listeners("localhost", 9094),
    rack="r1",
    log_dir_ids=(b"d" * 16,),
    static_configs={"log.segment.bytes": "2000000"},
    offline_log_dir_ids=lambda: [b"o" * 16],
)
COORDINATOR = CoordinatorRegistrant(
    coordinator_id=7, incarnation_id=bytes(16), listeners=plain_listeners("localhost", 9095)
)


@asynccontextmanager
async def registering(
    *controllers: object,
    member: Registrant = BROKER,
    cluster_id: str = "",
    heartbeat_interval_ms: int = 5,
    request_timeout_ms: int = 60_000,
    registration_timeout_ms: int = 60_000,
) -> AsyncIterator[Registration]:
    """Yields a Registration at the given controllers, with its link running."""
    async with serving(controllers[0]) as port, serving(controllers[-1]) as other_port:
        ports = [port] if len(controllers) == 1 else [port, other_port]
        follower = Follower(ports[-1:])
        async with follower.running():
            yield Registration(
                member,
                GrpcTransport(),
                Controllers([("127.0.0.1", port) for port in ports]),
                link=follower.link,
                cluster_id=cluster_id,
                clock=SystemClock(),
                heartbeat_interval_ms=heartbeat_interval_ms,
                request_timeout_ms=request_timeout_ms,
                registration_timeout_ms=registration_timeout_ms,
                rng=random.Random(1),
            )


def test_a_server_whose_session_stream_ends_opens_another_and_sends_a_heartbeat_at_once() -> None:
    controller = RegistrarController()
    an_hour_ms = 3_600_000

    async def run() -> None:
        async with registering(controller, heartbeat_interval_ms=an_hour_ms) as registration:
            await registration.register()
            keeping = asyncio.create_task(registration.run())
            try:
                await controller.until(lambda: len(controller.holds) == 1 and len(controller.heartbeats) == 1)
                request, over = controller.holds[0]
                assert (request.broker_id, request.epoch) == (BROKER.broker_id, registration.epoch)
                over.set()
                await controller.until(lambda: len(controller.holds) == 2 and len(controller.heartbeats) == 2)
            finally:
                keeping.cancel()
                await asyncio.wait({keeping})

    asyncio.run(asyncio.wait_for(run(), patience()))


@pytest.mark.parametrize("member", [BROKER, COORDINATOR], ids=str)
def test_a_server_registers_is_unfenced_and_leaves(member: Registrant) -> None:
    controller = RegistrarController()
    fenced = []

    async def run() -> None:
        # Heartbeats are an hour apart, so only the first one can unfence it in time. It is sent when the image is
        # complete.
        async with registering(controller, member=member, heartbeat_interval_ms=3_600_000) as registration:
            fenced.append(registration.fenced)
            await registration.register()
            assert (registration.epoch, registration.cluster_id) == (1, "c")
            running = asyncio.create_task(registration.run())
            await registration.wait_unfenced()
            fenced.append(registration.fenced)
            assert await registration.shut_down(10_000)
            await running

    asyncio.run(asyncio.wait_for(run(), patience()))
    assert fenced == [True, False]
    assert [heartbeat.want_shutdown for heartbeat in controller.heartbeats] == [False, True]
    assert controller.heartbeats[0].metadata_end_index == 2


@in_loop
async def test_a_broker_registers_with_its_endpoints_rack_log_directories_and_configs() -> None:
    controller = RegistrarController()
    async with registering(controller, cluster_id="c") as registration:
        await registration.register()
        running = asyncio.create_task(registration.run())
        await registration.wait_unfenced()
        await registration.shut_down(10_000)
        await running
    assert controller.registrations == [
        RegisterBrokerRequest(
            cluster_id="c",
            broker_id=1,
            incarnation_id=bytes(range(16)),
            endpoint=Endpoint(host="localhost", port=9094),
            rack="r1",
            log_dir_ids=[b"d" * 16],
            static_configs={"log.segment.bytes": "2000000"},
            listeners=encode(BROKER.listeners),
        )
    ]
    assert list(controller.heartbeats[0].offline_log_dir_ids) == [b"o" * 16]


@in_loop
async def test_a_server_that_is_not_registered_any_more_registers_again_with_the_same_incarnation_id() -> None:
    controller = RegistrarController()
    async with registering(controller) as registration:
        await registration.register()
        running = asyncio.create_task(registration.run())
        await registration.wait_unfenced()
        first_epoch = registration.epoch
        for code in (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH):
            controller.heartbeat_answers.append(HeartbeatResponse(error_code=code))
        await controller.until(lambda: len(controller.registrations) == 3)
        await registration.wait_unfenced()
        assert registration.epoch > first_epoch
        await registration.shut_down(10_000)
        await running
    assert len({request.incarnation_id for request in controller.registrations}) == 1


@in_loop
async def test_a_registration_answered_with_not_controller_is_sent_to_the_next_controller() -> None:
    active, passive = RegistrarController(), RegistrarController()
    async with registering(passive, active) as registration:
        passive.register_answers.append(RegisterResponse(error_code=ErrorCode.NOT_CONTROLLER))
        await registration.register()
    assert (len(passive.registrations), len(active.registrations)) == (1, 1)


@in_loop
async def test_a_registration_is_sent_to_the_controller_that_a_not_controller_answer_names() -> None:
    active, passive = RegistrarController(), RegistrarController()
    async with serving(active) as active_port, registering(passive) as registration:
        endpoint = Endpoint(host="127.0.0.1", port=active_port)
        passive.register_answers.append(RegisterResponse(error_code=ErrorCode.NOT_CONTROLLER, controller=endpoint))
        await registration.register()
    assert (len(passive.registrations), len(active.registrations)) == (1, 1)


@in_loop
async def test_a_registration_is_retried_while_the_brokers_former_session_is_live() -> None:
    controller = RegistrarController()
    duplicate = RegisterResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION, error_message="still live")
    controller.register_answers += [duplicate, duplicate]
    async with registering(controller) as registration:
        await registration.register()
    assert len(controller.registrations) == 3


@in_loop
async def test_a_registration_that_is_refused_until_its_timeout_fails_with_the_reason() -> None:
    controller = RegistrarController()
    duplicate = RegisterResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION, error_message="still live")
    controller.register_answers += [duplicate] * 100
    async with registering(controller, registration_timeout_ms=2_000) as registration:
        with pytest.raises(
            EXCEPTIONS[ErrorCode.DUPLICATE_BROKER_REGISTRATION],
            match="broker 1 could not register within 2000 ms: still live",
        ):
            await registration.register()


@in_loop
async def test_data_of_another_cluster_is_refused_at_once() -> None:
    controller = RegistrarController()
    controller.register_answers.append(
        RegisterResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message="the data is of cluster d")
    )
    async with registering(controller, cluster_id="d") as registration:
        with pytest.raises(
            EXCEPTIONS[ErrorCode.INCONSISTENT_CLUSTER_ID],
            match="broker 1 cannot register: the data is of cluster d",
        ):
            await registration.register()


@in_loop
async def test_a_controlled_shutdown_that_is_never_granted_times_out() -> None:
    controller = RegistrarController()
    async with registering(controller) as registration:
        await registration.register()
        running = asyncio.create_task(registration.run())
        await registration.wait_unfenced()
        controller.heartbeat_answers += [HeartbeatResponse()] * 10_000
        assert not await registration.shut_down(30)
        running.cancel()
        await asyncio.wait({running})


@in_loop
async def test_a_server_without_an_accepted_heartbeat_for_a_session_does_not_serve() -> None:
    controller = RegistrarController()
    refusals = [HeartbeatResponse(error_code=ErrorCode.REQUEST_TIMED_OUT) for _ in range(5)]
    async with registering(controller, request_timeout_ms=100) as registration:
        await registration.register()
        keeping = asyncio.create_task(registration.run())
        try:
            await registration.wait_serving(True)
            controller.heartbeat_answers += refusals
            await registration.wait_serving(False)
            assert not registration.fenced
            await registration.wait_serving(True)
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})


@in_loop
async def test_registering_without_a_reachable_controller_raises_a_network_exception() -> None:
    with closed_port() as port:
        registration = Registration(
            BROKER,
            GrpcTransport(),
            Controllers([("127.0.0.1", port)]),
            link=Follower([port]).link,
            cluster_id="",
            clock=SystemClock(),
            heartbeat_interval_ms=5,
            request_timeout_ms=2_000,
            registration_timeout_ms=2_000,
            rng=random.Random(1),
        )
        with pytest.raises(
            EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION], match=f"no controller answered at 127.0.0.1:{port}"
        ):
            await registration.register()


def test_a_no_op_record_moves_only_the_end_index() -> None:
    no_op = MetadataBatch(base_index=2, end_index=3, records=[MetadataRecord(no_op=NoOpRecord())])
    follower, _ = follow([delta(0, 2), no_op], until=3, streams=1)
    (_, before), (_, after) = follower.published
    assert after.configs is before.configs
    assert after.end_index == 3
