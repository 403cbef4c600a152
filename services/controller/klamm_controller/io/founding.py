"""Finds the voters with which a cluster's log begins. Controllers with empty directories agree on them once, before
they take part in the quorum.

A voter is a node with a directory (KIP-853), and the id of a directory is random. So the first voters can only be named
when their directories exist. In Kafka, the operator passes the ids to each formatting (`--initial-controllers`). Before
`kraft.version` 1, Kafka has no directory ids, so a voter with a lost disk votes again under its old name. In Klamm, the
controllers in `controller.quorum.voters` ask each other:

- A directory keeps the voter set with which its log began for ever. Its controller sends this set to every controller
  that asks.
- A controller with an empty directory that receives such a set begins its log with it. If the set does not name its
  directory, the controller follows as an observer. It becomes a voter after an operator has removed the lost voter and
  added the new one (KIP-853, "Disk Failure Recovery").
- Only the node with the lowest listed id may make a set. It does so when all other listed nodes have answered that
  their logs have not begun either. All listed nodes must be up for this once, and never again (like Consul's
  bootstrap_expect).
- A controller with `controller.quorum.bootstrap.servers` never makes a set.

No acknowledged record is lost, because two different sets are never both made after a commit. Suppose that set A was
made and a record committed under it. Then a majority of A has A on disk. To make another set B, the controller with the
lowest id must have an empty directory, and not the one that made A. Every other listed node must also answer that it
has no set. If at most a minority of A lost its disk, some listed node still has A and sends it, so B is not made.

A directory that is in no set never votes, because votes are counted by node and directory. So a node that lost its disk
cannot vote twice in one term (section 3.8 of the Raft thesis requires durable votes). It cannot help an empty log to
win an election either. A node does not notice that an old copy of its directory was restored, because the copy has the
same id.

Later voter sets are entries of the log (raft/membership.py). From then on, the configured list only tells a controller
whom to ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from klamm.errors import ConfigError
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """The answer of a controller to an Introduce request."""

    key: ReplicaKey
    voters: VoterSet | None
    """The voter set with which the controller's log begins, or None if its log has not begun."""


def first_voters(me: Voter, listed: Sequence[Voter], introductions: Mapping[str, Introduction]) -> VoterSet | None:
    """Returns the voter set with which the log begins, or None if it is not known yet.

    `listed` are the configured voters, with unknown directories. `introductions` are by the address that was asked.
    Raises ConfigError if another controller than the listed one answers at an address."""
    begun = next(
        (introduction.voters for introduction in introductions.values() if introduction.voters is not None), None
    )
    if begun is not None:
        return begun
    ids = [voter.key.node_id for voter in listed]
    if not ids or min(ids) != me.key.node_id:
        return None
    others = [voter for voter in listed if voter.key.node_id != me.key.node_id]
    if any(other.endpoint not in introductions for other in others):
        return None
    return VoterSet([me, *(Voter(_key_of(other, introductions[other.endpoint]), other.endpoint) for other in others)])


def _key_of(listed: Voter, introduction: Introduction) -> ReplicaKey:
    if introduction.key.node_id != listed.key.node_id:
        raise ConfigError(
            f"controller.quorum.voters lists {listed.key}@{listed.endpoint},"
            f" but controller {introduction.key.node_id} answers there"
        )
    return introduction.key


def former_directory(me: ReplicaKey, voters: VoterSet) -> ReplicaKey | None:
    """Returns the voter in `voters` that has this node's id but another directory. Returns None if there is none, or if
    this directory is a voter."""
    if me in voters:
        return None
    return next((key for key in voters.keys if key.node_id == me.node_id), None)
