"""The broker's composition root: makes the parts, joins them, starts and stops them in order.

    open    locks the log dirs and recovers the logs; needs no network unless every dir is new
    start   learns the cluster from a controller's metadata, claims new dirs for it, registers, waits for an image
            that includes the registration, brings the replicas in line with it, sends heartbeats until unfenced
    stop    hands over leaderships, refuses calls, wakes whoever waits, makes everything durable

Strays are removed only under an image that includes this start's registration: an older one, from a controller
that lags behind, may not know a topic that exists.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from klamm.errors import KlammError
from klamm.wire.service import BROKER, REPLICATION
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest
from klamm_broker.allocator import keep_request_memory
from klamm_broker.config import BrokerConfig
from klamm_broker.kafka.door import KafkaDoor
from klamm_broker.log.disk import Disk
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.meta_properties import META_PROPERTIES_FILE, MetaProperties, decode_uuids
from klamm_broker.log.storage_failure import LogDirError
from klamm_broker.log_cleaner import CleanerSettings, LogCleaner
from klamm_broker.log_dir_moves import LogDirMoves
from klamm_broker.log_maintenance import LogMaintenance, MaintenanceIntervals
from klamm_broker.log_scrubber import LogScrubber, ScrubberSettings
from klamm_broker.metadata_publisher import MetadataPublisher
from klamm_broker.metadata_waiters import MetadataWaiters
from klamm_broker.metrics import watch_gauges
from klamm_broker.record_reader import RecordReader
from klamm_broker.replica.replica_selector import replica_selector
from klamm_broker.replica_records import ReplicaRecords
from klamm_broker.replication import ANSWER_OVERHEAD_BYTES, Replication
from klamm_broker.rpc.delete_records import DeleteRecordsRpc
from klamm_broker.rpc.describe_producers import DescribeProducersRpc
from klamm_broker.rpc.fetch import FetchRpc
from klamm_broker.rpc.find_coordinator import FindCoordinatorRpc
from klamm_broker.rpc.handlers import Handlers
from klamm_broker.rpc.init_producer_id import InitProducerIdRpc
from klamm_broker.rpc.list_offsets import ListOffsetsRpc
from klamm_broker.rpc.log_dirs import LogDirsRpc
from klamm_broker.rpc.metadata import MetadataRpc
from klamm_broker.rpc.offset_for_leader_epoch import OffsetForLeaderEpochRpc
from klamm_broker.rpc.produce import ProduceRpc
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_broker.rpc.scrubs import ScrubsRpc
from klamm_broker.rpc.servicer import BrokerServicer
from klamm_broker.rpc.transaction_guards import TransactionGuards
from klamm_broker.rpc.write_txn_markers import WriteTxnMarkersRpc
from klamm_broker.topic_creator import TopicCreator
from klamm_broker.transaction_registry import TransactionRegistry
from klamm_server.clock import Clock, SystemClock
from klamm_server.config_defs import effective_topic_configs
from klamm_server.controllers import Controllers
from klamm_server.faults import watch
from klamm_server.listeners import Listener
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata_link import MetadataLink
from klamm_server.metrics import watch_disk
from klamm_server.producer_ids import ProducerIds
from klamm_server.registration import NOT_REGISTERED, REQUESTS_PER_SESSION, BrokerMember, Registration
from klamm_server.rpc_server import RpcServer

log = logging.getLogger(__name__)

WORST_FLUSH_CHECK_MS = 1_000
"""Closed segments are flushed at least this often, whatever `log.flush.scheduler.interval.ms` says: what lies
behind the recovery point need not be scanned after a crash."""
COLD_READ_THREADS = 4
"""Fetches of old records that wait for the disk at once; the next ones queue."""


class BrokerServer:
    """One broker. See the module's docstring for the order of calls; `register` comes before `start`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._rng = rng or random.SystemRandom()
        self._logs: LogManager | None = None
        self._publisher: MetadataPublisher | None = None
        self._registration: Registration | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._records = RecordReader(self._disk, thread_count=COLD_READ_THREADS)
        self._memory = RequestMemory(config.queued_max_request_bytes)
        self._controllers = Controllers(config.controllers)
        self._replication = Replication(
            config,
            self._controllers,
            disk=self._disk,
            records=self._records,
            memory=self._memory,
            clock=self._clock,
        )
        self._replicas = self._replication.replicas
        self._replica_records = ReplicaRecords(
            self._replication.address, receive_max_bytes=config.socket_request_max_bytes + ANSWER_OVERHEAD_BYTES
        )
        self._fetches, self._produces = self._replication.fetches, self._replication.produces
        self._metadata_waiters = MetadataWaiters(lambda: self._replicas.image)
        self._topic_creator = TopicCreator(
            self._controllers, self._metadata_waiters, timeout_ms=config.broker_session_timeout_ms
        )
        self._producer_ids = ProducerIds(
            self._controllers,
            lambda: AllocateProducerIdsRequest(
                broker_id=config.node_id,
                broker_epoch=NOT_REGISTERED if self._registration is None else self._registration.epoch,
            ),
            timeout_ms=config.broker_session_timeout_ms,
        )
        self._transaction_registry = TransactionRegistry(
            lambda: self._replicas.image,
            self._clock,
            timeout_ms=config.broker_session_timeout_ms,
            retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
            retry_backoff_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        )
        handlers = self._make_handlers()
        self._servicer = BrokerServicer(handlers)
        self._kafka = KafkaDoor(
            config,
            handlers,
            self._controllers,
            self._memory,
            self._metadata_waiters,
            image=lambda: self._replicas.image,
            clock=self._clock,
        )
        self._watch_gauges()

    async def open(self) -> None:
        """Raises LogDirError when a log dir is in use, or another cluster's or broker's."""
        keep_request_memory()
        cluster_id = stored_cluster_id(self._disk, self._config.data_dirs)
        if cluster_id:
            await self._open_logs(cluster_id)

    def register(self, rpc: RpcServer) -> None:
        rpc.add_service(BROKER, self._servicer)
        rpc.add_service(REPLICATION, self._replication.servicer)

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Returns when clients are served. `endpoints` are what those of the gRPC API are told to dial.

        Raises LogDirError, or the BrokerError of a refused registration."""
        link = MetadataLink(self._controllers, cluster_id="", on_image=self._on_image, clock=self._clock)
        self._spawn("metadata-link", link.run())
        await self._join_cluster(link)
        listeners = [*endpoints, *await self._kafka.bind(endpoints)]
        registration = self._make_registration(link, listeners)
        await registration.register()
        await link.wait_for(lambda image: image.end_index > registration.epoch)
        self._replication.start(self._opened_logs, registration)
        await self._start_publishing(link.image)
        self._registration = registration
        self._spawn("registration", registration.run())
        self._spawn("topic-creator", self._topic_creator.run())
        await registration.wait_unfenced()
        self._servicer.is_open = True
        await self._kafka.open()
        served = " ".join(f"{one.name}://{one.host}:{one.port}" for one in listeners)
        log.info("broker=%d serving %s", self._config.node_id, served)

    async def wait_serving(self, wanted: bool) -> None:
        assert self._registration is not None, "the broker has not started"
        await self._registration.wait_serving(wanted)

    async def stop(self) -> None:
        """Raises nothing; a log dir that fails while closing recovers at the next start."""
        registration, self._registration = self._registration, None
        if registration is not None and self._config.controlled_shutdown_enable:
            await registration.shut_down(self._config.shutdown_grace_ms)
        self._servicer.is_open = False
        self._replicas.resign_all()
        await self._kafka.close()
        if self._publisher is not None:
            await self._publisher.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._replication.close()
        await self._replica_records.close()
        await self._producer_ids.close()
        await self._transaction_registry.close()
        self._records.close()
        logs, self._logs = self._logs, None
        if logs is not None:
            self._maintenance.close()
            self._cleaner.close()
            self._moves.close()
            self._scrubber.close()
            broker_epoch = NOT_REGISTERED if registration is None else registration.epoch
            await asyncio.to_thread(
                logs.close, broker_epoch=broker_epoch, high_watermarks=self._replicas.high_watermarks()
            )

    # Parts

    def _make_handlers(self) -> Handlers:
        replicas, config = self._replicas, self._config
        return Handlers(
            produce=ProduceRpc(
                replicas, self._produces, self._memory, TransactionGuards(replicas, self._transaction_registry.add)
            ),
            fetch=FetchRpc(
                replicas,
                self._fetches,
                self._records,
                self._memory,
                fetch_max_bytes=config.fetch_max_bytes,
                selector=replica_selector(config.replica_selector_class, replicas.brokers.live_rack),
            ),
            list_offsets=ListOffsetsRpc(replicas),
            delete_records=DeleteRecordsRpc(replicas, self._replication.deletions),
            offset_for_leader_epoch=OffsetForLeaderEpochRpc(replicas),
            log_dirs=LogDirsRpc(lambda: self._opened_logs, lambda: self._moves),
            scrubs=ScrubsRpc(lambda: self._scrubber),
            metadata=MetadataRpc(
                replicas,
                self._topic_creator,
                controllers=self._controllers_active_first,
                auto_create_topics=config.auto_create_topics_enable,
            ),
            find_coordinator=FindCoordinatorRpc(
                replicas, self._topic_creator, offsets_topic_partitions=config.offsets_topic_num_partitions
            ),
            init_producer_id=InitProducerIdRpc(self._producer_ids),
            write_txn_markers=WriteTxnMarkersRpc(replicas, self._produces, timeout_ms=config.request_timeout_ms),
            describe_producers=DescribeProducersRpc(replicas),
        )

    def _watch_gauges(self) -> None:
        watch_gauges(
            parked_fetches=lambda: len(self._fetches),
            parked_produces=lambda: len(self._produces),
            parked_deletions=lambda: len(self._replication.deletions),
            request_memory_bytes=lambda: self._memory.held_bytes,
            offline_log_dirs=lambda: len(self._logs.offline_log_dirs()) if self._logs is not None else 0,
            partitions=lambda: len(self._replicas),
            kafka_connections=lambda: len(self._kafka),
            producer_ids=lambda: sum(len(partition.log.producers) for partition in list(self._replicas)),
        )

    @property
    def _opened_logs(self) -> LogManager:
        assert self._logs is not None, "the logs are not open yet"
        return self._logs

    async def _open_logs(self, cluster_id: str) -> None:
        config = self._config
        manager_config = LogManagerConfig(
            log_dirs=config.data_dirs,
            cluster_id=cluster_id,
            node_id=config.node_id,
            lost_directory_ids=decode_uuids(config.log_dirs_lost),
            open_segments_max=config.log_open_segments_max,
            recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
            producer_ids_max=config.producer_ids_per_partition_max,
        )
        logs = LogManager(manager_config, self._disk, self._rng)
        defaults = LogConfig.from_configs(effective_topic_configs({}, config.originals))
        for log_dir in config.data_dirs:
            watch_disk(log_dir)
        deletions = await asyncio.to_thread(logs.load, lambda _: defaults, now_ms=self._clock.wall_ms())
        # Not before: closing logs that were not loaded would mark them as cleanly shut down.
        self._logs = logs
        self._maintenance = LogMaintenance(
            logs, self._replicas, self._intervals(), self._clock, on_disk_full=self._replication.on_disk_full
        )
        self._cleaner = LogCleaner(
            logs,
            self._replicas,
            self._cleaner_settings(),
            retire=self._maintenance.retire,
            disk=self._disk,
            clock=self._clock,
        )
        self._moves = LogDirMoves(
            logs,
            self._replicas,
            self._records,
            retire=self._maintenance.retire,
            moves_max=len(config.data_dirs),
            backoff_ms=config.replica_fetch_backoff_ms,
            clock=self._clock,
        )
        self._scrubber = LogScrubber(
            logs,
            self._replicas,
            ScrubberSettings(
                bytes_per_second=config.log_scrub_bytes_per_second, interval_ms=config.log_scrub_interval_ms
            ),
            broker_id=config.node_id,
            records=self._replica_records,
            resigner=self._replication.resignations,
            retire=self._maintenance.retire,
            disk=self._disk,
            clock=self._clock,
        )
        for deletion in deletions:
            self._maintenance.retire(deletion)
        self._directory_ids = {path: one.bytes for path, one in logs.directory_ids().items()}

    def _intervals(self) -> MaintenanceIntervals:
        config = self._config
        return MaintenanceIntervals(
            retention_check_ms=config.log_retention_check_interval_ms,
            flush_check_ms=min(config.log_flush_scheduler_interval_ms, WORST_FLUSH_CHECK_MS),
            checkpoint_ms=config.log_flush_offset_checkpoint_interval_ms,
            high_watermark_checkpoint_ms=config.replica_high_watermark_checkpoint_interval_ms,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )

    def _cleaner_settings(self) -> CleanerSettings:
        config = self._config
        return CleanerSettings(
            threads=config.log_cleaner_threads,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            dedupe_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=config.log_cleaner_io_buffer_size,
            io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
            backoff_ms=config.log_cleaner_backoff_ms,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )

    # Joining the cluster

    async def _join_cluster(self, link: MetadataLink) -> None:
        """Learns the cluster's id and makes sure that the log dirs are its."""
        config = self._config
        timeout_ms = config.initial_broker_registration_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                image = await link.wait_for(lambda image: bool(image.cluster_id))
        except TimeoutError:
            servers = ",".join(config.controller_quorum_bootstrap_servers)
            raise KlammError(f"no controller of {servers} answered within {timeout_ms} ms") from None
        if self._logs is None:
            await self._open_logs(image.cluster_id)
        stored = stored_cluster_id(self._disk, config.data_dirs)
        if stored != image.cluster_id:
            raise LogDirError(
                f"data directory of another cluster: {','.join(config.data_dirs)} belongs to cluster {stored},"
                f" the controller is of cluster {image.cluster_id}"
            )

    def _controllers_active_first(self) -> list[tuple[Listener, ...]]:
        """What clients of each dial, as far as this broker knows."""
        active = self._registration.controller if self._registration is not None else ""
        addresses = sorted(self._controllers.current, key=lambda address: "{}:{}".format(*address) != active)
        return [self._controllers.listeners(address) for address in addresses]

    def _make_registration(self, link: MetadataLink, listeners: Sequence[Listener]) -> Registration:
        config = self._config
        member = BrokerMember(
            broker_id=config.node_id,
            incarnation_id=self._rng.randbytes(16),
            listeners=listeners,
            rack=config.broker_rack or "",
            log_dir_ids=tuple(self._directory_ids.values()),
            static_configs=config.originals,
            offline_log_dir_ids=self._offline_log_dir_ids,
            previous_broker_epoch=self._opened_logs.clean_shutdown_epoch() or 0,
        )
        return Registration(
            member,
            self._controllers,
            link=link,
            cluster_id=link.image.cluster_id,
            clock=self._clock,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            request_timeout_ms=config.broker_session_timeout_ms // REQUESTS_PER_SESSION,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
        )

    def _offline_log_dir_ids(self) -> Sequence[bytes]:
        """Of the dirs that failed since the start."""
        return [
            self._directory_ids[path] for path in self._opened_logs.offline_log_dirs() if path in self._directory_ids
        ]

    async def _start_publishing(self, image: MetadataImage) -> None:
        # From here on later images are published too, each when the one before is.
        self._publisher = MetadataPublisher(
            self._replicas,
            self._opened_logs,
            topic_configs=self._topic_configs,
            retire=self._maintenance.retire,
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
            refused_backoff_ms=self._config.replica_fetch_backoff_ms,
            on_applied=self._on_applied,
            clock=self._clock,
        )
        await self._publisher.publish(image)
        self._spawn("metadata-publisher", self._publisher.run())
        self._spawn("log-maintenance", self._maintenance.run())
        self._spawn("log-dir-moves", self._moves.run())
        self._spawn("log-scrubber", self._scrubber.run())
        if self._config.log_cleaner_enable:
            self._spawn("log-cleaner", self._cleaner.run())

    def _on_applied(self) -> None:
        self._metadata_waiters.wake()
        self._replication.on_image()
        self._moves.wake()
        self._scrubber.on_image()

    async def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if self._publisher is not None:
            await self._publisher.publish(new)

    def _topic_configs(self, image: MetadataImage, topic: str) -> Mapping[str, str]:
        return effective_topic_configs(
            image.topic_configs(topic),
            image.broker_configs(self._config.node_id),
            image.broker_configs(None),
            self._config.originals,
        )

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(watch(asyncio.create_task(coroutine, name=f"broker-{name}")))


def stored_cluster_id(disk: Disk, log_dirs: Sequence[str]) -> str:
    """The cluster that the log dirs were used in, or "" when all of them are new.

    Raises LogDirError when the file that says so is damaged."""
    for log_dir in log_dirs:
        path = f"{log_dir}/{META_PROPERTIES_FILE}"
        try:
            if disk.exists(path):
                return MetaProperties.decode(log_dir, disk.read_file(path)).cluster_id
        except OSError as error:
            log.error("log_dir=%s cannot be read: %s", log_dir, error)
    return ""
