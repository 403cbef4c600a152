"""The coordinator's composition root: makes the parts, joins them, starts and stops them in order.

open    nothing: all of its state is in `__consumer_offsets`
start   follows the metadata, registers, sends heartbeats until unfenced
(work)  shards are opened as they are assigned, calls about them answered (work.py)
stop    has its shards moved to another coordinator, lets them go
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from klamm.wire.service import COORDINATOR
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.rpc.servicer import CoordinatorServicer
from klamm_server.clock import Clock, SystemClock
from klamm_server.controllers import Controllers
from klamm_server.faults import watch
from klamm_server.listeners import Listener
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata_link import MetadataLink
from klamm_server.registration import NOT_REGISTERED, REQUESTS_PER_SESSION, CoordinatorMember, Registration
from klamm_server.rpc_server import RpcServer

if TYPE_CHECKING:
    from klamm_coordinator.work import Work

log = logging.getLogger(__name__)


class CoordinatorServer:
    """One coordinator process, or the coordinator's part of an embedded cluster. `register` comes before `start`."""

    def __init__(
        self, config: CoordinatorConfig, *, clock: Clock | None = None, rng: random.Random | None = None
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._tasks: list[asyncio.Task[None]] = []
        self._registration: Registration | None = None
        self._controllers = Controllers(config.controllers)
        self._link = MetadataLink(self._controllers, cluster_id="", on_image=self._on_image, clock=self._clock)
        self._work: Work | None = None
        self._is_stopped = False
        self._servicer = CoordinatorServicer(self._loaded_work)

    async def open(self) -> None:
        """There is nothing to recover."""

    def register(self, rpc: RpcServer) -> None:
        """Adds the Coordinator service; it answers NOT_COORDINATOR until shards are assigned."""
        rpc.add_service(COORDINATOR, self._servicer)

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Returns when the cluster gives it work. `endpoints` are what others are told to dial.

        Raises the BrokerError of a refused registration."""
        self._spawn("metadata-link", self._link.run())
        self._registration = registration = self._make_registration(endpoints)
        await registration.register()
        self._spawn("registration", registration.run())
        await registration.wait_unfenced()
        log.info("coordinator=%d serving host=%s port=%d", self._config.node_id, *endpoints[0].address)

    async def wait_serving(self, wanted: bool) -> None:
        assert self._registration is not None, "the coordinator has not started"
        await self._registration.wait_serving(wanted)

    async def stop(self) -> None:
        """Also after a `start` that failed."""
        if self._epoch() != NOT_REGISTERED and self._config.controlled_shutdown_enable:
            assert self._registration is not None
            await self._registration.shut_down(self._config.broker_session_timeout_ms)
        self._is_stopped = True
        if self._work is not None:
            await self._work.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._work is not None:
            await self._work.close_channels()

    async def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if self._work is not None or new.shards:
            (await self._loaded_work()).on_image(old, new)

    async def _loaded_work(self) -> Work:
        """Where nobody uses groups or transactions, their code is not loaded: it takes 60 ms and 3 MB. In a thread, so
        that heartbeats, and in `klamm up` the broker, go on meanwhile."""
        if self._work is None:
            work_class = await asyncio.to_thread(_work_class)
            if self._work is None:
                self._work = work_class(
                    self._config,
                    self._controllers,
                    lambda: self._link.image,
                    epoch=self._epoch,
                    clock=self._clock,
                    rng=self._rng,
                )
                if self._is_stopped:
                    await self._work.close()
        return self._work

    def _epoch(self) -> int:
        return NOT_REGISTERED if self._registration is None else self._registration.epoch

    def _make_registration(self, endpoints: Sequence[Listener]) -> Registration:
        config = self._config
        member = CoordinatorMember(
            coordinator_id=config.node_id, incarnation_id=self._rng.randbytes(16), listeners=endpoints
        )
        return Registration(
            member,
            self._controllers,
            link=self._link,
            cluster_id="",
            clock=self._clock,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            request_timeout_ms=config.broker_session_timeout_ms // REQUESTS_PER_SESSION,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
        )

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(watch(asyncio.create_task(coroutine, name=f"coordinator-{name}")))


def _work_class() -> type[Work]:
    from klamm_coordinator.work import Work

    return Work
