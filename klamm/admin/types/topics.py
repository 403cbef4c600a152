"""Topics and their partitions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partition_count: int = -1
    """-1: num.partitions of the cluster, or as many as `assignments` has."""
    replication_factor: int = -1
    """-1: default.replication.factor of the cluster, or what `assignments` says."""
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Partition number to broker ids, the preferred leader first; empty: the controller places them."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic as it was created (or would be)."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int
    """Broker id, or -1."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """The preferred leader first."""
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Out of sync, with every acknowledged record nevertheless (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The last leader, when there is none."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    """The replicas that cannot be reached."""
    resigned_replicas: tuple[int, ...] = ()
    """The replicas whose brokers do not want them to lead or be in sync while others can: a full disk, a damaged
    log."""
    min_isr: int = 0
    """How many must be in sync to take records with acks=all; 0: an older controller does not say."""

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas when the reassignment under way is complete."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer are in sync than there should be; what a reassignment adds does not count."""
        return len(self.isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def refusal(self) -> str:
        """Why it takes no records with acks=all, or empty: it does."""
        if self.leader < 0:
            return "no leader"
        if self.leader in self.resigned_replicas:
            return "the leader has resigned"
        return "below min.insync.replicas" if len(self.isr) < self.min_isr else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    """The topic's partitions, in the order of their numbers."""
