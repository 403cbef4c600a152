"""The metadata image: the content of the metadata log up to an index, as one immutable value.

Controllers, brokers and coordinators all build it with the same `replay`, so equal logs give equal images
(KRaft's MetadataImage and MetadataDelta; the records are proto/klamm/v1/metadata.proto).

Invariants, asserted while replaying (`replay.py`) because only a bug of a controller can break them:

- `topics_by_name` and `topics_by_id` hold the same objects; `partitions[n].partition == n`.
- A partition's replicas are distinct and not empty, its in-sync set is part of them, its leader is in it
  or -1. The eligible, adding, removing, offline and resigned replicas are part of the replicas as well, and nobody
  who is eligible or offline is in sync.
- The epoch of a registration, and of a shard's writer, only grows; a change names the registration it means.
- `configs` and `client_quotas` hold no empty mapping; `shards` only those of topics that exist.

Images share unchanged objects: an object that is identical in two images did not change between them. No code may write
into a mapping of an image."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from klamm.quotas import QuotaEntity
from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_TOPIC,
)
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.metadata.entities import (
    BrokerImage,
    CoordinatorImage,
    PartitionImage,
    ShardImage,
    TopicImage,
)
from klamm_server.metadata.partition_index import PartitionIndex
from klamm_server.metadata.persistent_map import PersistentMap

ConfigKey = tuple[int, str]
"""(ConfigResourceType, topic name or broker id); an empty name is the default of all brokers."""
CredentialKey = tuple[str, ScramMechanism]
"""A user's name and the mechanism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The state of the cluster after every record below `end_index`."""

    cluster_id: str
    end_index: int
    brokers: Mapping[int, BrokerImage]
    coordinators: Mapping[int, CoordinatorImage]
    topics_by_name: PersistentMap[str, TopicImage]
    topics_by_id: PersistentMap[uuid.UUID, TopicImage]
    names_by_collision_key: PersistentMap[str, str]
    """Topic names by collision key (klamm.model.topic_collision_key). It has only names with '.' or '_', because others
    cannot collide."""
    configs: Mapping[ConfigKey, Mapping[str, str]]
    shards: Mapping[tuple[str, int], ShardImage]
    next_producer_id: int
    acls: AclIndex
    scram_credentials: Mapping[CredentialKey, ScramCredential]
    cluster_secret: bytes
    """The cluster's secret of 32 bytes. It is empty until a user first gets a credential."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]]
    """The limits by quota key, of each entity that has any."""
    index: PartitionIndex
    """The index that is derived from the partitions."""

    @classmethod
    def empty(cls) -> MetadataImage:
        """Returns the image before the first record."""
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
            acls=AclIndex(),
            scram_credentials={},
            cluster_secret=b"",
            client_quotas={},
            index=PartitionIndex(),
        )

    def topic(self, name: str) -> TopicImage | None:
        """Returns the topic with that name, or None."""
        return self.topics_by_name.get(name)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """Returns the partition, or None if the topic or the number does not exist."""
        found = self.topics_by_name.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Returns the configs that are set on the topic itself. `config_defs` has the defaults."""
        return self.configs.get((CONFIG_RESOURCE_TYPE_TOPIC, name), {})

    def broker_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Returns the configs that are set at run time on a broker, or with None on all brokers."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get((CONFIG_RESOURCE_TYPE_BROKER, name), {})

    def live_brokers(self) -> tuple[BrokerImage, ...]:
        """Returns the brokers that are not fenced, by id. Brokers in a controlled shutdown are included."""
        return tuple(self.brokers[i] for i in sorted(self.brokers) if not self.brokers[i].fenced)

    def live_coordinators(self) -> tuple[CoordinatorImage, ...]:
        """Returns the coordinators that are not fenced, by id."""
        return tuple(self.coordinators[i] for i in sorted(self.coordinators) if not self.coordinators[i].fenced)

    def shard_owner(self, topic: str, shard: int) -> CoordinatorImage | None:
        """Returns the coordinator that serves a shard, or None if there is none (unassigned, gone or fenced)."""
        assigned = self.shards.get((topic, shard))
        owner = self.coordinators.get(assigned.coordinator_id) if assigned else None
        return None if owner is None or owner.fenced else owner


# ---- what changed between two images


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDelta:
    """The differences between the topics of two images. If a topic was deleted and created again, it is in both
    lists.
    """

    created: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    changed: tuple[tuple[TopicImage, TopicImage], ...]
    """Pairs of (before, after)."""


def changed_topics(old: MetadataImage, new: MetadataImage) -> TopicsDelta:
    """Returns the changes of topics and partitions from `old` to `new`."""
    before, after = old.topics_by_id, new.topics_by_id
    pairs = [(before.get(topic_id), after.get(topic_id)) for topic_id in before.keys_that_differ(after)]
    return TopicsDelta(
        created=tuple(now for was, now in pairs if now is not None and was is None),
        deleted=tuple(was for was, now in pairs if was is not None and now is None),
        changed=tuple((was, now) for was, now in pairs if was is not None and now is not None and was != now),
    )


def changed_configs(old: MetadataImage, new: MetadataImage) -> frozenset[ConfigKey]:
    """Returns the resources whose own configs differ between two images."""
    if old.configs is new.configs:
        return frozenset()
    return frozenset(
        resource
        for resource in old.configs.keys() | new.configs.keys()
        if _differs(old.configs.get(resource), new.configs.get(resource))
    )


def _differs(old: object, new: object) -> bool:
    """Returns whether two objects differ. Identical objects are equal; only images with a snapshot between them have
    equal objects that are not identical."""
    return old is not new and old != new
