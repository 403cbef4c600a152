"""A leader's description of its quorum, for DescribeQuorum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klamm_controller.raft.messages import ReplicaKey
from klamm_controller.raft.node import RaftNode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """The progress of one replica of the metadata log. Indexes count Raft's entries."""

    node_id: int
    directory_id: str
    address: str
    """host:port, or empty text if the address is unknown."""
    is_voter: bool
    end_index: int
    silent_ms: int
    """The time since the leader last received a message from the replica, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus:
    """A leader's view of its quorum."""

    leader_id: int
    term: int
    high_watermark: int
    end_index: int
    replicas: tuple[ReplicaStatus, ...]


def quorum_status(node: RaftNode, address_of: Callable[[ReplicaKey], str], now_ms: int) -> QuorumStatus:
    """Returns the leader's view of its quorum: the voters ordered by id, then the observers."""
    known = {key: (peer.match_end_index, now_ms - peer.last_contact_ms) for key, peer in node.replicas.items()}
    known[node.me] = (node.log_end_index, 0)
    replicas = [
        ReplicaStatus(
            node_id=key.node_id,
            directory_id=key.directory_id,
            address=address_of(key),
            is_voter=key in node.voters,
            end_index=end_index,
            silent_ms=silent_ms,
        )
        for key, (end_index, silent_ms) in known.items()
    ]
    return QuorumStatus(
        leader_id=node.me.node_id,
        term=node.term,
        high_watermark=node.high_watermark,
        end_index=node.log_end_index,
        replicas=tuple(sorted(replicas, key=lambda replica: (not replica.is_voter, replica.node_id))),
    )
