"""The transfer of the leadership without an election time-out (thesis 3.10, KIP-595's EndQuorumEpoch).

The leader appends no new entries, replicates its whole log to one voter, and asks this voter to start an election at
once. The voter needs the votes of a majority, as in any other election, so a transfer cannot harm safety. If the
election fails, the leader continues to lead after the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey
from klamm_controller.raft.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A transfer of the leadership in progress."""

    target: ReplicaKey
    deadline_ms: int


def choose_successor(voters: VoterSet, peers: Mapping[ReplicaKey, Progress]) -> ReplicaKey | None:
    """Returns the voter whose log matches the leader's furthest. Of several such voters, returns the one that answered
    last. Returns None if there is no other voter."""
    candidates = [key for key in voters.keys if key in peers]
    if not candidates:
        return None
    return max(candidates, key=lambda key: (peers[key].match_end_index, peers[key].last_contact_ms))
