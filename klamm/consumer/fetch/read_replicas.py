"""Which broker a partition is read from: its leader, or for a while the follower that the leader named (KIP-392).

The consumer reads from a follower for `metadata.max.age.ms`. Then it asks the leader again, which may name the same
follower or another one. It returns to the leader sooner if a fetch from the follower fails, or if the partition has
another leader. After a failure, it reads from the leader itself for a moment. The leader learns that a follower is dead
later than the follower's readers, and would send the consumer back to it at once. Pure; times are seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.model import TopicPartition


class _Lease(NamedTuple):
    node_id: int
    leader_epoch: int
    until_s: float


class ReadReplicas:
    """Selects the broker for fetches of each partition. Invariant: a partition that must be read from its leader has no
    lease."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._leases: dict[TopicPartition, _Lease] = {}
        self._leader_only: dict[TopicPartition, float] = {}

    def node_for(self, tp: TopicPartition, leader: int, leader_epoch: int, now_s: float) -> int:
        """Returns the id of the broker to fetch the partition from."""
        lease = self._leases.get(tp)
        if lease is None:
            return leader
        if lease.leader_epoch != leader_epoch or now_s >= lease.until_s:
            del self._leases[tp]
            return leader
        return lease.node_id

    def prefer(self, tp: TopicPartition, node_id: int, leader_epoch: int, now_s: float) -> None:
        """Reads the partition from a closer replica that the leader of that epoch named."""
        self._leader_only.pop(tp, None)
        self._leases[tp] = _Lease(node_id, leader_epoch, now_s + self._lease_s)

    def fall_back(self, tp: TopicPartition, until_s: float) -> bool:
        """Reads from the leader only, until `until_s`. Returns whether the partition was read from a follower."""
        if self._leases.pop(tp, None) is None:
            return False
        self._leader_only[tp] = until_s
        return True

    def needs_leader(self, partitions: Iterable[TopicPartition], now_s: float) -> bool:
        """Returns whether the leader must serve a request for these partitions. The request then leaves out `rack_id`.

        If one of the partitions is read from a follower, returns False. The leader may then name a follower for the
        others again."""
        self._leader_only = {tp: until_s for tp, until_s in self._leader_only.items() if until_s > now_s}
        wanted = list(partitions)
        return any(tp in self._leader_only for tp in wanted) and not any(tp in self._leases for tp in wanted)

    def keep_only(self, assigned: frozenset[TopicPartition]) -> None:
        """Drops the state of all partitions that are not assigned."""
        self._leases = {tp: lease for tp, lease in self._leases.items() if tp in assigned}
