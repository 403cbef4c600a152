"""The results of scrubs, which read logs to find damage."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from klamm.model import TopicPartition


class DamageState(enum.Enum):
    """The state of a damaged segment."""

    UNREPAIRED = "unrepaired"
    REPAIRED = "repaired"
    DISMISSED = "dismissed"
    """The segment is not damaged: another replica has the same bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment:
    path: str
    """The path of the segment's .log file on the broker's machine."""
    found_ms: int
    """When the damage was found, in ms since the epoch."""
    state: DamageState
    text: str
    """The reason why the segment is not repaired, or the way in which it was repaired."""
    lines: tuple[str, ...]
    """A line for each damaged range of bytes and each damaged index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubDescription:
    """The progress of the scrub of a replica's closed segments, and the damage that scrubs have found."""

    tp: TopicPartition
    asked: bool
    """True until a pass that `scrub_logs` requested has ended."""
    running: bool
    next_offset: int
    """The offset up to which the current pass has read, or -1 if no pass is under way."""
    end_offset: int
    """The offset at which the current pass ends, or -1 if no pass is under way."""
    finished_ms: int
    """The time at which the last complete pass ended, in ms since the epoch, or -1 if there was none."""
    damages: tuple[DamagedSegment, ...]
    """All damaged segments that are not repaired, and those that were repaired last."""

    @property
    def unrepaired(self) -> tuple[DamagedSegment, ...]:
        return tuple(damage for damage in self.damages if damage.state is DamageState.UNREPAIRED)
