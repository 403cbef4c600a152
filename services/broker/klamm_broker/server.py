"""The broker's composition root: creates the parts, connects them, and starts and stops them in order.

    open    locks the log directories and recovers the logs; needs no network unless all directories are new
    start   gets the cluster from a controller's metadata, claims new directories for it, registers, waits for an image
            with this registration, applies it to the replicas, and sends heartbeats until the broker is unfenced
    stop    hands over leaderships, refuses calls, wakes waiting requests, makes everything durable

Stray logs are removed only under an image that includes this start's registration. An older image, from a controller
that lags behind, may lack a topic that exists.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from klamm.errors import KlammError
from klamm.model import AUDIT_TOPIC
from klamm.rpc.transport import Transport
from klamm.wire.v1.broker_rpc import BROKER, REPLICATION
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest
from klamm_broker.grpc.servicer import BrokerServicer
from klamm_broker.handlers.delete_records import DeleteRecordsHandler
from klamm_broker.handlers.describe_producers import DescribeProducersHandler
from klamm_broker.handlers.describe_unread import DescribeUnreadHandler
from klamm_broker.handlers.fetch import FetchHandler
from klamm_broker.handlers.find_coordinator import CoordinatorFinder
from klamm_broker.handlers.handlers import Handlers
from klamm_broker.handlers.init_producer_id import InitProducerIdHandler
from klamm_broker.handlers.late_checks import LateChecks
from klamm_broker.handlers.list_offsets import ListOffsetsHandler
from klamm_broker.handlers.log_dirs import LogDirsHandler
from klamm_broker.handlers.metadata import MissingTopics
from klamm_broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from klamm_broker.handlers.produce import ProduceHandler
from klamm_broker.handlers.transaction_guards import TransactionGuards
from klamm_broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from klamm_broker.io.allocator import keep_request_memory
from klamm_broker.io.hold_offsets import HoldOffsets
from klamm_broker.io.metrics import watch_gauges
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.record_thread import RecordThread
from klamm_broker.io.replica_records import ReplicaRecords
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.io.transaction_registry import TransactionRegistry
from klamm_broker.kafka.net.kafka_listeners import KafkaListeners
from klamm_broker.log.dirs.log_directories import stored_cluster_id
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.files.storage_failure import LogDirError
from klamm_broker.maintenance.storage import Storage
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.metadata.dynamic_config import DynamicConfig
from klamm_broker.metadata.metadata_publisher import MetadataPublisher
from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_broker.metadata.topic_creator import TopicCreator
from klamm_broker.replica.replica_selector import replica_selector
from klamm_broker.replication.replication import ANSWER_OVERHEAD_BYTES, Replication
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.config_defs import effective_topic_configs
from klamm_server.links.audit_topic import AuditTopic
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.links.producer_ids import ProducerIds
from klamm_server.links.registration import NOT_REGISTERED, REQUESTS_PER_SESSION, BrokerRegistrant, Registration
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol
from klamm_server.rpc.call_throttle import CallThrottle
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.other_services import KnownServers, Role
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.clock import Clock, SystemClock
from klamm_server.runtime.disk import Disk
from klamm_server.runtime.faults import watch
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.auditor import Auditor, auditor_of
from klamm_server.security.configured import authorizer_of, check_own_principal, gate_of
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.logins.logins import Logins
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.rate_window import WindowSpan

log = logging.getLogger(__name__)

COLD_READ_THREADS = 4
"""The fetches of old records that wait for the disk at the same time. Further fetches queue."""


class BrokerServer:
    """One broker. The owner calls `open`, `register`, `start` and `stop` in this order."""

    def __init__(
        self,
        config: BrokerConfig,
        tls: ListenersTls | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        rng: random.Random | None = None,
        transport: Transport | None = None,
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        self._config = config
        self._transport = transport or GrpcServerTransport(tls=None if tls is None else tls.between_servers)
        authorizer = authorizer or authorizer_of(config)
        check_own_principal(authorizer, tls, must_be_super=False)
        self._clock = clock or SystemClock()
        self._auditor = auditor_of(config, "broker", self._clock, self._make_audit_topic)
        self._gate = gate_of(
            authorizer,
            tls,
            lambda: self._replicas.image.acls,
            servers_listener=config.servers_listener(),
            is_loaded=lambda: self.loaded_image() is not None,
            auditor=self._auditor,
        )
        self._disk = disk or Disk()
        self._rng = rng or random.SystemRandom()
        self._logins = Logins.of(config, SecurityProtocol.KAFKA, self._clock, self._rng, self._auditor)
        self._tasks: list[asyncio.Task[None]] = []
        self._registration: Registration | None = None
        """Set when the data for the registration are complete."""
        self._is_member = False
        """True while the registration is kept up, so that `stop` must end it cleanly."""
        self._publishes_images = False
        self._checks, self._lookups = RecordThread("record-checks"), RecordThread("time-lookups")
        self._records = RecordReader(self._disk, thread_count=COLD_READ_THREADS)
        self._memory = RequestMemory(config.queued_max_request_bytes)
        self._quotas = ClientQuotas(WindowSpan(config.quota_window_num, config.quota_window_size_seconds * 1000))
        self._controllers = Controllers(config.controllers, config.resolved_listeners().between_servers)
        self._link = MetadataLink(
            self._transport,
            self._controllers,
            cluster_id="",
            on_image=self._on_image,
            clock=self._clock,
            rng=self._rng,
        )
        self._logs = LogManager(LogManagerConfig.of(config), self._disk, self._rng)
        # A given transport carries all calls between servers.
        self._replication = self._make_replication("" if transport else config.kafka_between_servers())
        self._replicas = self._replication.replicas
        self._fetches, self._produces = self._replication.fetches, self._replication.produces
        self._replica_records = ReplicaRecords(
            self._transport,
            self._replication.address,
            receive_max_bytes=config.socket_request_max_bytes + ANSWER_OVERHEAD_BYTES,
        )
        self._hold_offsets = HoldOffsets(
            self._transport,
            lambda: self._replicas.image,
            config.resolved_listeners().between_servers,
            self._clock,
            timeout_ms=config.broker_session_timeout_ms,
        )
        self._storage = self._make_storage()
        self._publisher = self._make_publisher()
        self._metadata_waiters = MetadataWaiters(lambda: self._replicas.image)
        self._topic_creator = TopicCreator(
            self._transport, self._controllers, self._metadata_waiters, timeout_ms=config.broker_session_timeout_ms
        )
        self._producer_ids = ProducerIds(
            self._transport,
            self._controllers,
            lambda: AllocateProducerIdsRequest(broker_id=config.node_id, broker_epoch=self._epoch()),
            timeout_ms=config.broker_session_timeout_ms,
        )
        self._transaction_registry = self._make_transaction_registry()
        handlers = self._make_handlers()
        nodes = BrokerNodes(self._replicas.brokers, config.kafka_beside())
        self._servicer = BrokerServicer(
            handlers,
            self._replicas,
            nodes,
            self._memory,
            CallThrottle(self._quotas, self._clock, knows_callers=self._gate is not None),
            scrubber=self._storage.scrubber,
            controllers=self._controllers_active_first,
            request_timeout_ms=config.request_timeout_ms,
            rng=self._rng,
        )
        self._kafka = KafkaListeners(
            config,
            self._transport,
            handlers,
            self._controllers,
            self._memory,
            self._metadata_waiters,
            self._replication.readers,
            self._replication.followers,
            self._records,
            image=lambda: self._replicas.image,
            nodes=nodes,
            clock=self._clock,
            rng=self._rng,
            tls=tls,
            logins=self._logins,
            gate=self._gate,
            quotas=self._quotas,
            auditor=self._auditor,
        )
        self._dynamic = DynamicConfig(config)
        for part in (self._replication, self._kafka, self._storage):
            self._dynamic.add(part.reconfigure)
        self._watch_gauges()

    async def open(self) -> None:
        """Recovers the logs. Raises LogDirError if a log directory is in use, or belongs to another cluster or
        broker."""
        keep_request_memory()
        cluster_id = stored_cluster_id(self._disk, self._config.data_dirs)
        if cluster_id:
            await self._storage.open(cluster_id)

    def register(self, rpc: RpcServer) -> None:
        rpc.add_role(Role.BROKER, KnownServers(lambda: self._replicas.image, self._controllers_active_first))
        rpc.add_service(BROKER, self._servicer, self._gate)
        rpc.add_service(REPLICATION, self._replication.servicer, self._gate)

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Starts the broker, and returns when it serves clients. gRPC clients get the addresses in `endpoints`.

        Raises LogDirError, or the BrokerError of a refused registration."""
        self._spawn("metadata-link", self._link.run())
        self._spawn("logins", self._logins.run())
        await self._join_cluster()
        listeners = [*endpoints, *await self._kafka.bind(endpoints)]
        self._registration = registration = self._make_registration(listeners)
        await registration.register()
        await self._link.wait_for(lambda image: image.end_index > registration.epoch)
        self._replication.start()
        await self._start_publishing()
        self._is_member = True
        self._spawn("registration", registration.run())
        self._spawn("topic-creator", self._topic_creator.run())
        await registration.wait_unfenced()
        self._servicer.is_open = True
        await self._kafka.open()
        served = " ".join(f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners)
        log.info("broker=%d serving %s", self._config.node_id, served)

    @property
    def auditors(self) -> Sequence[Auditor]:
        return () if self._auditor is None else (self._auditor,)

    @property
    def parked_fetches(self) -> int:
        """The number of fetches that wait for records."""
        return len(self._fetches)

    @property
    def parked_produces(self) -> int:
        """The number of produces that wait for replicas."""
        return len(self._produces)

    async def wait_serving(self, wanted: bool) -> None:
        assert self._registration is not None, "the broker has not started"
        await self._registration.wait_serving(wanted)

    async def stop(self) -> None:
        """Stops the broker. Raises nothing. A log directory that fails now is recovered at the next start."""
        was_member, self._is_member = self._is_member, False
        if was_member and self._config.controlled_shutdown_enable:
            assert self._registration is not None
            await self._registration.shut_down(self._config.shutdown_grace_ms)
        self._servicer.is_open = False
        self._replicas.resign_all()
        await self._kafka.close()
        await self._publisher.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._replication.close()
        await self._replica_records.close()
        await self._producer_ids.close()
        await self._transaction_registry.close()
        await self._hold_offsets.close()
        for thread in (self._records, self._checks, self._lookups):
            thread.close()
        self._logins.close()
        await self._storage.close(broker_epoch=self._epoch() if was_member else NOT_REGISTERED)

    # Parts

    def _make_audit_topic(self) -> AuditTopic:
        return AuditTopic(
            self._transport,
            lambda: self._replicas.image,
            self._config.resolved_listeners().between_servers,
            self._clock,
            lambda: self._topic_creator.create(AUDIT_TOPIC),
        )

    def _make_replication(self, followers_listener: str) -> Replication:
        return Replication(
            self._config,
            self._transport,
            self._controllers,
            logs=self._logs,
            broker_epoch=self._epoch,
            disk=self._disk,
            records=self._records,
            memory=self._memory,
            clock=self._clock,
            rng=self._rng,
            followers_listener=followers_listener,
        )

    def _make_storage(self) -> Storage:
        return Storage(
            self._logs,
            self._replicas,
            self._config,
            records=self._records,
            replica_records=self._replica_records,
            resigner=self._replication.resignations,
            hold_offsets=self._hold_offsets,
            on_disk_full=self._replication.on_disk_full,
            disk=self._disk,
            clock=self._clock,
        )

    def _make_publisher(self) -> MetadataPublisher:
        return MetadataPublisher(
            self._replicas,
            self._logs,
            topic_configs=self._topic_configs,
            retire=self._storage.maintenance.retire,
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
            refused_backoff_ms=self._config.replica_fetch_backoff_ms,
            on_applied=self._on_applied,
            clock=self._clock,
        )

    def _make_transaction_registry(self) -> TransactionRegistry:
        return TransactionRegistry(
            self._transport,
            lambda: self._replicas.image,
            self._config.resolved_listeners().between_servers,
            self._clock,
            timeout_ms=self._config.broker_session_timeout_ms,
            retry_backoff_ms=self._config.add_partitions_to_txn_retry_backoff_ms,
            retry_backoff_max_ms=self._config.add_partitions_to_txn_retry_backoff_max_ms,
        )

    def _make_handlers(self) -> Handlers:
        replicas, config = self._replicas, self._config
        return Handlers(
            produce=ProduceHandler(
                replicas,
                self._produces,
                TransactionGuards(replicas, self._transaction_registry.add),
                LateChecks(self._checks, self._clock),
            ),
            fetch=FetchHandler(
                replicas,
                self._fetches,
                self._records,
                self._memory,
                fetch_max_bytes=config.fetch_max_bytes,
                selector=replica_selector(config.replica_selector_class, replicas.brokers.live_rack),
            ),
            list_offsets=ListOffsetsHandler(replicas, self._lookups),
            delete_records=DeleteRecordsHandler(replicas, self._replication.deletions),
            offset_for_leader_epoch=OffsetForLeaderEpochHandler(replicas),
            log_dirs=LogDirsHandler(self._logs, self._storage.moves, self._storage.held_retention.held),
            missing_topics=MissingTopics(self._topic_creator, auto_create_topics=config.auto_create_topics_enable),
            coordinator_finder=CoordinatorFinder(
                replicas, self._topic_creator, offsets_topic_partitions=config.offsets_topic_num_partitions
            ),
            init_producer_id=InitProducerIdHandler(self._producer_ids),
            write_txn_markers=WriteTxnMarkersHandler(replicas, self._produces, timeout_ms=config.request_timeout_ms),
            describe_producers=DescribeProducersHandler(replicas),
            describe_unread=DescribeUnreadHandler(replicas, self._lookups, self._clock.wall_ms),
        )

    def _watch_gauges(self) -> None:
        purgatories = {
            "fetch": self._fetches,
            "produce": self._produces,
            "delete_records": self._replication.deletions,
        }
        watch_gauges(
            parked={name: purgatory.__len__ for name, purgatory in purgatories.items()},
            parked_refusals={name: purgatory.refused_count for name, purgatory in purgatories.items()},
            request_memory_bytes=lambda: self._memory.held_bytes,
            offline_log_dirs=lambda: len(self._logs.directories.offline()),
            partitions=lambda: len(self._replicas),
            kafka_connections=lambda: len(self._kafka),
            producer_ids=lambda: sum(len(partition.log.producers) for partition in list(self._replicas)),
        )

    def _epoch(self) -> int:
        return NOT_REGISTERED if self._registration is None else self._registration.epoch

    # Joining the cluster

    async def _join_cluster(self) -> None:
        """Learns the cluster's id and makes sure that the log directories belong to that cluster."""
        config = self._config
        timeout_ms = config.initial_broker_registration_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                image = await self._link.wait_for(lambda image: bool(image.cluster_id))
        except TimeoutError:
            servers = ",".join(config.controller_quorum_bootstrap_servers)
            raise KlammError(f"no controller of {servers} answered within {timeout_ms} ms") from None
        if not self._logs.is_loaded:
            await self._storage.open(image.cluster_id)
        stored = stored_cluster_id(self._disk, config.data_dirs)
        if stored != image.cluster_id:
            raise LogDirError(
                f"data directory of another cluster: {','.join(config.data_dirs)} belongs to cluster {stored}, but"
                f" the controller is of cluster {image.cluster_id}"
            )

    def _controllers_active_first(self) -> list[tuple[Listener, ...]]:
        """Returns the listeners of each controller that clients dial, the active controller's first."""
        return self._controllers.active_first("" if self._registration is None else self._registration.controller)

    def _make_registration(self, listeners: Sequence[Listener]) -> Registration:
        config = self._config
        member = BrokerRegistrant(
            broker_id=config.node_id,
            incarnation_id=self._rng.randbytes(16),
            listeners=listeners,
            rack=config.broker_rack or "",
            log_dir_ids=self._storage.log_dir_ids,
            # A secret is registered without its value.
            static_configs={name: str(text) for name, text in config.originals.items()},
            offline_log_dir_ids=self._storage.offline_log_dir_ids,
            previous_broker_epoch=self._logs.directories.clean_shutdown_epoch() or 0,
        )
        return Registration(
            member,
            self._transport,
            self._controllers,
            link=self._link,
            cluster_id=self._link.image.cluster_id,
            clock=self._clock,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            request_timeout_ms=config.broker_session_timeout_ms // REQUESTS_PER_SESSION,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            rng=self._rng,
        )

    async def _start_publishing(self) -> None:
        # From now on, later images are published too, each after the previous one.
        self._publishes_images = True
        image = self._link.image
        self._dynamic.apply(image)
        await self._publisher.publish(image)
        self._spawn("metadata-publisher", self._publisher.run())
        for name, task in self._storage.tasks():
            self._spawn(name, task)

    def loaded_image(self) -> MetadataImage | None:
        image = self._replicas.image
        return image if self._epoch() != NOT_REGISTERED and image.end_index > self._epoch() else None

    async def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        # Logins come first, because sessions must not wait for the creation of partitions.
        self._logins.on_image(new)
        if self._publishes_images:
            self._dynamic.apply(new)
            await self._publisher.publish(new)

    def _on_applied(self) -> None:
        self._quotas.apply(self._replicas.image.client_quotas)
        self._metadata_waiters.wake()
        self._replication.on_image()
        self._storage.on_image()

    def _topic_configs(self, image: MetadataImage, topic: str) -> Mapping[str, str]:
        return effective_topic_configs(
            image.topic_configs(topic),
            image.broker_configs(self._config.node_id),
            image.broker_configs(None),
            self._config.originals,
        )

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(watch(asyncio.create_task(coroutine, name=f"broker-{name}")))
