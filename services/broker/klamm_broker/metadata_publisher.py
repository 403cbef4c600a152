"""Brings the replicas of this broker in line with each new metadata image.

Kafka's `BrokerMetadataPublisher`. Synchronous: when `publish` returns, every partition that the image gives to
this broker has a log and knows its leader, those it takes away are gone, and configs are in force. Only then may a
heartbeat report the image's end index, because that is what makes the controller count on this broker.

A log whose topic id is not the image's belongs to a topic of the same name that was deleted while the broker
was away: its directory is removed. A partition whose log cannot be opened is offline and answers
KAFKA_STORAGE_ERROR; it does not keep the others from being served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.partition_log import PartitionLog, PendingDeletion
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.clock import Clock
from klamm_server.metadata.image import (
    MetadataImage,
    PartitionImage,
    TopicImage,
    changed_configs,
    changed_topics,
)

log = logging.getLogger(__name__)

TopicConfigs = Callable[[MetadataImage, str], Mapping[str, str]]
"""The effective configs of a topic: its own, over the brokers' dynamic ones, over this process's."""


class MetadataPublisher:
    """`publish` is the metadata link's callback. `retire` takes the files of deleted logs."""

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        *,
        topic_configs: TopicConfigs,
        retire: Callable[[PendingDeletion], None],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._topic_configs = topic_configs
        self._retire = retire
        self._clock = clock

    def publish_first(self, image: MetadataImage) -> None:
        """The image the broker starts with: also removes logs of topics that are gone."""
        for topic_partition in list(self._logs.logs):
            if not self._is_hosted(image, topic_partition):
                log.info("partition=%s stray=removed", topic_partition)
                self._delete_log(topic_partition)
        self.publish(MetadataImage.empty(), image)

    def publish(self, old: MetadataImage, new: MetadataImage) -> None:
        """From one image to the next."""
        delta = changed_topics(old, new)
        for topic in delta.deleted:
            for partition in topic.partitions:
                self._remove(TopicPartition(topic.name, partition.partition))
        self._apply_configs(old, new)
        for topic in delta.created:
            self._bring_in_line(topic, {}, new)
        for before, after in delta.changed:
            self._bring_in_line(after, {one.partition: one for one in before.partitions}, new)
        self._replicas.image = new

    def _is_hosted(self, image: MetadataImage, topic_partition: TopicPartition) -> bool:
        partition = image.partition(topic_partition.topic, topic_partition.partition)
        return partition is not None and self._replicas.broker_id in partition.replicas

    # Partitions

    def _bring_in_line(self, topic: TopicImage, before: Mapping[int, PartitionImage], image: MetadataImage) -> None:
        config = LogConfig.from_configs(self._topic_configs(image, topic.name))
        for partition in topic.partitions:
            if before.get(partition.partition) is partition:
                continue
            topic_partition = TopicPartition(topic.name, partition.partition)
            if self._replicas.broker_id in partition.replicas:
                self._host(topic_partition, topic, partition, config)
            else:
                self._remove(topic_partition)

    def _host(
        self, topic_partition: TopicPartition, topic: TopicImage, image: PartitionImage, config: LogConfig
    ) -> None:
        partition = self._replicas.get(topic_partition)
        if partition is None:
            try:
                partition_log = self._open(topic_partition, TopicId(topic.topic_id), config)
            except BrokerError as error:
                log.error("partition=%s offline: %s", topic_partition, error)
                self._replicas.drop(topic_partition, offline_reason=str(error))
                return
            partition = Partition(
                topic_partition,
                partition_log,
                broker_id=self._replicas.broker_id,
                high_watermark=self._logs.checkpointed_high_watermark(partition_log),
            )
            self._replicas.host(partition)
        self._replicas.apply(partition, image)

    def _open(self, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig) -> PartitionLog:
        now_ms = self._clock.wall_ms()
        found = self._logs.get(topic_partition)
        if found is not None and found.topic_id != topic_id:
            self._check_stale(found)
            log.info("partition=%s topic_id=%s stale=removed", topic_partition, found.topic_id)
            self._delete_log(topic_partition)
        partition_log = self._logs.get_or_create(topic_partition, topic_id, config, now_ms=now_ms)
        partition_log.log_dir.check_online()
        partition_log.config = config
        return partition_log

    def _check_stale(self, found: PartitionLog) -> None:
        """Raises KafkaStorageError unless the log certainly is not the present topic's."""
        if found.topic_id is None and found.log_end_offset:
            raise ErrorCode.KAFKA_STORAGE_ERROR.exception(
                f"{found.directory} has records but no partition.metadata to say of which topic"
            )

    def _remove(self, topic_partition: TopicPartition) -> None:
        self._replicas.drop(topic_partition)
        if self._logs.get(topic_partition) is not None:
            self._delete_log(topic_partition)

    def _delete_log(self, topic_partition: TopicPartition) -> None:
        try:
            self._retire(self._logs.delete(topic_partition, now_ms=self._clock.wall_ms()))
        except BrokerError as error:
            # The directory is found to be a stray at the next start, and removed then.
            log.error("partition=%s not deleted: %s", topic_partition, error)

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
                log.info("topic=%s config=%s", name, configs[name])
            partition.log.config = configs[name]
