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
    """A controller or another server that replicates the controllers' log, as the leader of the quorum sees it."""

    node_id: int
    host: str
    port: int
    is_voter: bool
    end_index: int
    """The end index of a controller's log, as far as the leader knows. For a broker or coordinator, the end of the
    records that it has replayed."""
    lag: int
    """The number of log entries (or metadata records) that the replica lacks."""
    silent_ms: int
    """The time since the leader last received a message from the replica, in milliseconds."""
    kind: QuorumReplicaKind = QuorumReplicaKind.CONTROLLER
    directory_id: str = ""
    """The id of a controller's metadata log. Together with `node_id` it identifies a voter (KIP-853)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The state of the controllers' quorum. Indexes count entries of the controllers' log, not metadata records."""

    leader_id: int
    term: int
    high_watermark: int
    replicas: tuple[ReplicaOfQuorum, ...]
    """The voters by id, then the observers: controllers, brokers, coordinators."""
