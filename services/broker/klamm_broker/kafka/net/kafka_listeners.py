"""Connects the parts of a broker's Kafka listeners. They are bound early, because the broker registers their ports, and
opened when the broker serves.

Each listener shows the cluster with the addresses that its own clients can reach. The listeners share everything else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from klamm.rpc.transport import Transport
from klamm.security.principal_rules import PrincipalRules
from klamm.setting import INT_MAX
from klamm_broker.handlers.handlers import Handlers
from klamm_broker.io.metrics import FETCH_SESSION_BYTES, FETCH_SESSION_REFUSALS
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.kafka.apis import KafkaApis
from klamm_broker.kafka.cold.forwarding import ActiveController, Coordinators
from klamm_broker.kafka.hot.fetch_sessions import FetchSessions
from klamm_broker.kafka.hot.framed_fetch import FramedFetch
from klamm_broker.kafka.hot.framed_produce import FramedProduce
from klamm_broker.kafka.hot.framed_replica_fetch import FramedReplicaFetch
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.login.sasl_clients import SaslClients
from klamm_broker.kafka.net.handshake_limit import HandshakeLimit
from klamm_broker.kafka.net.listener import ConnectionLimit, KafkaListener
from klamm_broker.kafka.net.tls_clients import TlsClients
from klamm_broker.kafka.recently_fenced_brokers import RecentlyFencedBrokers
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_broker.replica.reader_watch import ReaderWatch
from klamm_broker.replication.follower_streams import FollowerStreams
from klamm_server.config.broker_configs import FETCH_SESSIONS_PART, BrokerConfig
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol
from klamm_server.rpc.controllers import Controllers
from klamm_server.runtime.byte_shares import ByteShares
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.faults import watch
from klamm_server.runtime.open_files import kafka_connections_max
from klamm_server.runtime.usable_memory import usable_memory_bytes
from klamm_server.security.auditor import Auditor
from klamm_server.security.gate import Gate
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.logins.logins import Logins
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.connection_pace import ConnectionPace
from klamm_server.security.quotas.rate_window import WindowSpan


class KafkaListeners:
    """All Kafka listeners of a broker. The owner calls `bind`, `open` and `close`. Without Kafka listeners in the
    config they do nothing."""

    def __init__(
        self,
        config: BrokerConfig,
        transport: Transport,
        handlers: Handlers,
        controllers: Controllers,
        memory: RequestMemory,
        metadata: MetadataWaiters,
        readers: ReaderWatch,
        followers: FollowerStreams,
        records: RecordReader,
        *,
        image: Callable[[], MetadataImage],
        nodes: BrokerNodes,
        clock: Clock,
        rng: random.Random,
        tls: ListenersTls | None = None,
        logins: Logins | None = None,
        gate: Gate | None = None,
        quotas: ClientQuotas | None = None,
        auditor: Auditor | None = None,
    ) -> None:
        self._listeners = config.resolved_listeners()
        self._coordinators = Coordinators(transport, image, config.resolved_listeners().between_servers)
        self._controller = ActiveController(transport, controllers, metadata, clock, rng)
        sessions = FetchSessions(
            readers,
            slots=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=config.min_incremental_fetch_session_eviction_ms,
            rng=rng,
            shares=ByteShares(
                config.fetch_session_max_bytes or usable_memory_bytes() // FETCH_SESSIONS_PART,
                "fetch.session.max.bytes",
            ),
        )
        FETCH_SESSION_BYTES.set_function(lambda: sessions.shares.held_bytes)
        FETCH_SESSION_REFUSALS.set_function(lambda: sessions.shares.refused_count)
        self._limit = limit = ConnectionLimit(_connections_max(config))
        span = WindowSpan(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._pace = pace = ConnectionPace(config.max_connection_creation_rate, span)
        on_their_way_in = HandshakeLimit(config.max_unauthenticated_connections)
        pairs = config.kafka_beside()
        for_followers = config.kafka_between_servers()
        recently_fenced = RecentlyFencedBrokers(image, clock, listed_ms=config.broker_session_timeout_ms)

        def listener(configured: Listener) -> KafkaListener:
            view = ListenerMetadata(image, config.node_id, configured.name, recently_fenced.ids)
            beside = next((grpc for grpc, kafka in pairs.items() if kafka == configured.name), "")
            apis = KafkaApis(
                handlers,
                self._controller,
                self._coordinators,
                view,
                sessions,
                clock,
                FramedProduce(handlers.produce, nodes, beside, request_timeout_ms=config.request_timeout_ms),
                FramedFetch(handlers.fetch, nodes, beside),
                FramedReplicaFetch(followers if configured.name == for_followers else None, records),
            )
            own = config.at_listener(configured.name)
            return KafkaListener(
                apis.handle,
                memory,
                ConnectionLimit(own.get("max_connections", INT_MAX), limit),
                request_max_bytes=config.socket_request_max_bytes,
                send_buffer_bytes=config.socket_send_buffer_bytes,
                idle_max_ms=config.connections_max_idle_ms,
                clock=clock,
                tls=_tls_clients(configured, tls, on_their_way_in, config, auditor),
                sasl=_sasl_clients(configured, logins, on_their_way_in, clock),
                gate=gate,
                quotas=quotas,
                name=configured.name,
                pace=ConnectionPace(own.get("max_connection_creation_rate", INT_MAX), span, pace),
            )

        self._by_name = {configured: listener(configured) for configured in self._listeners.of(SecurityProtocol.KAFKA)}
        self._idle_tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        """Returns the number of open connections."""
        return sum(map(len, self._by_name.values()))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies a new configuration. Existing connections stay, even if they exceed a new limit."""
        self._limit.connections_max = _connections_max(config)
        self._pace.rate_max = config.max_connection_creation_rate

    async def bind(self, grpc: Sequence[Listener]) -> Sequence[Listener]:
        """Binds the listeners. Returns the listeners with the addresses that Kafka clients dial. `grpc` are the
        listeners of gRPC clients. Raises KlammError if a port is in use."""
        addresses = " or ".join(f"{grpc_listener.host}:{grpc_listener.port}" for grpc_listener in grpc)
        for listener in self._by_name.values():
            listener.grpc_addresses = addresses
        ports = {
            configured.name: await listener.bind(configured.host, configured.port)
            for configured, listener in self._by_name.items()
        }
        return self._listeners.dialled(ports)

    async def open(self) -> None:
        """Starts accepting clients."""
        for configured, listener in self._by_name.items():
            await listener.open()
            task = asyncio.create_task(listener.run(), name=f"kafka-idle-connections-{configured.name}")
            self._idle_tasks.append(watch(task))

    async def close(self) -> None:
        """Closes the listeners, also after a failed start."""
        for task in self._idle_tasks:
            task.cancel()
        await asyncio.gather(*(listener.close() for listener in self._by_name.values()))
        await self._coordinators.close()
        await self._controller.close()


def _connections_max(config: BrokerConfig) -> int:
    """Returns `max.connections`, or fewer if the limit of open files is low."""
    return min(config.max_connections, kafka_connections_max())


def _sasl_clients(listener: Listener, logins: Logins | None, limit: HandshakeLimit, clock: Clock) -> SaslClients | None:
    """Returns the login state of the listener's clients, or None without logins."""
    if not listener.security.wants_sasl:
        return None
    its_own = None if logins is None else logins.at(listener.name)
    assert its_own is not None, f"nobody has read what clients of {listener.name} log in by"
    return SaslClients(its_own, limit, clock)


def _tls_clients(
    listener: Listener,
    tls: ListenersTls | None,
    limit: HandshakeLimit,
    config: BrokerConfig,
    auditor: Auditor | None,
) -> TlsClients | None:
    """Returns the TLS state of the listener's clients, or None without TLS."""
    if not listener.security.is_encrypted:
        return None
    its_own = None if tls is None else tls.of(listener.name)
    assert its_own is not None, f"nobody has read the certificates of {listener.name}"
    timeout_ms = its_own.settings.ssl_handshake_timeout_ms
    if listener.security.wants_sasl:
        timeout_ms = min(timeout_ms, config.sasl_settings(listener.name).authentication_timeout_ms)
    return TlsClients(
        its_own.server_context,
        PrincipalRules.parse(its_own.settings.ssl_principal_mapping_rules),
        timeout_ms=timeout_ms,
        limit=limit,
        names_clients=not listener.security.wants_sasl,
        listener=listener.name,
        auditor=auditor,
    )
