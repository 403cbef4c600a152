"""The metadata image: what the metadata log says, up to an index, as one immutable value.

Controllers, brokers and coordinators all build it with the same `replay`, so equal logs give equal images
(KRaft's MetadataImage and MetadataDelta; the records are proto/klamm/v1/metadata.proto).

Invariants, asserted while replaying because only a bug of a controller can break them:

- `topics_by_name` and `topics_by_id` hold the same objects; `partitions[n].partition == n`.
- A partition's replicas are distinct and not empty, its in-sync set is part of them, its leader is in it
  or -1. The eligible, adding, removing, offline and resigned replicas are part of the replicas as well, and nobody
  who is eligible or offline is in sync.
- The epoch of a registration, and of a shard's writer, only grows; a change names the registration it means.
- `configs` holds no empty mapping; `shards` only those of topics that exist.

Images share what did not change: an object that is identical in two images did not change between them.
Nobody may write into a mapping of an image.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from klamm.model import topic_collision_key
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_TOPIC,
    BrokerChangeRecord,
    BrokerIds,
    ClusterRecord,
    ConfigRecord,
    CoordinatorChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterCoordinatorRecord,
    RemoveTopicRecord,
    ShardAssignmentRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterCoordinatorRecord,
)
from klamm_server.listeners import Listener, SecurityProtocol, decode, encode, endpoint, first, plain_listeners
from klamm_server.metadata.partition_index import IndexDraft, PartitionIndex
from klamm_server.metadata.persistent_map import MapDraft, PersistentMap

NO_LEADER = -1
NO_COORDINATOR = -1

ConfigResource = tuple[int, str]
"""(ConfigResourceType, topic name or broker id); an empty name is the default of all brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A registered broker."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    host: str
    port: int
    rack: str
    fenced: bool
    in_controlled_shutdown: bool
    log_dir_ids: tuple[bytes, ...]
    static_configs: Mapping[str, str]
    listeners: tuple[Listener, ...] = ()
    """What clients dial; `host` and `port` are what other servers do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorImage:
    """A registered coordinator."""

    coordinator_id: int
    coordinator_epoch: int
    incarnation_id: bytes
    host: str
    port: int
    fenced: bool
    listeners: tuple[Listener, ...] = ()
    """What clients dial; `host` and `port` are what other servers do."""


class PartitionImage(NamedTuple):
    """A partition; `leader` is -1 when it has none.

    There may be a million: a tuple is made in a fifth of a frozen dataclass's time. Equal lists of replicas are one
    object."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    """Out of sync, with every committed record nevertheless: who leads when the in-sync set is empty (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The leader that was there when the in-sync set became empty; empty while there is a leader."""
    adding_replicas: tuple[int, ...] = ()
    """What a reassignment adds."""
    removing_replicas: tuple[int, ...] = ()
    """What a reassignment removes."""
    offline_replicas: tuple[int, ...] = ()
    """What their brokers cannot reach, as they said since they registered."""
    resigned_replicas: tuple[int, ...] = ()
    """Their brokers said since they registered that they are not to lead or be in sync while another one can lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic; `partitions` is indexed by partition number."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardImage:
    """Who owns a shard of an internal topic (-1: nobody), and as which writer."""

    coordinator_id: int
    producer_id: int
    writer_epoch: int
    coordinator_epoch: int = 0
    """Grows from owner to owner, also when `writer_epoch` begins anew."""
    former_producer_id: int | None = None
    """Of the owners before it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The cluster after every record below `end_index`."""

    cluster_id: str
    end_index: int
    brokers: Mapping[int, BrokerImage]
    coordinators: Mapping[int, CoordinatorImage]
    topics_by_name: PersistentMap[str, TopicImage]
    topics_by_id: PersistentMap[uuid.UUID, TopicImage]
    names_by_collision_key: PersistentMap[str, str]
    """The names that another one may resemble (klamm.model.topic_collision_key): those with '.' or '_'."""
    configs: Mapping[ConfigResource, Mapping[str, str]]
    shards: Mapping[tuple[str, int], ShardImage]
    next_producer_id: int
    index: PartitionIndex
    """Derived from the partitions."""

    @classmethod
    def empty(cls) -> MetadataImage:
        """The image of no records."""
        return cls(
            cluster_id="",
            end_index=0,
            brokers={},
            coordinators={},
            topics_by_name=PersistentMap(),
            topics_by_id=PersistentMap(),
            names_by_collision_key=PersistentMap(),
            configs={},
            shards={},
            next_producer_id=0,
            index=PartitionIndex(),
        )

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name."""
        return self.topics_by_name.get(name)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """The partition, or None when the topic or the number does not exist."""
        found = self.topics_by_name.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """What is set on the topic itself; defaults are config_defs' business."""
        return self.configs.get((CONFIG_RESOURCE_TYPE_TOPIC, name), {})

    def broker_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """What is set at run time on a broker, or with None on all brokers."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get((CONFIG_RESOURCE_TYPE_BROKER, name), {})

    def live_brokers(self) -> tuple[BrokerImage, ...]:
        """Brokers that are not fenced, by id; one in a controlled shutdown is still among them."""
        return tuple(self.brokers[i] for i in sorted(self.brokers) if not self.brokers[i].fenced)

    def live_coordinators(self) -> tuple[CoordinatorImage, ...]:
        """Coordinators that are not fenced, by id."""
        return tuple(self.coordinators[i] for i in sorted(self.coordinators) if not self.coordinators[i].fenced)

    def shard_owner(self, topic: str, shard: int) -> CoordinatorImage | None:
        """The coordinator that serves a shard, or None while nobody does (unassigned, gone or fenced)."""
        assigned = self.shards.get((topic, shard))
        owner = self.coordinators.get(assigned.coordinator_id) if assigned else None
        return None if owner is None or owner.fenced else owner


# ---- what changed between two images


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDelta:
    """Differences between two images, by topic id: a topic deleted and created anew is in both lists."""

    created: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    changed: tuple[tuple[TopicImage, TopicImage], ...]
    """(before, after)"""


def changed_topics(old: MetadataImage, new: MetadataImage) -> TopicsDelta:
    """What happened to topics and partitions from `old` to `new`."""
    before, after = old.topics_by_id, new.topics_by_id
    pairs = [(before.get(topic_id), after.get(topic_id)) for topic_id in before.keys_that_differ(after)]
    return TopicsDelta(
        created=tuple(now for was, now in pairs if now is not None and was is None),
        deleted=tuple(was for was, now in pairs if was is not None and now is None),
        changed=tuple((was, now) for was, now in pairs if was is not None and now is not None and was != now),
    )


def changed_configs(old: MetadataImage, new: MetadataImage) -> frozenset[ConfigResource]:
    """The resources whose own settings differ between two images."""
    if old.configs is new.configs:
        return frozenset()
    return frozenset(
        resource
        for resource in old.configs.keys() | new.configs.keys()
        if _differs(old.configs.get(resource), new.configs.get(resource))
    )


def _differs(one: object, other: object) -> bool:
    """Identity first: only images that a snapshot separates hold equal things that are not identical."""
    return one is not other and one != other


# ---- replay


def replay(image: MetadataImage, records: Sequence[MetadataRecord], end_index: int) -> MetadataImage:
    """The image after `records`, of which the last is `end_index - 1`; `image` stays as it is.

    Raises AssertionError on a record that cannot follow the image."""
    assert end_index >= image.end_index, f"replay goes back from {image.end_index} to {end_index}"
    builder = ImageBuilder(image)
    builder.apply(records)
    return builder.finish(end_index)


_K = TypeVar("_K")
_V = TypeVar("_V")


class _Draft(Generic[_K, _V]):
    """A mapping that is copied when it is first written to."""

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
    """An image under construction: `apply` as often as there are records, then `finish`; `image` stays as it is.

    One method per kind of record, named as in the contract's oneof."""

    def __init__(self, image: MetadataImage) -> None:
        self._cluster_id = image.cluster_id
        self._brokers = _Draft(image.brokers)
        self._coordinators = _Draft(image.coordinators)
        self._topics_by_name = MapDraft(image.topics_by_name)
        self._topics_by_id = MapDraft(image.topics_by_id)
        self._names_by_collision_key = MapDraft(image.names_by_collision_key)
        # Topics whose partitions are being changed: a tuple per record would be quadratic in the partitions.
        self._partitions: dict[bytes, list[PartitionImage]] = {}
        self._configs = _Draft(image.configs)
        self._shards = _Draft(image.shards)
        self._next_producer_id = image.next_producer_id
        self._index = IndexDraft(image.index)

    def apply(self, records: Iterable[MetadataRecord]) -> None:
        """The records that follow. Raises AssertionError on one that cannot."""
        for record in records:
            kind = record.WhichOneof("kind")
            assert kind is not None, "a metadata record has no kind that this version knows"
            handle: Callable[[object], None] = getattr(self, kind)
            handle(getattr(record, kind))

    def finish(self, end_index: int) -> MetadataImage:
        """The image; the builder is used up."""
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
        # By position: with so many fields, names take longer than all the rest.
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
        # Records of before this field have the greater of the first two, until the writer epoch began anew.
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

    def no_op(self, record: NoOpRecord) -> None:
        """Only the end index moves."""


def changed_partition(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """The partition after the change. Raises AssertionError on one that cannot be."""
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


def can_collide(topic_name: str) -> bool:
    """Whether another name may be the same in metric names."""
    return "." in topic_name or "_" in topic_name


_DIFFERENT_LISTS = 1 << 16
"""Remembered at most. A cluster of 100 brokers has some 10,000 lists of replicas."""


@lru_cache(_DIFFERENT_LISTS)
def _shared(broker_ids: tuple[int, ...]) -> tuple[int, ...]:
    """The one object for all equal lists."""
    return broker_ids


def _broker_ids(repeated: Sequence[int]) -> tuple[int, ...]:
    """A record's list. Most are empty; a slice of the others comes as a list at once, not number by number."""
    return _shared(tuple(repeated[:])) if repeated else ()


@lru_cache(_DIFFERENT_LISTS)
def _problem(replicas: tuple[int, ...], isr: tuple[int, ...]) -> str:
    """What is wrong with a partition's lists, or nothing. Most partitions have the lists of many others."""
    if not replicas:
        return "no replicas"
    if len(set(replicas)) < len(replicas):
        return "a replica is named twice"
    if len(set(isr)) < len(isr):
        return "an in-sync replica is named twice"
    return "" if set(isr) <= set(replicas) else "in sync without being a replica"


# ---- snapshots


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Records that make this image, its `end_index` aside, out of the empty one."""
    if image.cluster_id:
        yield MetadataRecord(cluster=ClusterRecord(cluster_id=image.cluster_id))
    for broker in image.brokers.values():
        yield from _broker_records(broker)
    for coordinator in image.coordinators.values():
        yield _coordinator_record(coordinator)
    for topic in image.topics_by_id.values():
        yield from _topic_records(topic)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield MetadataRecord(
                config=ConfigRecord(
                    resource_type=resource_type,  # type: ignore[arg-type]  # stubs want the enum's NewType
                    resource_name=resource_name,
                    name=name,
                    value=value,
                )
            )
    for (topic_name, shard), assigned in image.shards.items():
        yield MetadataRecord(
            shard_assignment=ShardAssignmentRecord(
                topic=topic_name,
                shard=shard,
                coordinator_id=assigned.coordinator_id,
                producer_id=assigned.producer_id,
                writer_epoch=assigned.writer_epoch,
                coordinator_epoch=assigned.coordinator_epoch,
                former_producer_id=assigned.former_producer_id,
            )
        )
    yield MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=image.next_producer_id))


def _broker_records(broker: BrokerImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(
        register_broker=RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            endpoint=Endpoint(host=broker.host, port=broker.port),
            rack=broker.rack,
            fenced=broker.fenced,
            log_dir_ids=broker.log_dir_ids,
            static_configs=dict(broker.static_configs),
            kafka_endpoint=endpoint(first(broker.listeners, SecurityProtocol.KAFKA)),
            listeners=encode(broker.listeners),
        )
    )
    if broker.in_controlled_shutdown:
        yield MetadataRecord(
            broker_change=BrokerChangeRecord(
                broker_id=broker.broker_id,
                broker_epoch=broker.broker_epoch,
                fenced=broker.fenced,
                in_controlled_shutdown=True,
            )
        )


def _coordinator_record(coordinator: CoordinatorImage) -> MetadataRecord:
    return MetadataRecord(
        register_coordinator=RegisterCoordinatorRecord(
            coordinator_id=coordinator.coordinator_id,
            incarnation_id=coordinator.incarnation_id,
            coordinator_epoch=coordinator.coordinator_epoch,
            endpoint=Endpoint(host=coordinator.host, port=coordinator.port),
            fenced=coordinator.fenced,
            listeners=encode(coordinator.listeners),
        )
    )


def _topic_records(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic.topic_id.bytes))
    for partition in topic.partitions:
        yield MetadataRecord(
            partition=PartitionRecord(
                topic_id=topic.topic_id.bytes,
                partition=partition.partition,
                replicas=partition.replicas,
                isr=partition.isr,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                elr=partition.elr,
                last_known_elr=partition.last_known_elr,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
                offline_replicas=partition.offline_replicas,
                resigned_replicas=partition.resigned_replicas,
            )
        )
