"""Heartbeats of one kind of node, and the ends of sessions without heartbeats, on the controller's queue.

A heartbeat that changes nothing is answered at once, outside of the queue. So it waits neither for administration nor
for the disk. One event is scheduled for the earliest end of a session. If that event is late, this process was blocked
and could not receive heartbeats either, so all nodes get a new session.

When a process dies, the operating system closes its connections. So the controller learns of the death before the
session ends. After a connection closes, the controller waits `connection_loss_timeout_ms` for a heartbeat. A live node
sends one immediately, and a silent node is fenced. A frozen process or a cut cable closes no connection, so the
controller fences that node only when its session ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from klamm.errors import BrokerError
from klamm.wire.v1.controller_pb2 import (
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    RegisterResponse,
)
from klamm_controller.active.controller import Controller
from klamm_controller.metadata.brokers import (
    BrokerRegistration,
    handle_broker_heartbeat,
    handle_broker_session_end,
)
from klamm_controller.metadata.coordinators import (
    handle_coordinator_heartbeat,
    handle_coordinator_session_end,
    handle_register_coordinator,
)
from klamm_controller.metadata.decision import Decision
from klamm_controller.metadata.sessions import Sessions
from klamm_server.metadata.entities import BrokerImage, CoordinatorImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.event_queue import EventQueue

log = logging.getLogger(__name__)

LATE_MS = 1_000
"""An expiry event that runs later than this, in milliseconds, shows that this process was paused."""

RegisterT = TypeVar("RegisterT")
HeartbeatT = TypeVar("HeartbeatT")


class _Register(Protocol):
    def __call__(self, image: MetadataImage, *, session_live: bool) -> Decision[RegisterResponse]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHeartbeat:
    """A live broker or coordinator, as of its last heartbeat to this controller."""

    node_id: int
    metadata_end_index: int
    """The index after the last metadata record that the node has replayed."""
    silent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind(Generic[RegisterT, HeartbeatT]):
    """The functions in which brokers and coordinators differ."""

    name: str
    nodes: Callable[[MetadataImage], Mapping[int, BrokerImage] | Mapping[int, CoordinatorImage]]
    registering_id: Callable[[RegisterT], int]
    beating_id: Callable[[HeartbeatT], int]
    epoch: Callable[[MetadataImage, int], int | None]
    """Returns the epoch of a node's registration, or None if the node is not registered."""
    metadata_end_index: Callable[[HeartbeatT], int]
    registration: Callable[[RegisterT], _Register]
    """Returns the handler of one registration. The handler is called once per event until its decision has `is_last`
    set."""
    handle_heartbeat: Callable[[HeartbeatT, MetadataImage], Decision[HeartbeatResponse]]
    handle_session_end: Callable[[int, MetadataImage], Decision[None]]


def _broker_epoch(image: MetadataImage, broker_id: int) -> int | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.broker_epoch


def _coordinator_epoch(image: MetadataImage, coordinator_id: int) -> int | None:
    coordinator = image.coordinators.get(coordinator_id)
    return None if coordinator is None else coordinator.coordinator_epoch


BROKERS: NodeKind[RegisterBrokerRequest, BrokerHeartbeatRequest] = NodeKind(
    name="broker",
    nodes=lambda image: image.brokers,
    registering_id=lambda request: request.broker_id,
    beating_id=lambda request: request.broker_id,
    epoch=_broker_epoch,
    metadata_end_index=lambda request: request.metadata_end_index,
    registration=lambda request: BrokerRegistration(request).next_part,
    handle_heartbeat=handle_broker_heartbeat,
    handle_session_end=handle_broker_session_end,
)
COORDINATORS: NodeKind[RegisterCoordinatorRequest, CoordinatorHeartbeatRequest] = NodeKind(
    name="coordinator",
    nodes=lambda image: image.coordinators,
    registering_id=lambda request: request.coordinator_id,
    beating_id=lambda request: request.coordinator_id,
    epoch=_coordinator_epoch,
    metadata_end_index=lambda request: request.metadata_end_index,
    registration=lambda request: partial(handle_register_coordinator, request),
    handle_heartbeat=handle_coordinator_heartbeat,
    handle_session_end=handle_coordinator_session_end,
)


class Liveness(Generic[RegisterT, HeartbeatT]):
    """Handles the registrations, heartbeats and session ends of one kind of node."""

    def __init__(
        self,
        kind: NodeKind[RegisterT, HeartbeatT],
        controller: Controller,
        queue: EventQueue,
        clock: Clock,
        *,
        session_timeout_ms: int,
        connection_loss_timeout_ms: int,
    ) -> None:
        self._kind = kind
        self._controller = controller
        self._queue = queue
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._connection_loss_timeout_ms = connection_loss_timeout_ms
        self._inactive = asyncio.Event()
        self._sessions = Sessions(session_timeout_ms)
        self._heard: dict[int, tuple[int, int]] = {}
        """(metadata end index, monotonic milliseconds) of each node's last heartbeat in its session, by node id."""
        self._armed_ms: int | None = None

    def start(self) -> None:
        """Grants a new session to every node that is not fenced. Called when this controller becomes active."""
        self._inactive.clear()
        for node_id, node in self._kind.nodes(self._controller.committed).items():
            if not node.fenced:
                self._touch(node_id)

    def stop(self) -> None:
        """Ends the tracking of sessions, because another controller does it now. Called when this controller is no
        longer active."""
        self._inactive.set()
        self._sessions = Sessions(self._session_timeout_ms)
        self._heard.clear()
        self._queue.cancel(self._tag)
        self._armed_ms = None

    def last_heartbeats(self) -> list[LastHeartbeat]:
        """Returns the nodes with a session that have sent a heartbeat, ordered by id."""
        now_ms = self._clock.monotonic_ms()
        return [
            LastHeartbeat(node_id=node_id, metadata_end_index=end_index, silent_ms=now_ms - at_ms)
            for node_id, (end_index, at_ms) in sorted(self._heard.items())
        ]

    async def register(self, request: RegisterT) -> RegisterResponse:
        """Registers a broker or coordinator and gives it a session. Returns once the registration has committed."""
        node_id = self._kind.registering_id(request)
        register = self._kind.registration(request)
        is_last = False

        def handle(image: MetadataImage) -> Decision[RegisterResponse]:
            nonlocal is_last
            live = self._sessions.is_live(node_id, self._clock.monotonic_ms())
            decision = register(image, session_live=live)
            is_last = decision.is_last
            if not decision.reply.error_code:
                self._touch(node_id)
            return decision

        while not is_last:
            reply = await self._controller.submit(f"register {self._kind.name}", handle, urgent=True)
        log.info(
            "answered a registration, %s=%d epoch=%d error=%r",
            self._kind.name,
            node_id,
            reply.epoch,
            reply.error_message,
        )
        return reply

    async def heartbeat(self, request: HeartbeatT) -> HeartbeatResponse:
        """Renews the node's session. Returns once the records that the heartbeat caused have committed."""
        node_id = self._kind.beating_id(request)

        def handle(image: MetadataImage) -> Decision[HeartbeatResponse]:
            decision = self._kind.handle_heartbeat(request, image)
            if decision.reply.should_shutdown:
                self._forget(node_id)
            elif not decision.reply.error_code:
                self._touch(node_id)
                self._heard[node_id] = (self._kind.metadata_end_index(request), self._clock.monotonic_ms())
            if decision.records:
                log.info(
                    "a heartbeat changed the state of %s=%d fenced=%s", self._kind.name, node_id, decision.reply.fenced
                )
            return decision

        if self._changes_nothing(node_id, request):
            return handle(self._controller.committed).reply
        return await self._controller.submit(f"heartbeat of {self._kind.name}", handle, urgent=True)

    def may_hold(self, node_id: int, epoch: int) -> bool:
        """True if this controller is active and the node is registered with this epoch."""
        return self._controller.is_active and self._epoch(node_id) == epoch

    async def hold(self, node_id: int, epoch: int) -> None:
        """Waits until this controller is no longer active. A cancellation means that the node's connection closed, so
        it starts the timer that fences a silent node."""
        try:
            await self._inactive.wait()
        except asyncio.CancelledError:
            self._on_connection_lost(node_id, epoch)
            raise

    def _on_connection_lost(self, node_id: int, epoch: int) -> None:
        if not self.may_hold(node_id, epoch):
            return
        log.info("lost the connection of %s=%d", self._kind.name, node_id)
        last_deadline_ms = self._sessions.deadline_ms(node_id)
        due_ms = self._clock.monotonic_ms() + self._connection_loss_timeout_ms

        def fence_if_silent() -> None:
            is_silent = self._sessions.deadline_ms(node_id) == last_deadline_ms
            stood_still = self._clock.monotonic_ms() - due_ms > LATE_MS
            if is_silent and not stood_still and self.may_hold(node_id, epoch):
                self._sessions.remove(node_id)
                self._end_session(node_id)

        self._queue.schedule(f"{self._kind.name} {node_id} connection", due_ms, fence_if_silent)

    def _epoch(self, node_id: int) -> int | None:
        return self._kind.epoch(self._controller.committed, node_id)

    def _changes_nothing(self, node_id: int, request: HeartbeatT) -> bool:
        """True if the heartbeat makes no records and the node has no uncommitted change, so it needs no turn of the
        queue."""
        committed, appended = self._controller.committed, self._controller.appended
        settled = self._kind.nodes(committed).get(node_id) is self._kind.nodes(appended).get(node_id)
        return self._controller.is_active and settled and not self._kind.handle_heartbeat(request, committed).records

    @property
    def _tag(self) -> str:
        return f"{self._kind.name} sessions"

    def _touch(self, node_id: int) -> None:
        self._sessions.touch(node_id, self._clock.monotonic_ms())
        if self._armed_ms is None:
            self._arm()

    def _arm(self) -> None:
        self._armed_ms = self._sessions.next_deadline_ms()
        if self._armed_ms is not None:
            self._queue.schedule(self._tag, self._armed_ms, self._expire)

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        assert self._armed_ms is not None
        late_ms = now_ms - self._armed_ms
        if late_ms > LATE_MS:
            log.warning(
                "renewed the %s sessions, because this process was paused, late_ms=%d", self._kind.name, late_ms
            )
            self._sessions.renew(now_ms)
        for node_id in self._sessions.expire(now_ms):
            self._end_session(node_id)
        self._arm()

    def _forget(self, node_id: int) -> None:
        self._sessions.remove(node_id)
        self._heard.pop(node_id, None)

    def _end_session(self, node_id: int) -> None:
        self._heard.pop(node_id, None)
        decision = self._kind.handle_session_end(node_id, self._controller.appended)
        if not decision.records:
            return
        try:
            self._controller.decide(decision)
        except BrokerError as error:
            # The controller hands over, or too many records are uncommitted. Try again when another session has passed.
            log.warning("could not fence %s=%d: %s", self._kind.name, node_id, error)
            self._sessions.touch(node_id, self._clock.monotonic_ms())
        else:
            log.warning("fenced %s=%d, because its session ended", self._kind.name, node_id)
