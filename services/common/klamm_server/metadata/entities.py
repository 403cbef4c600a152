"""The immutable values in a metadata image: brokers, coordinators, topics, partitions, shards."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from klamm_server.net.listeners import Listener, between_servers

NO_LEADER = -1
NO_COORDINATOR = -1


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
    """The listeners that clients dial. Other servers dial `host` and `port`."""


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
    """The listeners that clients dial. Other servers dial `host` and `port`."""


def server_address(server: BrokerImage | CoordinatorImage, own: Listener) -> tuple[str, int]:
    """Returns the (host, port) at which another server dials `server`. The listener of `server`
    that corresponds to `own` has this address. Without one, `host` and `port` of `server` are used."""
    found = between_servers(server.listeners, own)
    return (server.host, server.port) if found is None else found.address


class PartitionImage(NamedTuple):
    """A partition. `leader` is -1 if it has none.

    There may be a million partitions. A tuple is made in a fifth of the time of a frozen dataclass. Equal lists of
    replicas share one object."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: out of sync, but with every committed record. They may lead if the in-sync set is empty
    (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The last leader when the in-sync set became empty. Empty while there is a leader."""
    adding_replicas: tuple[int, ...] = ()
    """The replicas that a reassignment adds."""
    removing_replicas: tuple[int, ...] = ()
    """The replicas that a reassignment removes."""
    offline_replicas: tuple[int, ...] = ()
    """Replicas that their brokers cannot read, as they reported since their registration."""
    resigned_replicas: tuple[int, ...] = ()
    """Replicas that must not lead or be in sync while another one can lead. Their brokers reported them since their
    registration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic. `partitions` is indexed by partition number."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardImage:
    """The coordinator that owns a shard of an internal topic (-1 for none), and the epoch with which it writes."""

    coordinator_id: int
    producer_id: int
    writer_epoch: int
    coordinator_epoch: int = 0
    """The epoch that grows with every new owner, even when `writer_epoch` restarts at 0."""
    former_producer_id: int | None = None
    """The producer id of the owners before `writer_epoch` last restarted, or None if it never did."""
