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
    """The number of partitions. -1 means the length of `assignments`, or without these the cluster's num.partitions."""
    replication_factor: int = -1
    """The replication factor. -1 means that of `assignments`, or without these the cluster's
    default.replication.factor."""
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The broker ids of each partition number, the preferred leader first. If empty, the controller selects the
    brokers."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created, or that would be created with validate_only. Its numbers are -1 for a caller without
    the right DESCRIBE_CONFIGS on the topic."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int
    """The leader's broker id, or -1 if there is no leader."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """The broker ids of the replicas, the preferred leader first."""
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: out of sync, but with every acknowledged record (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The last leader, if the partition has no leader (KIP-966)."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    """The replicas whose brokers cannot be reached."""
    resigned_replicas: tuple[int, ...] = ()
    """The replicas that should neither lead nor be in sync while others can, because of a full disk or a damaged
    log.
    """
    min_isr: int = 0
    """The number of in-sync replicas that acks=all requires. It is 0 if an older controller does not report it."""

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas that the partition will have after the current reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)

    @property
    def is_under_replicated(self) -> bool:
        """True while fewer replicas are in sync than there should be. Replicas that a reassignment adds are not
        counted."""
        return len(self.isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def refusal(self) -> str:
        """The reason why the partition refuses records with acks=all, or empty text if it accepts them."""
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
