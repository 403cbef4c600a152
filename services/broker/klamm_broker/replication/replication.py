"""Connects all parts that replicate this broker's partitions to and from other brokers.

Owns the replica manager and observes it. After a change, it informs the parked requests, the followers' sessions, the
fetchers and the controller.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from itertools import count
from typing import Any

from klamm.model import TopicPartition
from klamm.rpc.kafka_listener import KafkaListener
from klamm.rpc.transport import Transport
from klamm_broker.io import metrics
from klamm_broker.io.controller_calls import ControllerCalls
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.follower_partition import FollowerUpdate
from klamm_broker.replica.follower_session import FetchBounds
from klamm_broker.replica.leadership import IsrChange, Leadership
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.reader_watch import ReaderWatch
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_session import SessionWatch
from klamm_broker.replication.alter_partition_sender import AlterPartitionSender
from klamm_broker.replication.follower_streams import FollowerStreams
from klamm_broker.replication.full_disks import FullDisks
from klamm_broker.replication.log_start_teller import LogStartTeller
from klamm_broker.replication.offline_replica_reporter import OfflineReplicaReporter
from klamm_broker.replication.partition_metrics import watch_partitions
from klamm_broker.replication.record_sync import RecordSyncs
from klamm_broker.replication.replica_fetch import ReplicaFetchRpc
from klamm_broker.replication.replica_fetcher import LeaderListener, ReplicaFetcher, ReplicaFetchers
from klamm_broker.replication.replica_log_reporter import ReplicaLogReporter
from klamm_broker.replication.resignation_sender import ResignationSender
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.metadata.entities import server_address
from klamm_server.net.listeners import SecurityProtocol, find
from klamm_server.rpc.controllers import Controllers
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.disk import Disk
from klamm_server.runtime.faults import watch

log = logging.getLogger(__name__)

_NO_LOG = "no log"
"""The reason why a replica resigns if a full disk has no space for its log."""
ANSWER_OVERHEAD_BYTES = 1024**2
"""The most bytes that a leader's answer has besides records."""


class Replication:
    """Connects the parts of replication. `start` is called after the logs are open and the broker is registered, and
    `close` after the replicas have resigned."""

    def __init__(
        self,
        config: BrokerConfig,
        transport: Transport,
        controllers: Controllers,
        *,
        logs: LogManager,
        broker_epoch: Callable[[], int],
        disk: Disk,
        records: RecordReader,
        memory: RequestMemory,
        clock: Clock,
        rng: random.Random,
        followers_listener: str,
    ) -> None:
        """`followers_listener` is the name of the Kafka listener at which brokers fetch, or "" if they use only
        `transport`."""
        self.replicas = ReplicaManager(broker_id=config.node_id, clock=clock, observer=self)
        self.fetches = PurgatoryDriver(max_parked=config.max_parked_requests, clock=clock)
        self.produces = PurgatoryDriver(max_parked=config.max_parked_requests, clock=clock)
        self.deletions = PurgatoryDriver(max_parked=config.max_parked_requests, clock=clock)
        self._config = config
        self._own = config.resolved_listeners().between_servers
        self._transport = transport
        self._followers_listener = followers_listener
        self._logs = logs
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._rng = rng
        self._sessions = SessionWatch()
        self.readers = ReaderWatch()
        """Finds the fetch sessions of consumers that a change affects."""
        self.followers = FollowerStreams(self.replicas, self._sessions, memory, clock)
        """Answers the fetches of followers. Positions wait until the metadata make this broker the leader."""
        self.servicer = ReplicaFetchRpc(self.followers, records, memory)

        def make_calls() -> ControllerCalls:
            return ControllerCalls(transport, controllers, timeout_ms=config.broker_session_timeout_ms // 2, rng=rng)

        self._calls = make_calls()
        self._changes = AlterPartitionSender(
            self.replicas, self._calls, broker_id=config.node_id, broker_epoch=broker_epoch
        )
        self._offline_calls = make_calls()
        self._offline = OfflineReplicaReporter(self._offline_calls, broker_id=config.node_id, broker_epoch=broker_epoch)
        self._resignation_calls = make_calls()
        self.resignations = ResignationSender(
            self._resignation_calls,
            broker_id=config.node_id,
            broker_epoch=broker_epoch,
            image=lambda: self.replicas.image,
        )
        self._log_calls = make_calls()
        self._leaderless = ReplicaLogReporter(
            self._log_calls,
            broker_id=config.node_id,
            broker_epoch=broker_epoch,
            is_active=lambda: self.replicas.brokers.is_eligible(config.node_id),
        )
        self._log_starts = LogStartTeller(self.replicas, transport, self._own)
        self._full_disks = FullDisks(disk, self.replicas, self.resignations, clock)
        self._syncs = RecordSyncs(logs, on_synced=self.replicas.on_synced, on_disk_full=self.on_disk_full)
        self._fetchers = ReplicaFetchers(
            self._make_fetcher, streams_per_leader=config.num_replica_fetchers, watch=watch
        )
        self._session_ids = count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._watch_gauges()

    def start(self) -> None:
        """Starts the background tasks. Called before the first image is published."""
        self._spawn("alter-partition", self._changes.run())
        self._spawn("offline-replicas", self._offline.run())
        self._spawn("resignations", self.resignations.run())
        self._spawn("leaderless-logs", self._leaderless.run())
        self._spawn("log-starts", self._log_starts.run())
        self._spawn(
            "full-disks", self._full_disks.run({partition_log.log_dir for partition_log in self._logs.hosted.all()})
        )
        self._spawn("isr-expiration", self._expire())

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies a new configuration. If `num.replica.fetchers` changed, all streams to leaders start again."""
        self._config = config
        self._fetchers.resize(config.num_replica_fetchers, list(self.replicas))

    async def close(self) -> None:
        """Ends the sessions of followers and the streams to leaders."""
        self.servicer.close()
        await self._fetchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for calls in (self._calls, self._offline_calls, self._resignation_calls, self._log_calls):
            await calls.close()
        await self._log_starts.close()
        self._syncs.close()
        for purgatory in (self.fetches, self.produces, self.deletions):
            purgatory.close()

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(watch(asyncio.create_task(coroutine, name=f"broker-{name}")))

    async def _expire(self) -> None:
        """Checks the lag of followers regularly. Kafka's `isr-expiration` task."""
        while True:
            await asyncio.sleep(self._config.replica_lag_time_max_ms / 2 / 1000)
            self.replicas.check_lag()

    # Calls of the replica manager (`ReplicaObserver`)

    def on_change(self, topic_partition: TopicPartition) -> None:
        self.produces.check_and_complete(topic_partition)
        self.fetches.check_and_complete(topic_partition)
        self.readers.on_change(topic_partition)
        self._sessions.on_change(topic_partition)

    def on_append(self, topic_partition: TopicPartition) -> None:
        self._sessions.on_append(topic_partition)

    def on_sync_owed(self, partition: Partition) -> None:
        self._syncs.begin(partition)

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        self.deletions.check_and_complete(topic_partition)
        self.readers.on_change(topic_partition)
        self._sessions.on_change(topic_partition)
        self._log_starts.note(topic_partition)

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        self._changes.submit(partition, change)

    def on_role(self, partition: Partition) -> None:
        key = (partition.topic_id.bytes, partition.topic_partition.partition)
        self.resignations.resume(key, _NO_LOG)
        if partition.image is not None:
            self.resignations.note(key, partition.image)
        is_hosted = self.replicas.get(partition.topic_partition) is partition
        self._leaderless.note(partition, is_hosted=is_hosted)
        self._fetchers.on_role(partition)
        self.deletions.check_and_complete(partition.topic_partition)

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        self._offline.report(topic_id, partition)

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        self.resignations.resign((topic_id, partition), _NO_LOG)

    def on_disk_full(self, log_dir: LogDir) -> None:
        """Resigns the replicas of a full disk. Other code that finds a disk full also calls this."""
        self._full_disks.on_full(log_dir)

    def on_image(self) -> None:
        """Called after newer metadata were applied to the replicas."""
        self._sessions.on_image()
        self._leaderless.on_image()
        self._log_starts.on_image()
        self._apply_quotas()
        if len(self.deletions):
            # Deletions may wait for brokers that are fenced now.
            for partition in self.replicas:
                self.deletions.check_and_complete(partition.topic_partition)

    def _apply_quotas(self) -> None:
        if self.replicas.quotas.apply(self.replicas.image, self._config):
            self.followers.wake()
            self._fetchers.on_quota_change()

    # Calls of the fetchers (`FetcherPorts`)

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch()

    def address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self.replicas.brokers.images.get(broker_id)
        return None if broker is None else server_address(broker, self._own)

    def kafka_listener(self, broker_id: int) -> LeaderListener | None:
        broker = self.replicas.brokers.images.get(broker_id)
        if broker is None:
            return None
        found = find(broker.listeners, self._followers_listener, SecurityProtocol.KAFKA)
        if found is None or found.host != server_address(broker, self._own)[0]:
            return None
        listener = KafkaListener(f"{found.host}:{found.port}", self.replicas.image.cluster_id, broker_id)
        return LeaderListener(listener, broker.broker_epoch)

    def next_session_id(self) -> int:
        return next(self._session_ids)

    def on_update(self, partition: Partition, update: FollowerUpdate) -> None:
        # Consumers may read from this follower.
        self.fetches.check_and_complete(partition.topic_partition)
        self.readers.on_change(partition.topic_partition)
        if update.truncated_from is None:
            return
        name, end_offset = partition.topic_partition, partition.log.log_end_offset
        log.info(
            "truncated a log, partition=%s from=%d to=%d leader=%d leader_epoch=%d",
            name,
            update.truncated_from,
            end_offset,
            partition.leader,
            partition.leader_epoch,
        )
        if update.lost_offsets:
            log.error(
                "partition=%s lost %d committed offsets up to %d in an unclean election: the log of leader %d (epoch"
                " %d) does not have them, so this replica was truncated",
                name,
                update.lost_offsets,
                end_offset + update.lost_offsets,
                partition.leader,
                partition.leader_epoch,
            )
        self._logs.checkpoints.store_recovery_points([name])

    def _make_fetcher(self, leader: int) -> ReplicaFetcher:
        config = self._config
        return ReplicaFetcher(
            self._transport,
            broker_id=config.node_id,
            leader=leader,
            ports=self,
            bounds=FetchBounds(
                max_wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                partition_max_bytes=config.replica_fetch_max_bytes,
            ),
            quota=self.replicas.quotas.follower,
            backoff_ms=config.replica_fetch_backoff_ms,
            # An answer has at most the requested bytes, or one batch, and no batch is longer than a request may be.
            receive_max_bytes=max(config.replica_fetch_response_max_bytes, config.socket_request_max_bytes)
            + ANSWER_OVERHEAD_BYTES,
            clock=self._clock,
            rng=self._rng,
        )

    # Metrics

    def _watch_gauges(self) -> None:
        def led(wanted: Callable[[Partition, Leadership], bool]) -> Callable[[], int]:
            return lambda: sum(
                1 for replica in list(self.replicas) if replica.leadership and wanted(replica, replica.leadership)
            )

        metrics.watch_replication(
            leaders=led(lambda partition, leadership: True),
            under_replicated=led(lambda partition, leadership: len(leadership.isr) < leadership.replica_count),
            under_min_isr=led(lambda partition, leadership: len(leadership.isr) < _min_isr(partition, leadership)),
            at_min_isr=led(lambda partition, leadership: len(leadership.isr) == _min_isr(partition, leadership)),
            offline_replicas=lambda: len(self.replicas.offline),
            full_log_dirs=lambda: len(self._full_disks),
            replica_max_lag=lambda: max_lag(self.replicas),
            throttled_bytes_out=lambda: self.replicas.quotas.leader.copied_bytes,
            throttled_bytes_in=lambda: self.replicas.quotas.follower.copied_bytes,
            metadata_end_index=lambda: self.replicas.image.end_index,
        )
        watch_partitions(lambda: list(self.replicas), self._clock.wall_ms)


def max_lag(partitions: Iterable[Partition]) -> int:
    """Returns the largest number of records that a follower on this broker is behind its leader, as of the leaders'
    last answers."""
    following = (partition.following for partition in list(partitions))
    return max((follower.lag for follower in following if follower is not None), default=0)


def _min_isr(partition: Partition, leadership: Leadership) -> int:
    return leadership.effective_min_isr(partition.log.config.min_insync_replicas)
