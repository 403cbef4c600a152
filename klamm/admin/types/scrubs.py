"""The results of scrubs, which read logs to find damage."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from klamm.model import TopicPartition


class DamageState(enum.Enum):
    """What became of a damaged segment."""

    UNREPAIRED = "unrepaired"
    REPAIRED = "repaired"
    DISMISSED = "dismissed"
    """Another replica has the same bytes: it was no damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment:
    path: str
    """The path of its .log file on the broker's machine."""
    found_ms: int
    """When the damage was found, in ms since the epoch."""
    state: DamageState
    text: str
    """Why it is not repaired, or how it was."""
    lines: tuple[str, ...]
    """A line for each damaged range of bytes and each damaged index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubDescription:
    """How far the closed segments of a replica were read to see whether they are damaged."""

    tp: TopicPartition
    asked: bool
    """A pass that `scrub_logs` asked for has not ended yet."""
    running: bool
    next_offset: int
    """The pass under way has been through all before; -1: none is under way."""
    end_offset: int
    """Where the pass under way ends; -1: none is."""
    finished_ms: int
    """When the last complete pass ended, in ms since the epoch; -1: none has."""
    damages: tuple[DamagedSegment, ...]
    """All that are not repaired, and the last ones that were."""

    @property
    def unrepaired(self) -> tuple[DamagedSegment, ...]:
        return tuple(one for one in self.damages if one.state is DamageState.UNREPAIRED)
