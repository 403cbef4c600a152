"""Applies each new metadata image to the replicas of this broker.

Kafka's `BrokerMetadataPublisher`. When `publish` returns, every partition that the image assigns to this broker has a
log and knows its leader. Partitions that it takes away are gone, and configs are applied. Only then may a heartbeat
report the image's end index, because after that the controller relies on this broker.

Images are published one after another. Changes to existing replicas are made immediately. Creating and removing logs
waits for the disk, so a thread does it, for all logs of an image together, while the event loop serves requests.
Requests see an image with new partitions only when clients can write to those.

If a log's topic id differs from the image's, the log belongs to a deleted topic of the same name, so its directory is
removed. A partition whose log cannot be opened is offline and answers KAFKA_STORAGE_ERROR. The other partitions are
served. A partition is also offline if it is not new, no readable log directory has its log, and a log directory is
unreadable (KIP-112) or missing. A new log would lack its records, and there would be two logs when the directory is
back. If a full disk prevents the creation or deletion of a log, the broker retries with every new image. Without a new
image, it retries after a delay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.process import PROCESS
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC
from klamm_broker.io import metrics
from klamm_broker.log.dirs.log_creation import NewLog
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.storage_failure import DiskFull
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metadata.entities import PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage, TopicsDelta, changed_configs, changed_topics
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

TopicConfigs = Callable[[MetadataImage, str], Mapping[str, str]]
"""Returns the effective configs of a topic. Its own configs override the brokers' dynamic configs, which override this
process's."""


class _NewReplica(NamedTuple):
    """A replica of this broker that is new or whose state has changed."""

    log: NewLog
    image: PartitionImage


class MetadataPublisher:
    """Publishes metadata images. The owner calls `publish` with each image while `run` runs, and `close` at the end.
    `retire` schedules the removal of deleted logs' files."""

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        *,
        topic_configs: TopicConfigs,
        retire: Callable[[PendingDeletion], None],
        lag_time_max_ms: int,
        refused_backoff_ms: int,
        on_applied: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._topic_configs = topic_configs
        self._retire = retire
        self._lag_time_max_ms = lag_time_max_ms
        self._refused_backoff_ms = refused_backoff_ms
        self._on_applied = on_applied
        self._clock = clock
        self._thread = PROCESS.get().make_executor(1, "metadata-publisher")
        self._one_at_a_time = asyncio.Lock()
        self._refused: set[TopicPartition] = set()
        """Replicas without a log, because the disk was full."""
        self._has_refused = asyncio.Event()
        self._closed = False

    async def publish(self, image: MetadataImage) -> None:
        """Applies the changes from the last published image to this one. The first time, also removes logs of topics
        that no longer exist."""
        async with self._one_at_a_time:
            published = self._replicas.image
            if not self._closed and image.end_index > published.end_index:
                await self._publish(published, image)

    async def run(self) -> None:
        """Retries creations and deletions that a full disk prevented, because no new image may arrive. Runs until it is
        cancelled."""
        while True:
            await self._has_refused.wait()
            await asyncio.sleep(self._refused_backoff_ms / 1000)
            async with self._one_at_a_time:
                self._has_refused.clear()
                if not self._closed:
                    await self._publish(self._replicas.image, self._replicas.image)

    async def close(self) -> None:
        """Waits until the current image is published. Later images are ignored."""
        self._closed = True
        async with self._one_at_a_time:
            self._thread.shutdown()

    async def _publish(self, old: MetadataImage, new: MetadataImage) -> None:
        self._replicas.note_brokers(new.brokers)
        delta = changed_topics(old, new)
        gone = self._gone(delta, new) if old.end_index else self._strays(new)
        here, missing = self._changed_replicas(delta, new, frozenset(gone))
        if not missing:
            self._replicas.image = new  # before requests that wait for a removed partition check why it was removed
        for topic_partition in gone:
            self._replicas.drop(topic_partition)
        for topic in delta.deleted:
            metrics.forget_topic(topic.name)
        for replica, state in here:
            self._replicas.apply(replica, state)
        self._on_applied()
        self._apply_configs(old, new)
        await asyncio.sleep(0)
        await self._delete_logs(gone)
        missing = self._without_unreadable(missing, old)
        await self._open_logs([new_replica.log for new_replica in missing])
        for new_replica in missing:
            self._host(new_replica)
        self._replicas.image = new
        self._on_applied()

    # Removed replicas

    def _is_hosted(self, image: MetadataImage, topic_partition: TopicPartition) -> bool:
        partition = image.partition(topic_partition.topic, topic_partition.partition)
        return partition is not None and self._replicas.broker_id in partition.replicas

    def _strays(self, image: MetadataImage) -> list[TopicPartition]:
        strays = [name for name in self._logs.hosted.current if not self._is_hosted(image, name)]
        for topic_partition in strays:
            log.info("deleting a log that is not assigned to this broker, partition=%s", topic_partition)
        return strays

    def _gone(self, delta: TopicsDelta, image: MetadataImage) -> list[TopicPartition]:
        """Returns the partitions that have no replica here any more: those of deleted topics, and those that were
        moved."""
        deleted = [_name(topic, partition) for topic in delta.deleted for partition in topic.partitions]
        changed = [_name(topic, partition) for _, topic in delta.changed for partition in topic.partitions]
        return [*deleted, *(name for name in changed if not self._is_hosted(image, name))]

    async def _delete_logs(self, names: Iterable[TopicPartition]) -> None:
        present = [name for name in names if self._logs.get(name) is not None]
        deletion = self._logs.deletion
        for job in [*deletion.take_postponed(), *deletion.plan(present, now_ms=self._clock.wall_ms())]:
            try:
                await self._on_thread(job.run)
            except DiskFull as error:
                log.warning("could not delete a log, retrying later: %s", error)
                deletion.postpone(job)
                self._has_refused.set()
                continue
            except BrokerError as error:
                # The next start finds these directories to be strays and removes them.
                log.error("could not delete a log before the next start: %s", error)
                continue
            for pending in deletion.complete(job):
                self._retire(pending)

    # New and changed replicas

    def _changed_replicas(
        self, delta: TopicsDelta, image: MetadataImage, gone: frozenset[TopicPartition]
    ) -> tuple[list[tuple[Partition, PartitionImage]], list[_NewReplica]]:
        """Returns the existing replicas with their new state, and the replicas that must be created."""
        wanted = [
            changed_replica
            for topic in delta.created
            for changed_replica in self._changed_replicas_of(topic, {}, image)
        ]
        for before, after in delta.changed:
            wanted += self._changed_replicas_of(
                after, {partition.partition: partition for partition in before.partitions}, image
            )
        wanted += self._refused_before({changed_replica.log.topic_partition for changed_replica in wanted}, image)
        here, missing = [], []
        for wanted_replica in wanted:
            replica = self._replicas.get(wanted_replica.log.topic_partition)
            if replica is None or wanted_replica.log.topic_partition in gone:
                missing.append(wanted_replica)
            else:
                here.append((replica, wanted_replica.image))
        return here, missing

    def _refused_before(self, wanted: set[TopicPartition], image: MetadataImage) -> list[_NewReplica]:
        """Returns replicas without a log because of a full disk, except those in `wanted`. There may be space by
        now."""
        refused, self._refused = self._refused - wanted, set()
        topics = [image.topic(name) for name in sorted({name.topic for name in refused})]
        again = [
            changed_replica
            for topic in topics
            if topic is not None
            for changed_replica in self._changed_replicas_of(topic, {}, image)
        ]
        return [changed_replica for changed_replica in again if changed_replica.log.topic_partition in refused]

    def _changed_replicas_of(
        self, topic: TopicImage, before: Mapping[int, PartitionImage], image: MetadataImage
    ) -> Iterator[_NewReplica]:
        config = LogConfig.from_configs(self._topic_configs(image, topic.name))
        for partition in topic.partitions:
            if before.get(partition.partition) is partition or self._replicas.broker_id not in partition.replicas:
                continue
            new = NewLog(topic_partition=_name(topic, partition), topic_id=TopicId(topic.topic_id), config=config)
            yield _NewReplica(new, partition)

    def _without_unreadable(self, missing: Sequence[_NewReplica], old: MetadataImage) -> list[_NewReplica]:
        """Takes replicas offline whose log may be in an unreadable log directory. Returns the other replicas."""
        unreadable = ", ".join(self._logs.directories.unreadable())
        if not unreadable:
            return list(missing)
        rest = []
        for new_replica in missing:
            name = new_replica.log.topic_partition
            if self._logs.get(name) is None and _is_known(new_replica.log, old):
                reason = f"{name} is in no readable log directory; its log may be in {unreadable}"
                self._take_offline(new_replica.log, ErrorCode.KAFKA_STORAGE_ERROR.exception(reason))
            else:
                rest.append(new_replica)
        return rest

    async def _open_logs(self, wanted: Sequence[NewLog]) -> None:
        """Creates the missing logs. A partition whose log cannot be created goes offline."""
        await self._delete_logs([new.topic_partition for new in wanted if self._is_stale(new)])
        absent = [new for new in wanted if self._logs.get(new.topic_partition) is None]
        jobs, failures = self._logs.creation.plan(absent, now_ms=self._clock.wall_ms())
        for job in jobs:
            failures |= self._logs.creation.complete(job, await self._on_thread(job.run))
        for topic_partition, error in failures.items():
            if isinstance(error, DiskFull):
                self._refused.add(topic_partition)
                self._has_refused.set()
            self._take_offline(next(new for new in absent if new.topic_partition == topic_partition), error)

    def _is_stale(self, new: NewLog) -> bool:
        """Returns True if a log in the partition's place certainly belongs to another topic."""
        found = self._logs.get(new.topic_partition)
        if found is None or found.topic_id == new.topic_id or _is_unidentified(found):
            return False
        log.info("deleting the log of a deleted topic, partition=%s topic_id=%s", new.topic_partition, found.topic_id)
        return True

    def _host(self, new: _NewReplica) -> None:
        topic_partition = new.log.topic_partition
        partition_log = self._logs.get(topic_partition)
        if partition_log is None:
            return  # the partition is offline already
        try:
            _check_can_be_hosted(partition_log)
        except BrokerError as error:
            self._take_offline(new.log, error)
            return
        partition_log.config = new.log.config
        partition = Partition(
            topic_partition,
            partition_log,
            topic_id=new.log.topic_id,
            broker_id=self._replicas.broker_id,
            high_watermark=self._logs.checkpoints.high_watermark(partition_log),
            brokers=self._replicas.brokers,
            lag_time_max_ms=self._lag_time_max_ms,
        )
        metrics.start_topic(topic_partition.topic)
        self._replicas.host(partition)
        self._replicas.apply(partition, new.image)

    def _take_offline(self, new: NewLog, error: BrokerError) -> None:
        if self._replicas.offline.reason(new.topic_partition) != str(error):
            log.error("partition=%s is offline: %s", new.topic_partition, error)
        # A full disk may have space again before the broker restarts.
        until_restart = not isinstance(error, DiskFull)
        self._replicas.take_offline(new.topic_partition, new.topic_id, str(error), until_restart=until_restart)

    async def _on_thread(self, run: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    # Configs

    def _apply_configs(self, old: MetadataImage, new: MetadataImage) -> None:
        changed = changed_configs(old, new)
        own = {(CONFIG_RESOURCE_TYPE_BROKER, ""), (CONFIG_RESOURCE_TYPE_BROKER, str(self._replicas.broker_id))}
        every_topic = not own.isdisjoint(changed)
        configs: dict[str, LogConfig] = {}
        for partition in self._replicas:
            name = partition.topic_partition.topic
            if not every_topic and (CONFIG_RESOURCE_TYPE_TOPIC, name) not in changed:
                continue
            if name not in configs:
                configs[name] = LogConfig.from_configs(self._topic_configs(new, name))
                log.info("applied configs of topic=%s: %s", name, configs[name])
            partition.log.config = configs[name]
            self._replicas.review(partition)


def _name(topic: TopicImage, partition: PartitionImage) -> TopicPartition:
    return TopicPartition(topic.name, partition.partition)


def _is_known(wanted: NewLog, old: MetadataImage) -> bool:
    """Returns True if the partition is older than the new image. At the start, every partition counts as older."""
    name, number = wanted.topic_partition
    topic = old.topic(name)
    was_there = topic is not None and topic.topic_id == wanted.topic_id and number < len(topic.partitions)
    return not old.end_index or was_there


def _is_unidentified(found: PartitionLog) -> bool:
    """Returns True if a log has records, but no `partition.metadata` with its topic's id."""
    return found.topic_id is None and found.log_end_offset > 0


def _check_can_be_hosted(found: PartitionLog) -> None:
    """Raises KafkaStorageError if the log's directory is offline or its topic id is unknown."""
    found.log_dir.check_online()
    if _is_unidentified(found):
        raise ErrorCode.KAFKA_STORAGE_ERROR.exception(
            f"{found.directory} has records but no partition.metadata, so its topic id is unknown"
        )
