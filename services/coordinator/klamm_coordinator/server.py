"""The coordinator's composition root: makes the parts, joins them, starts and stops them in order.

open    does nothing: all state is in `__consumer_offsets` and `__transaction_state`
start   follows the metadata, registers, sends heartbeats until unfenced
serve   opens shards when they are assigned, and answers calls about them (rpc/coordinator.py)
stop    asks the controller to move its shards to another coordinator, and closes them
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from klamm.rpc.transport import Transport
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.rpc.servicer import CoordinatorServicer
from klamm_server.links.audit_topic import AuditTopic
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.links.registration import NOT_REGISTERED, REQUESTS_PER_SESSION, CoordinatorRegistrant, Registration
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener
from klamm_server.rpc.call_throttle import CallThrottle
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.other_services import KnownServers, Role
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.clock import Clock, SystemClock
from klamm_server.runtime.faults import watch
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.auditor import Auditor, auditor_of
from klamm_server.security.configured import authorizer_of, check_own_principal, gate_of
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.rate_window import WindowSpan
from klamm_server.security.session import for_itself

if TYPE_CHECKING:
    from klamm_coordinator.rpc.coordinator import Coordinator

log = logging.getLogger(__name__)


class CoordinatorServer:
    """One coordinator process, or the coordinator's part of an embedded cluster. The caller calls `register` before
    `start`."""

    def __init__(
        self,
        config: CoordinatorConfig,
        tls: ListenersTls | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        transport: Transport | None = None,
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        self._config = config
        authorizer = authorizer or authorizer_of(config)
        check_own_principal(authorizer, tls, must_be_super=False)
        self._clock = clock or SystemClock()
        self._transport = transport or GrpcServerTransport(tls=None if tls is None else tls.between_servers)
        self._auditor = auditor_of(
            config,
            "coordinator",
            self._clock,
            self._make_audit_topic,
        )
        self._gate = gate_of(
            authorizer,
            tls,
            lambda: self._link.image.acls,
            servers_listener=config.servers_listener(),
            is_loaded=lambda: self.loaded_image() is not None,
            auditor=self._auditor,
        )
        self._rng = rng or random.SystemRandom()
        self._tasks: list[asyncio.Task[None]] = []
        self._registration: Registration | None = None
        self._controllers = Controllers(config.controllers, config.resolved_listeners().between_servers)
        self._link = MetadataLink(
            self._transport,
            self._controllers,
            cluster_id="",
            on_image=self._on_image,
            clock=self._clock,
            rng=self._rng,
        )
        self._coordinator: Coordinator | None = None
        self._is_stopped = False
        self._servicer = CoordinatorServicer(self._loaded_coordinator)

    def _make_audit_topic(self) -> AuditTopic:
        own = self._config.resolved_listeners().between_servers
        return AuditTopic(self._transport, lambda: self._link.image, own, self._clock)

    async def open(self) -> None:
        """Does nothing, because a coordinator has no local data to recover."""

    def register(self, rpc: RpcServer) -> None:
        """Adds the Coordinator service to `rpc`. The service answers NOT_COORDINATOR until shards are assigned."""
        quotas = ClientQuotas(WindowSpan(self._config.quota_window_num, 1000 * self._config.quota_window_size_seconds))
        throttle = CallThrottle(quotas, self._clock, newest=lambda: self._link.image.client_quotas)
        rpc.add_role(Role.COORDINATOR, KnownServers(lambda: self._link.image, self._controllers_active_first))
        rpc.add_service(COORDINATOR, self._servicer, self._gate, throttle)

    def _controllers_active_first(self) -> list[tuple[Listener, ...]]:
        return self._controllers.active_first("" if self._registration is None else self._registration.controller)

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Starts the coordinator, and returns when it is registered and unfenced. Clients and servers connect to
        `endpoints`.

        Raises the BrokerError of a refused registration."""
        self._spawn("metadata-link", self._link.run())
        self._registration = registration = self._make_registration(endpoints)
        await registration.register()
        self._spawn("registration", registration.run())
        await registration.wait_unfenced()
        log.info("coordinator=%d serving host=%s port=%d", self._config.node_id, *endpoints[0].address)

    def loaded_image(self) -> MetadataImage | None:
        image = self._link.image
        return image if self._epoch() != NOT_REGISTERED and image.end_index > self._epoch() else None

    @property
    def coordinator(self) -> Coordinator | None:
        """The running coordinator, or None before the cluster has shards and before the first call."""
        return self._coordinator

    @property
    def auditors(self) -> Sequence[Auditor]:
        return () if self._auditor is None else (self._auditor,)

    async def wait_serving(self, wanted: bool) -> None:
        assert self._registration is not None, "the coordinator has not started"
        await self._registration.wait_serving(wanted)

    async def stop(self) -> None:
        """Stops the server, also after a `start` that failed."""
        if self._epoch() != NOT_REGISTERED and self._config.controlled_shutdown_enable:
            assert self._registration is not None
            await self._registration.shut_down(self._config.broker_session_timeout_ms)
        self._is_stopped = True
        if self._coordinator is not None:
            await self._coordinator.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._coordinator is not None:
            await self._coordinator.close_channels()

    async def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if self._coordinator is not None or new.shards:
            (await self._loaded_coordinator()).on_image(old, new)

    async def _loaded_coordinator(self) -> Coordinator:
        """Loads the code of groups and transactions at their first use, because it takes 60 ms and 3 MB. A thread loads
        it, so that heartbeats, and in `klamm up` the broker, are not delayed."""
        if self._coordinator is None:
            coordinator_class = await asyncio.to_thread(_coordinator_class)
            if self._coordinator is None:
                # The tasks that begin here act for the server, not for the caller of the first call.
                with for_itself():
                    self._coordinator = coordinator_class(
                        self._config,
                        self._transport,
                        self._controllers,
                        lambda: self._link.image,
                        epoch=self._epoch,
                        clock=self._clock,
                        rng=self._rng,
                    )
                if self._is_stopped:
                    await self._coordinator.close()
        return self._coordinator

    def _epoch(self) -> int:
        return NOT_REGISTERED if self._registration is None else self._registration.epoch

    def _make_registration(self, endpoints: Sequence[Listener]) -> Registration:
        config = self._config
        member = CoordinatorRegistrant(
            coordinator_id=config.node_id, incarnation_id=self._rng.randbytes(16), listeners=endpoints
        )
        return Registration(
            member,
            self._transport,
            self._controllers,
            link=self._link,
            cluster_id="",
            clock=self._clock,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            request_timeout_ms=config.broker_session_timeout_ms // REQUESTS_PER_SESSION,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            rng=self._rng,
        )

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(watch(asyncio.create_task(coroutine, name=f"coordinator-{name}")))


def _coordinator_class() -> type[Coordinator]:
    from klamm_coordinator.rpc.coordinator import Coordinator

    return Coordinator
