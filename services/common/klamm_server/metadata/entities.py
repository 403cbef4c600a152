"""What an image of the metadata is made of: brokers, coordinators, topics, partitions, shards, as immutable values."""

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
    """The (host, port) that another server dials, which uses its listener `own` for that; where this one has none such,
    what it would use itself."""
    found = between_servers(server.listeners, own)
    return (server.host, server.port) if found is None else found.address


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
    """Out of sync, with every committed record nevertheless: these may lead when the in-sync set is empty (KIP-966)."""
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
    """The coordinator that owns a shard of an internal topic (-1: none), and as which writer it does."""

    coordinator_id: int
    producer_id: int
    writer_epoch: int
    coordinator_epoch: int = 0
    """Grows from owner to owner, also when `writer_epoch` starts again at 0."""
    former_producer_id: int | None = None
    """The producer id of the owners before `writer_epoch` last started again; None: it never did."""
