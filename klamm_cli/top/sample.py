"""One sample of a cluster: offsets and counters that grow. Two samples give rates. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPositions:
    """The state, the committed offsets and the lag of one group, in the topics that are watched."""

    state: str
    committed: Mapping[TopicPartition, int]
    lag: int
    """The number of records that the group has still to read."""
    behind_ms: int = 0
    """The age of the oldest of them, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The counters of a broker's metrics endpoint, since the start of the broker."""

    bytes_in: Mapping[str, float] = field(default_factory=dict)
    """The number of bytes that the broker has received, by topic."""
    bytes_out: Mapping[str, float] = field(default_factory=dict)
    requests: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The offsets, sizes and counters of a cluster at one moment."""

    at_s: float
    """The time of the sample, by a clock that never goes back."""
    ends: Mapping[TopicPartition, int]
    """The offset of the next record, by partition."""
    leaders: Mapping[TopicPartition, int]
    """The broker id of each partition's leader."""
    log_bytes: Mapping[TopicPartition, int]
    """The size of each leader's log on its disk, by partition. Partitions whose leader did not return the size are left
    out."""
    groups: Mapping[str, GroupPositions]
    metrics: Mapping[str, Counters] = field(default_factory=dict)
    """The counters of the endpoints that answered, by endpoint."""
    health: str = ""
    """A line about servers that are missing and partitions that are not served or not replicated."""
    is_healthy: bool = True
    left_out: str = ""
    """A text that says how many topics or groups are not watched, or which servers did not answer."""
