"""The voters that a cluster's log begins with: agreed on once, by every empty directory, before it takes part.

A voter is a node with a directory (KIP-853), and directory ids are random, made with each directory. So the first
voters can only be named when their directories exist. Kafka has the operator carry the ids from one formatting to the
next (`--initial-controllers`), or does without them until `kraft.version` 1, and a voter whose disk is lost votes
again under its old name. Here the controllers that `controller.quorum.voters` lists ask each other:

- A directory whose log has begun keeps the set that it began with for ever. Its controller sends this set to every
  controller that asks.
- A controller with an empty directory that receives such a set begins its log with it. If the set does not name its
  directory, the controller follows as an observer. It becomes a voter after an operator has removed the lost voter and
  added the new one (KIP-853, "Disk Failure Recovery").
- Only the node with the lowest listed id may make a set. It does so when all other listed nodes have answered that
  their logs have not begun either. All listed nodes must be up for this once, and never again (like Consul's
  bootstrap_expect).
- A controller with `controller.quorum.bootstrap.servers` never makes a set.

Why nothing acknowledged is lost: let a set A have been made, and something committed under it. Then a majority of A
has A on disk. A second set B needs an empty directory at the lowest id, which is not the one that made A, and the word
of every other listed node that it has no set. As long as no more than a minority of A lost its disk, one of those that
have A is among them, and B is not made. Once a directory is in no set it never votes, for votes are counted by node
and directory; so a node that lost its disk cannot vote again in a term in which it has voted (the thesis' 3.8 wants
votes to be durable: the new directory's would not be counted), nor help an empty log to win. What a node does not
notice is that an old copy of its directory was put back: copies carry the id.

Later sets are entries of the log (raft/membership.py); the configured list then only says whom to ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from klamm.errors import ConfigError
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a controller said of itself."""

    key: ReplicaKey
    voters: VoterSet | None
    """The set that its log begins with; None: it has not begun."""


def first_voters(me: Voter, listed: Sequence[Voter], heard: Mapping[str, Introduction]) -> VoterSet | None:
    """The set to begin with, or None: not known yet.

    `listed` are the configured voters with their directories unknown, `heard` the introductions by the address that was
    asked. Raises ConfigError when another controller than the listed one answers at its address."""
    begun = next((each.voters for each in heard.values() if each.voters is not None), None)
    if begun is not None:
        return begun
    ids = [voter.key.node_id for voter in listed]
    if not ids or min(ids) != me.key.node_id:
        return None
    others = [voter for voter in listed if voter.key.node_id != me.key.node_id]
    if any(other.endpoint not in heard for other in others):
        return None
    return VoterSet([me, *(Voter(_key_of(other, heard[other.endpoint]), other.endpoint) for other in others)])


def _key_of(listed: Voter, introduction: Introduction) -> ReplicaKey:
    if introduction.key.node_id != listed.key.node_id:
        raise ConfigError(
            f"controller.quorum.voters lists {listed.key}@{listed.endpoint},"
            f" but controller {introduction.key.node_id} answers there"
        )
    return introduction.key


def former_directory(me: ReplicaKey, voters: VoterSet) -> ReplicaKey | None:
    """The voter that this node was with another directory, if the set names one and not this."""
    if me in voters:
        return None
    return next((key for key in voters.keys if key.node_id == me.node_id), None)
