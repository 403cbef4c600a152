"""The Kafka side of a broker, put together: bound early, for its ports are part of the registration, opened when the
broker serves. Each listener shows the cluster as its own clients reach it; all else they share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from klamm_broker.config import BrokerConfig
from klamm_broker.kafka.apis import KafkaApis
from klamm_broker.kafka.cluster_view import ClusterView
from klamm_broker.kafka.fetch_sessions import FetchSessions
from klamm_broker.kafka.forwarding import ActiveController, Coordinators
from klamm_broker.kafka.just_fenced import JustFenced
from klamm_broker.kafka.listener import ConnectionRoom, KafkaListener
from klamm_broker.metadata_waiters import MetadataWaiters
from klamm_broker.rpc.handlers import Handlers
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_server.clock import Clock
from klamm_server.controllers import Controllers
from klamm_server.faults import watch
from klamm_server.listeners import Listener, SecurityProtocol
from klamm_server.metadata.image import MetadataImage


class KafkaDoor:
    """`bind`, then `open`, then `close`; does nothing where the config has no listeners for Kafka clients."""

    def __init__(
        self,
        config: BrokerConfig,
        handlers: Handlers,
        controllers: Controllers,
        memory: RequestMemory,
        metadata: MetadataWaiters,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self._listeners = config.resolved_listeners()
        self._coordinators = Coordinators(image)
        self._controller = ActiveController(controllers, metadata, clock)
        sessions = FetchSessions(
            slots=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=config.min_incremental_fetch_session_eviction_ms,
            rng=random.Random(),
        )
        room = ConnectionRoom(config.max_connections)
        just_fenced = JustFenced(image, clock, listed_ms=config.broker_session_timeout_ms)

        def listener(name: str) -> KafkaListener:
            view = ClusterView(image, config.node_id, name, just_fenced.ids)
            apis = KafkaApis(handlers, self._controller, self._coordinators, view, sessions, clock)
            return KafkaListener(
                apis.handle,
                memory,
                room,
                request_max_bytes=config.socket_request_max_bytes,
                send_buffer_bytes=config.socket_send_buffer_bytes,
                idle_max_ms=config.connections_max_idle_ms,
                clock=clock,
            )

        self._doors = {one: listener(one.name) for one in self._listeners.of(SecurityProtocol.KAFKA)}
        self._idle_tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        """Connections."""
        return sum(map(len, self._doors.values()))

    async def bind(self, grpc: Sequence[Listener]) -> Sequence[Listener]:
        """What Kafka clients dial. `grpc` is what others do. Raises KlammError when a port is taken."""
        addresses = " or ".join(f"{one.host}:{one.port}" for one in grpc)
        for door in self._doors.values():
            door.grpc_addresses = addresses
        ports = {one.name: await door.bind(one.host, one.port) for one, door in self._doors.items()}
        return self._listeners.dialled(ports)

    async def open(self) -> None:
        """Accepts clients from now on."""
        for one, door in self._doors.items():
            await door.open()
            task = asyncio.create_task(door.run(), name=f"kafka-idle-connections-{one.name}")
            self._idle_tasks.append(watch(task))

    async def close(self) -> None:
        """Also after a start that failed."""
        for task in self._idle_tasks:
            task.cancel()
        await asyncio.gather(*(door.close() for door in self._doors.values()))
        await self._coordinators.close()
        await self._controller.close()
