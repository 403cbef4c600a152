"""A broker's or coordinator's membership of the cluster: registration, heartbeats, controlled shutdown.

It follows KIP-631's BrokerLifecycleManager. A registration has an epoch, and heartbeats keep it valid. If a controller
does not know the epoch any more, the server registers again with the same incarnation id. The server reads from the
metadata image whether it is fenced, like all other servers. The first heartbeat of an epoch waits until the image
includes the registration, because only such a heartbeat unfences the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.retry import Backoff
from klamm.rpc.transport import Transport
from klamm.wire.v1.controller_pb2 import (
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    HeartbeatResponse,
    HoldSessionRequest,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    RegisterResponse,
)
from klamm.wire.v1.controller_rpc import CONTROLLER, ControllerStub
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol, encode, endpoint, first
from klamm_server.rpc.controller_channel import ControllerChannel
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.awaitable_flag import AwaitableFlag
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

RETRY = Backoff(initial_ms=50, max_ms=1_000)

NOT_REGISTERED = -1
"""The epoch before the first registration."""

_LOST = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
_WORTH_WAITING = frozenset({ErrorCode.DUPLICATE_BROKER_REGISTRATION})
"""Errors that Kafka's table does not call retriable, but that end with the session of the previous process."""

REQUESTS_PER_SESSION = 2
"""The number of requests that may time out within a session timeout."""

SHUTDOWN_HEARTBEATS_PER_INTERVAL = 10
"""The factor by which heartbeats are more frequent while the server waits for permission to stop."""


class Registrant(Protocol):
    """The server that registers. Brokers and coordinators differ in these methods."""

    def __str__(self) -> str: ...

    def register(self, stub: ControllerStub, cluster_id: str, timeout_ms: int) -> Awaitable[RegisterResponse]: ...

    def send_heartbeat(
        self, stub: ControllerStub, epoch: int, metadata_end_index: int, want_shutdown: bool, timeout_ms: int
    ) -> Awaitable[HeartbeatResponse]: ...

    def hold_request(self, epoch: int) -> HoldSessionRequest: ...

    def is_unfenced(self, image: MetadataImage, epoch: int) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrant:
    """A broker process. `incarnation_id` is 16 random bytes made at its start. `previous_broker_epoch` is the epoch of
    the previous process after a clean shutdown, otherwise 0."""

    broker_id: int
    incarnation_id: bytes
    listeners: Sequence[Listener]
    """The listeners that others dial. Other servers dial the first gRPC one."""
    rack: str
    log_dir_ids: tuple[bytes, ...]
    static_configs: Mapping[str, str]
    offline_log_dir_ids: Callable[[], Sequence[bytes]]
    previous_broker_epoch: int = 0

    def __str__(self) -> str:
        return f"broker {self.broker_id}"

    def register(self, stub: ControllerStub, cluster_id: str, timeout_ms: int) -> Awaitable[RegisterResponse]:
        request = RegisterBrokerRequest(
            cluster_id=cluster_id,
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            endpoint=endpoint(first(self.listeners, SecurityProtocol.GRPC)),
            rack=self.rack,
            log_dir_ids=self.log_dir_ids,
            static_configs=dict(self.static_configs),
            previous_broker_epoch=self.previous_broker_epoch,
            kafka_endpoint=endpoint(first(self.listeners, SecurityProtocol.KAFKA)),
            listeners=encode(self.listeners),
        )
        return stub.register_broker(request, timeout_ms=timeout_ms)

    def send_heartbeat(
        self, stub: ControllerStub, epoch: int, metadata_end_index: int, want_shutdown: bool, timeout_ms: int
    ) -> Awaitable[HeartbeatResponse]:
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=epoch,
            metadata_end_index=metadata_end_index,
            want_shutdown=want_shutdown,
            offline_log_dir_ids=self.offline_log_dir_ids(),
        )
        return stub.broker_heartbeat(request, timeout_ms=timeout_ms)

    def hold_request(self, epoch: int) -> HoldSessionRequest:
        return HoldSessionRequest(broker_id=self.broker_id, epoch=epoch)

    def is_unfenced(self, image: MetadataImage, epoch: int) -> bool:
        broker = image.brokers.get(self.broker_id)
        return broker is not None and broker.broker_epoch == epoch and not broker.fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRegistrant:
    """A coordinator process. `incarnation_id` is 16 random bytes made at its start."""

    coordinator_id: int
    incarnation_id: bytes
    listeners: Sequence[Listener]
    """The listeners that others dial. Other servers dial the first one."""

    def __str__(self) -> str:
        return f"coordinator {self.coordinator_id}"

    def register(self, stub: ControllerStub, cluster_id: str, timeout_ms: int) -> Awaitable[RegisterResponse]:
        request = RegisterCoordinatorRequest(
            cluster_id=cluster_id,
            coordinator_id=self.coordinator_id,
            incarnation_id=self.incarnation_id,
            endpoint=endpoint(first(self.listeners, SecurityProtocol.GRPC)),
            listeners=encode(self.listeners),
        )
        return stub.register_coordinator(request, timeout_ms=timeout_ms)

    def send_heartbeat(
        self, stub: ControllerStub, epoch: int, metadata_end_index: int, want_shutdown: bool, timeout_ms: int
    ) -> Awaitable[HeartbeatResponse]:
        request = CoordinatorHeartbeatRequest(
            coordinator_id=self.coordinator_id,
            coordinator_epoch=epoch,
            metadata_end_index=metadata_end_index,
            want_shutdown=want_shutdown,
        )
        return stub.coordinator_heartbeat(request, timeout_ms=timeout_ms)

    def hold_request(self, epoch: int) -> HoldSessionRequest:
        return HoldSessionRequest(coordinator_id=self.coordinator_id, epoch=epoch)

    def is_unfenced(self, image: MetadataImage, epoch: int) -> bool:
        coordinator = image.coordinators.get(self.coordinator_id)
        return coordinator is not None and coordinator.coordinator_epoch == epoch and not coordinator.fenced


class Registration:
    """Registers `registrant` (`register`) and keeps it registered (`run`, a task of its own).

    Every answer of the active controller updates the addresses in `controllers`. `link` is the server's metadata link,
    run by the caller. `cluster_id` is that of the server's data, or empty if it has none. The first registration must
    be accepted within `registration_timeout_ms` (`initial.broker.registration.timeout.ms`). A later one is retried for
    ever. Each call to the controller times out after `request_timeout_ms`. It must be less than the session timeout,
    because otherwise one dead controller would end the session."""

    def __init__(
        self,
        registrant: Registrant,
        transport: Transport,
        controllers: Controllers,
        *,
        link: MetadataLink,
        cluster_id: str,
        clock: Clock,
        heartbeat_interval_ms: int,
        request_timeout_ms: int,
        registration_timeout_ms: int,
        rng: random.Random,
    ) -> None:
        self._registrant = registrant
        self._controllers = controllers
        self._channel = ControllerChannel(transport, controllers, CONTROLLER)
        self._link = link
        self._clock = clock
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._request_timeout_ms = request_timeout_ms
        self._registration_timeout_ms = registration_timeout_ms
        self._retries = ServerRetries("registration", str(registrant), RETRY, rng)
        self._why = ""
        """The reason why the last call had no answer or was refused."""
        self._hurry = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None
        self._want_shutdown = False
        self._may_stop = asyncio.Event()
        self._in_touch = AwaitableFlag()
        """The switch is on while the session of this process at the controllers is valid."""
        self._heard_ms = clock.monotonic_ms()
        self.cluster_id = cluster_id
        """The cluster's id, which is known after the registration."""
        self.epoch = NOT_REGISTERED
        """The epoch of the newest registration. Every call on behalf of this process contains it."""

    @property
    def controller(self) -> str:
        """The host:port of the controller that gets the heartbeats. It is the active one, as far as this process
        knows.
        """
        return self._channel.address

    @property
    def fenced(self) -> bool:
        """True while the cluster gives this server no work, as far as this process knows."""
        return not self._registrant.is_unfenced(self._link.image, self.epoch)

    async def wait_unfenced(self) -> None:
        """Waits until the metadata image shows that the current registration is not fenced."""
        await self._wait_fenced(False)

    async def wait_serving(self, wanted: bool) -> None:
        """Waits until the server is unfenced and in contact with a controller. If not `wanted`, waits until one of
        these is no longer true.

        If a server is cut off from the controllers, they have fenced it, but its metadata image cannot show this."""
        while (self._in_touch.is_on and not self.fenced) is not wanted:
            changes = [
                asyncio.create_task(self._wait_fenced(not self.fenced)),
                asyncio.create_task(self._in_touch.wait(not self._in_touch.is_on)),
            ]
            try:
                await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for change in changes:
                    change.cancel()

    async def register(self) -> None:
        """Registers for the first time, and sets `epoch` and `cluster_id`.

        Raises the BrokerError of a permanent refusal (INCONSISTENT_CLUSTER_ID...), or the last error after
        `registration_timeout_ms`."""
        await self._register(self._clock.monotonic_ms() + self._registration_timeout_ms)

    async def run(self) -> None:
        """Keeps the registration valid until it is cancelled, or until `shut_down` was granted.

        Raises the BrokerError of a permanent refusal. The process must then stop."""
        assert self.epoch != NOT_REGISTERED, f"{self._registrant} is not registered yet"
        try:
            await self._keep_alive()
            while not self._may_stop.is_set():
                await self._register(None)
                await self._keep_alive()
        finally:
            if self._holding is not None:
                self._holding.cancel()
            await self._channel.close()

    async def shut_down(self, timeout_ms: int) -> bool:
        """Requests a controlled shutdown, and waits until the server's work has moved elsewhere, for `timeout_ms` at
        most.

        Returns whether the shutdown was granted. `run` must be running, and ends then."""
        self._want_shutdown = True
        self._hurry.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._may_stop.wait()
        granted = self._may_stop.is_set()
        log.info("%s requested a controlled shutdown, granted=%s", self._registrant, granted)
        return granted

    async def _wait_fenced(self, fenced: bool) -> None:
        await self._link.wait_for(lambda image: self._registrant.is_unfenced(image, self.epoch) is not fenced)

    async def _register(self, deadline_ms: int | None) -> None:
        while True:
            response = await self._answer(
                self._registrant.register(self._channel.stub(), self.cluster_id, self._request_timeout_ms)
            )
            code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(response.error_code)
            if response is not None and code is ErrorCode.NONE:
                self._accept(response)
                return
            text = f"no controller answered at {self._channel.address}" if response is None else response.error_message
            if not code.retriable and code not in _WORTH_WAITING:
                raise code.exception(f"{self._registrant} cannot register: {text}")
            if deadline_ms is not None and self._clock.monotonic_ms() >= deadline_ms:
                raise code.exception(
                    f"{self._registrant} could not register within {self._registration_timeout_ms} ms: {text}"
                )
            await self._back_off(response)

    def _accept(self, response: RegisterResponse) -> None:
        assert response.epoch > self.epoch, f"{self._registrant}: epoch {response.epoch} follows {self.epoch}"
        self._note_answer()
        self.epoch = response.epoch
        self.cluster_id = response.cluster_id
        self._controllers.learn(response.controllers, response.controller_listeners)
        log.info(
            "%s registered epoch=%d cluster_id=%s controller=%s",
            self._registrant,
            self.epoch,
            self.cluster_id,
            self._channel.address,
        )

    async def _keep_alive(self) -> None:
        """Sends heartbeats until the controller has lost this registration or lets the server stop."""
        self._hold()
        await self._catch_up()
        while True:
            response = await self._answer(
                self._registrant.send_heartbeat(
                    self._channel.stub(),
                    self.epoch,
                    self._link.image.end_index,
                    self._want_shutdown,
                    self._request_timeout_ms,
                )
            )
            code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(response.error_code)
            if code in _LOST:
                log.warning("%s epoch=%d is no longer registered: %s", self._registrant, self.epoch, code.name)
                return
            if response is None or code is not ErrorCode.NONE:
                await self._back_off(response)
                continue
            self._note_answer()
            self._controllers.learn(response.controllers, response.controller_listeners)
            if self._want_shutdown and response.should_shutdown:
                self._may_stop.set()
                return
            self._hold()
            await self._pause()

    def _hold(self) -> None:
        if self._holding is None or self._holding.done():
            self._holding = asyncio.create_task(self._hold_session(), name=f"{self._registrant} session")

    async def _hold_session(self) -> None:
        """Holds a stream open whose end tells the controller that this process has died. If only the stream ends, sends
        a heartbeat at once."""
        is_held = False
        try:
            async for _ in self._channel.stub().hold_session(self._registrant.hold_request(self.epoch)):
                is_held = True
        except BrokerError as error:
            log.info("the session stream of %s ended: %s", self._registrant, error)
        if is_held:
            self._hurry.set()

    async def _catch_up(self) -> None:
        """Waits until the image includes the registration, but at most until the next heartbeat must be sent."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._heartbeat_interval_ms / 1000):
                await self._link.wait_for(lambda image: image.end_index > self.epoch)

    async def _pause(self) -> None:
        """Waits until the next heartbeat is due. `shut_down` and a lost connection end the wait early."""
        interval_ms = self._heartbeat_interval_ms
        if self._want_shutdown:
            interval_ms = max(1, interval_ms // SHUTDOWN_HEARTBEATS_PER_INTERVAL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_ms / 1000):
                await self._hurry.wait()
        self._hurry.clear()

    async def _answer(self, call: Awaitable[AnswerT]) -> AnswerT | None:
        """Returns the answer, or None if the call failed."""
        try:
            return await call
        except BrokerError as error:
            self._why = str(error)
            return None

    def _note_answer(self) -> None:
        self._retries.reset()
        self._heard_ms = self._clock.monotonic_ms()
        self._in_touch.set(True)

    async def _back_off(self, response: RegisterResponse | HeartbeatResponse | None) -> None:
        if self._clock.monotonic_ms() - self._heard_ms >= REQUESTS_PER_SESSION * self._request_timeout_ms:
            self._in_touch.set(False)
        if response is None:
            self._channel.rotate()
        elif response.error_code == ErrorCode.NOT_CONTROLLER:
            self._why = f"{self._channel.address} is not the active controller"
            self._channel.redirect(response.controller)
        else:
            code = ErrorCode.of(response.error_code)
            self._why = f"refused by controller={self._channel.address} code={code.name} {response.error_message}"
        await self._retries.pause(self._why)
