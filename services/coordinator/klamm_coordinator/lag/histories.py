"""The histories of groups: their committed offsets, their rebalances, and the ends of the partitions that they read.
Pure.

A coordinator takes a sample every few seconds. The histories are lost with the process, and a shard that moves to
another coordinator begins new ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from klamm.model import TopicPartition
from klamm_coordinator.lag.samples import Samples

KeyT = TypeVar("KeyT", bound=Hashable)

HISTORIES_MAX: Final = 100_000
"""The most histories of each kind. They take about 60 MB."""


class Histories(Generic[KeyT]):
    """A history for each key. When there are too many, the one without a sample for the longest time goes."""

    def __init__(self, most: int = HISTORIES_MAX) -> None:
        self._most = most
        self._samples: dict[KeyT, Samples] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def get(self, key: KeyT) -> Samples | None:
        """Returns the history of a key, or None if it has none."""
        return self._samples.get(key)

    def note(self, key: KeyT, time_ms: int, value: int) -> None:
        """Adds a sample to the history of a key."""
        samples = self._samples.pop(key, None)
        if samples is None:
            samples = Samples()
            if len(self._samples) >= self._most:
                del self._samples[next(iter(self._samples))]
        self._samples[key] = samples
        samples.note(time_ms, value)


class GroupHistories:
    """The histories of the groups of a coordinator."""

    def __init__(self) -> None:
        self.committed: Histories[tuple[str, TopicPartition]] = Histories()
        """The committed offsets. The time of a sample is that of the commit."""
        self.generations: Histories[str] = Histories()
        """The generation of each group, or its group epoch."""
        self.ends: Histories[TopicPartition] = Histories()
        """The high watermark of each partition."""
