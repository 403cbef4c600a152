"""The controllers' quorum."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class QuorumReplicaKind(enum.IntEnum):
    """The kind of server that replicates the controllers' log. Only controllers can vote."""

    CONTROLLER = 0
    BROKER = 1
    COORDINATOR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOfQuorum:
    """A controller, or a server that follows them, as the leader of their quorum sees it."""

    node_id: int
    host: str
    port: int
    is_voter: bool
    end_index: int
    """The end of its log, as far as the leader knows; of a broker or coordinator, of the records it has replayed."""
    lag: int
    """Entries (or records) that it does not have yet."""
    silent_ms: int
    """The time since the leader last received a message of the replica, in milliseconds."""
    kind: QuorumReplicaKind = QuorumReplicaKind.CONTROLLER
    directory_id: str = ""
    """The id of a controller's metadata log, which names the voter together with `node_id` (KIP-853)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """Indexes count the entries of the controllers' log, not the records of the metadata."""

    leader_id: int
    term: int
    high_watermark: int
    replicas: tuple[ReplicaOfQuorum, ...]
    """The voters by id, then the observers: controllers, brokers, coordinators."""
