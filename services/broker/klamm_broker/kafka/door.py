"""The Kafka side of a broker, put together: bound early, for its port is part of the registration, opened when the
broker serves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from klamm_broker.config import BrokerConfig
from klamm_broker.kafka.apis import KafkaApis
from klamm_broker.kafka.cluster_view import ClusterView
from klamm_broker.kafka.fetch_sessions import FetchSessions
from klamm_broker.kafka.forwarding import ActiveController, Coordinators
from klamm_broker.kafka.listener import KafkaListener
from klamm_broker.rpc.handlers import Handlers
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_server.clock import Clock
from klamm_server.controllers import Controllers
from klamm_server.faults import watch
from klamm_server.metadata.image import MetadataImage


class KafkaDoor:
    """`bind`, then `open`, then `close`; does nothing where the config has no listener for Kafka clients."""

    def __init__(
        self,
        config: BrokerConfig,
        handlers: Handlers,
        controllers: Controllers,
        memory: RequestMemory,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self._config = config
        self._coordinators = Coordinators(image)
        self._controller = ActiveController(controllers, clock)
        view = ClusterView(image, config.node_id)
        sessions = FetchSessions(
            slots=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=config.min_incremental_fetch_session_eviction_ms,
            rng=random.Random(),
        )
        apis = KafkaApis(handlers, self._controller, self._coordinators, view, sessions, clock)
        self._listener = KafkaListener(
            apis.handle,
            memory,
            request_max_bytes=config.socket_request_max_bytes,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            connections_max=config.max_connections,
            idle_max_ms=config.connections_max_idle_ms,
            clock=clock,
        )
        self._idle_task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Connections."""
        return len(self._listener)

    async def bind(self) -> tuple[str, int] | None:
        """What Kafka clients dial. Raises KlammError when the port is taken."""
        listener = self._config.kafka_listener
        if listener is None:
            return None
        bound_port = await self._listener.bind(listener.host, listener.port)
        return self._config.advertised_kafka_endpoint(bound_port)

    async def open(self) -> None:
        """Accepts clients from now on."""
        if self._config.kafka_listener is not None:
            await self._listener.open()
            self._idle_task = watch(asyncio.create_task(self._listener.run(), name="kafka-idle-connections"))

    async def close(self) -> None:
        """Also after a start that failed."""
        if self._idle_task is not None:
            self._idle_task.cancel()
        await self._listener.close()
        await self._coordinators.close()
        await self._controller.close()
