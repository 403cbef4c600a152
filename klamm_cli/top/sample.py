"""One look at a cluster: positions that grow, of which two looks make rates. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPositions:
    """The state and the committed offsets of one group, in the topics that are watched."""

    state: str
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a broker's metrics endpoint has counted since its start."""

    bytes_in: Mapping[str, float] = field(default_factory=dict)
    """The bytes that came in by topic."""
    bytes_out: Mapping[str, float] = field(default_factory=dict)
    requests: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """See the module's docstring."""

    at_s: float
    """A clock that never goes back."""
    ends: Mapping[TopicPartition, int]
    """The offset of the next record."""
    leaders: Mapping[TopicPartition, int]
    """Broker ids."""
    log_bytes: Mapping[TopicPartition, int]
    """The log of the leader, as it is on the disk; those that nobody told are left out."""
    groups: Mapping[str, GroupPositions]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The log start offset of each partition that a group has committed an offset of."""
    metrics: Mapping[str, Counters] = field(default_factory=dict)
    """The counters of the endpoints that answered, by endpoint."""
    left_out: str = ""
    """A text that says how many topics or groups are not watched, or which servers did not answer."""
