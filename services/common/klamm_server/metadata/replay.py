"""Replays metadata records into an image. An image changes in no other way.

Controllers, brokers and coordinators replay the same records, so equal logs give equal images."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from klamm.model import topic_collision_key
from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism
from klamm.wire.acls import binding_of
from klamm.wire.quotas import entity_of
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_TOPIC,
    AccessControlEntryRecord,
    BrokerChangeRecord,
    BrokerIds,
    ClientQuotaRecord,
    ClusterRecord,
    ClusterSecretRecord,
    ConfigRecord,
    CoordinatorChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterCoordinatorRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ShardAssignmentRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterCoordinatorRecord,
    UserScramCredentialRecord,
)
from klamm_server.metadata.acl_index import AclDraft
from klamm_server.metadata.entities import (
    NO_LEADER,
    BrokerImage,
    CoordinatorImage,
    PartitionImage,
    ShardImage,
    TopicImage,
)
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.partition_index import IndexDraft
from klamm_server.metadata.persistent_map import MapDraft
from klamm_server.net.listeners import decode, plain_listeners


def replay(image: MetadataImage, records: Sequence[MetadataRecord], end_index: int) -> MetadataImage:
    """Returns the image after `records`, of which the last has the index `end_index - 1`. The old image does not
    change.

    Raises AssertionError for a record that cannot follow the image."""
    assert end_index >= image.end_index, f"replay goes back from {image.end_index} to {end_index}"
    builder = ImageBuilder(image)
    builder.apply(records)
    return builder.finish(end_index)


_K = TypeVar("_K")
_V = TypeVar("_V")


class _Draft(Generic[_K, _V]):
    """A mapping that is copied at the first write."""

    __slots__ = ("_copy", "current")

    def __init__(self, base: Mapping[_K, _V]) -> None:
        self.current: Mapping[_K, _V] = base
        self._copy: dict[_K, _V] | None = None

    def writable(self) -> dict[_K, _V]:
        if self._copy is None:
            self._copy = dict(self.current)
            self.current = self._copy
        return self._copy


class ImageBuilder:
    """Builds an image: call `apply` any number of times, then `finish`. The old image does not change.

    Each kind of record has one method, with its name in the contract's oneof."""

    def __init__(self, image: MetadataImage) -> None:
        self._cluster_id = image.cluster_id
        self._brokers = _Draft(image.brokers)
        self._coordinators = _Draft(image.coordinators)
        self._topics_by_name = MapDraft(image.topics_by_name)
        self._topics_by_id = MapDraft(image.topics_by_id)
        self._names_by_collision_key = MapDraft(image.names_by_collision_key)
        # Topics whose partitions are being changed. A new tuple for each record would take quadratic time.
        self._partitions: dict[bytes, list[PartitionImage]] = {}
        self._configs = _Draft(image.configs)
        self._shards = _Draft(image.shards)
        self._next_producer_id = image.next_producer_id
        self._acls = AclDraft(image.acls)
        self._scram_credentials = _Draft(image.scram_credentials)
        self._cluster_secret = image.cluster_secret
        self._client_quotas = _Draft(image.client_quotas)
        self._index = IndexDraft(image.index)

    def apply(self, records: Iterable[MetadataRecord]) -> None:
        """Applies the next records. Raises AssertionError for a record that cannot follow."""
        for record in records:
            kind = record.WhichOneof("kind")
            assert kind is not None, "a metadata record has no kind that this version knows"
            handle: Callable[[object], None] = getattr(self, kind)
            handle(getattr(record, kind))

    def finish(self, end_index: int) -> MetadataImage:
        """Returns the new image. The builder must not be used afterwards."""
        for topic_id, partitions in self._partitions.items():
            topic = self._topic_by_id(topic_id)
            self._put_topic(TopicImage(name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)))
        return MetadataImage(
            cluster_id=self._cluster_id,
            end_index=end_index,
            brokers=self._brokers.current,
            coordinators=self._coordinators.current,
            topics_by_name=self._topics_by_name.finish(),
            topics_by_id=self._topics_by_id.finish(),
            names_by_collision_key=self._names_by_collision_key.finish(),
            configs=self._configs.current,
            shards=self._shards.current,
            next_producer_id=self._next_producer_id,
            acls=self._acls.finish(),
            scram_credentials=self._scram_credentials.current,
            cluster_secret=self._cluster_secret,
            client_quotas=self._client_quotas.current,
            index=self._index.finish(),
        )

    def cluster(self, record: ClusterRecord) -> None:
        assert record.cluster_id, "the cluster id is empty"
        assert not self._cluster_id, f"cluster {self._cluster_id} cannot become {record.cluster_id}"
        self._cluster_id = record.cluster_id

    # servers

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        known = self._brokers.current.get(record.broker_id)
        assert known is None or known.broker_epoch < record.broker_epoch, (
            f"broker {record.broker_id}: epoch {record.broker_epoch} registers after {known}"
        )
        self._brokers.writable()[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            host=record.endpoint.host,
            port=record.endpoint.port,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=False,
            log_dir_ids=tuple(record.log_dir_ids),
            static_configs=dict(record.static_configs),
            listeners=decode(record.listeners)
            or plain_listeners(record.endpoint.host, record.endpoint.port, record.kafka_endpoint),
        )

    def broker_change(self, record: BrokerChangeRecord) -> None:
        broker = self._registered_broker(record.broker_id, record.broker_epoch)
        self._brokers.writable()[record.broker_id] = replace(
            broker, fenced=record.fenced, in_controlled_shutdown=record.in_controlled_shutdown
        )

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._registered_broker(record.broker_id, record.broker_epoch)
        del self._brokers.writable()[record.broker_id]

    def register_coordinator(self, record: RegisterCoordinatorRecord) -> None:
        known = self._coordinators.current.get(record.coordinator_id)
        assert known is None or known.coordinator_epoch < record.coordinator_epoch, (
            f"coordinator {record.coordinator_id}: epoch {record.coordinator_epoch} registers after {known}"
        )
        self._coordinators.writable()[record.coordinator_id] = CoordinatorImage(
            coordinator_id=record.coordinator_id,
            coordinator_epoch=record.coordinator_epoch,
            incarnation_id=record.incarnation_id,
            host=record.endpoint.host,
            port=record.endpoint.port,
            fenced=record.fenced,
            listeners=decode(record.listeners) or plain_listeners(record.endpoint.host, record.endpoint.port),
        )

    def coordinator_change(self, record: CoordinatorChangeRecord) -> None:
        coordinator = self._registered_coordinator(record.coordinator_id, record.coordinator_epoch)
        self._coordinators.writable()[record.coordinator_id] = replace(coordinator, fenced=record.fenced)

    def unregister_coordinator(self, record: UnregisterCoordinatorRecord) -> None:
        self._registered_coordinator(record.coordinator_id, record.coordinator_epoch)
        del self._coordinators.writable()[record.coordinator_id]

    def _registered_broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self._brokers.current.get(broker_id)
        assert broker is not None, f"broker {broker_id} is not registered"
        assert broker.broker_epoch == broker_epoch, (
            f"broker {broker_id} has epoch {broker.broker_epoch}, the record means {broker_epoch}"
        )
        return broker

    def _registered_coordinator(self, coordinator_id: int, coordinator_epoch: int) -> CoordinatorImage:
        coordinator = self._coordinators.current.get(coordinator_id)
        assert coordinator is not None, f"coordinator {coordinator_id} is not registered"
        assert coordinator.coordinator_epoch == coordinator_epoch, (
            f"coordinator {coordinator_id} has epoch {coordinator.coordinator_epoch},"
            f" the record means {coordinator_epoch}"
        )
        return coordinator

    # topics

    def topic(self, record: TopicRecord) -> None:
        topic_id = uuid.UUID(bytes=record.topic_id)
        assert record.name not in self._topics_by_name, f"topic {record.name} exists"
        assert topic_id not in self._topics_by_id, f"topic id {topic_id} exists"
        self._put_topic(TopicImage(name=record.name, topic_id=topic_id, partitions=()))
        if can_collide(record.name):
            self._names_by_collision_key.put(topic_collision_key(record.name), record.name)

    def partition(self, record: PartitionRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        assert record.partition == len(partitions), (
            f"partition {record.partition} of topic id {uuid.UUID(bytes=record.topic_id)} is created"
            f" when there are {len(partitions)}"
        )
        # Positional arguments: for this number of fields, keywords take longer than the rest of the work.
        partition = _checked(
            PartitionImage(
                record.partition,
                _broker_ids(record.replicas),
                _broker_ids(record.isr),
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                _broker_ids(record.elr),
                _broker_ids(record.last_known_elr),
                _broker_ids(record.adding_replicas),
                _broker_ids(record.removing_replicas),
                _broker_ids(record.offline_replicas),
                _broker_ids(record.resigned_replicas),
            )
        )
        partitions.append(partition)
        self._index.add(record.topic_id, partition)

    def partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        assert 0 <= record.partition < len(partitions), (
            f"partition {record.partition} of topic id {uuid.UUID(bytes=record.topic_id)} changes"
            f" when there are {len(partitions)}"
        )
        before = partitions[record.partition]
        after = partitions[record.partition] = changed_partition(before, record)
        self._index.change(record.topic_id, before, after)

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic_by_id(record.topic_id)
        self._index.remove(record.topic_id, self._partitions.pop(record.topic_id, topic.partitions))
        self._topics_by_id.remove(topic.topic_id)
        self._topics_by_name.remove(topic.name)
        if can_collide(topic.name):
            self._names_by_collision_key.remove(topic_collision_key(topic.name))
        resource = (int(CONFIG_RESOURCE_TYPE_TOPIC), topic.name)
        if resource in self._configs.current:
            del self._configs.writable()[resource]
        for key in [key for key in self._shards.current if key[0] == topic.name]:
            del self._shards.writable()[key]

    def _put_topic(self, topic: TopicImage) -> None:
        self._topics_by_name.put(topic.name, topic)
        self._topics_by_id.put(topic.topic_id, topic)

    def _topic_by_id(self, topic_id_bytes: bytes) -> TopicImage:
        topic_id = uuid.UUID(bytes=topic_id_bytes)
        topic = self._topics_by_id.get(topic_id)
        assert topic is not None, f"no topic has the id {topic_id}"
        return topic

    def _partitions_of(self, topic_id_bytes: bytes) -> list[PartitionImage]:
        partitions = self._partitions.get(topic_id_bytes)
        if partitions is None:
            topic = self._topic_by_id(topic_id_bytes)
            partitions = self._partitions[topic_id_bytes] = list(topic.partitions)
        return partitions

    # the rest

    def config(self, record: ConfigRecord) -> None:
        resource = (int(record.resource_type), record.resource_name)
        settings = dict(self._configs.current.get(resource, {}))
        if record.HasField("value"):
            settings[record.name] = record.value
        else:
            settings.pop(record.name, None)
        configs = self._configs.writable()
        if settings:
            configs[resource] = settings
        else:
            configs.pop(resource, None)

    def shard_assignment(self, record: ShardAssignmentRecord) -> None:
        topic = self._topics_by_name.get(record.topic)
        assert topic is not None, f"shard {record.shard} of {record.topic}: the topic does not exist"
        shard_count = len(self._partitions.get(topic.topic_id.bytes, topic.partitions))
        assert 0 <= record.shard < shard_count, f"{record.topic} has {shard_count} shards, not {record.shard}"
        before = self._shards.current.get((record.topic, record.shard))
        assert (
            before is None or before.producer_id != record.producer_id or before.writer_epoch < record.writer_epoch
        ), f"shard {record.shard} of {record.topic}: writer epoch {record.writer_epoch} follows {before}"
        # Records that are older than this field get the greater of the first two. That is correct until the writer
        # epoch restarts at 0.
        least = 0 if before is None else before.coordinator_epoch + 1
        coordinator_epoch = max(record.coordinator_epoch, record.writer_epoch, least)
        self._shards.writable()[record.topic, record.shard] = ShardImage(
            coordinator_id=record.coordinator_id,
            producer_id=record.producer_id,
            writer_epoch=record.writer_epoch,
            coordinator_epoch=coordinator_epoch,
            former_producer_id=record.former_producer_id if record.HasField("former_producer_id") else None,
        )

    def producer_ids(self, record: ProducerIdsRecord) -> None:
        assert record.next_producer_id >= self._next_producer_id, (
            f"producer ids go back from {self._next_producer_id} to {record.next_producer_id}"
        )
        self._next_producer_id = record.next_producer_id

    def access_control_entry(self, record: AccessControlEntryRecord) -> None:
        self._acls.add(uuid.UUID(bytes=record.id), binding_of(record))

    def remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        self._acls.remove(uuid.UUID(bytes=record.id))

    def cluster_secret(self, record: ClusterSecretRecord) -> None:
        assert not self._cluster_secret, "the cluster has a secret and gets another one"
        assert record.secret, "the cluster's secret is empty"
        self._cluster_secret = record.secret

    def user_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self._scram_credentials.writable()[record.name, _mechanism(record.mechanism)] = ScramCredential(
            salt=record.salt,
            iterations=record.iterations,
            stored_key=record.stored_key,
            server_key=record.server_key,
        )

    def remove_user_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        key = (record.name, _mechanism(record.mechanism))
        assert key in self._scram_credentials.current, (
            f"user {record.name} has no credential of {key[1].mechanism_name}"
        )
        del self._scram_credentials.writable()[key]

    def client_quota(self, record: ClientQuotaRecord) -> None:
        entity = entity_of(record.entity)
        assert entity, f"a quota {record.key} is for nobody"
        quotas = dict(self._client_quotas.current.get(entity, {}))
        if record.remove:
            assert record.key in quotas, f"{entity} has no quota {record.key}"
            del quotas[record.key]
        else:
            quotas[record.key] = record.value
        if quotas:
            self._client_quotas.writable()[entity] = quotas
        else:
            del self._client_quotas.writable()[entity]

    def no_op(self, record: NoOpRecord) -> None:
        """Changes only the end index."""


def changed_partition(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Returns the partition after the change. Raises AssertionError for an impossible change."""
    changes: dict[str, Any] = {
        field.name: _broker_ids(value.broker_ids)
        for field, value in record.ListFields()
        if isinstance(value, BrokerIds)
    }
    if record.HasField("leader"):
        changes.update(leader=record.leader, leader_epoch=before.leader_epoch + 1)
    return _checked(before._replace(partition_epoch=before.partition_epoch + 1, **changes))


def _checked(partition: PartitionImage) -> PartitionImage:
    problem = _problem(partition.replicas, partition.isr)
    assert not problem, f"{problem}: {partition}"
    assert partition.leader == NO_LEADER or partition.leader in partition.isr, f"the leader is not in sync: {partition}"
    if partition.elr or partition.offline_replicas:
        out_of_sync = {*partition.elr, *partition.offline_replicas}
        assert out_of_sync <= set(partition.replicas), f"eligible or offline without being a replica: {partition}"
        assert not out_of_sync & set(partition.isr), f"in sync, and eligible or offline: {partition}"
    if partition.resigned_replicas:
        assert set(partition.resigned_replicas) <= set(partition.replicas), f"resigned without a replica: {partition}"
    if partition.adding_replicas or partition.removing_replicas:
        moving = {*partition.adding_replicas, *partition.removing_replicas}
        assert moving <= set(partition.replicas), f"reassigned without being a replica: {partition}"
    return partition


def _mechanism(number: int) -> ScramMechanism:
    mechanism = ScramMechanism.of_number(number)
    assert mechanism is not None, f"SCRAM mechanism {number} is unknown"
    return mechanism


def can_collide(topic_name: str) -> bool:
    """Returns whether another topic name may have the same metric name."""
    return "." in topic_name or "_" in topic_name


_DIFFERENT_LISTS = 1 << 16
"""The maximum number of cached lists. A cluster of 100 brokers has some 10,000 different lists of replicas."""


@lru_cache(_DIFFERENT_LISTS)
def _shared(broker_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Returns one shared object for all equal lists."""
    return broker_ids


def _broker_ids(repeated: Sequence[int]) -> tuple[int, ...]:
    """Returns a record's list as a tuple. Most lists are empty. A slice converts the others at once, not number by
    number."""
    return _shared(tuple(repeated[:])) if repeated else ()


@lru_cache(_DIFFERENT_LISTS)
def _problem(replicas: tuple[int, ...], isr: tuple[int, ...]) -> str:
    """Returns the error in a partition's lists, or empty text. It is cached, because many partitions have the same
    lists."""
    if not replicas:
        return "no replicas"
    if len(set(replicas)) < len(replicas):
        return "a replica is named twice"
    if len(set(isr)) < len(isr):
        return "an in-sync replica is named twice"
    return "" if set(isr) <= set(replicas) else "in sync without being a replica"
