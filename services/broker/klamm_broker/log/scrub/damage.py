"""The damage that scrubbing found, and its outcome."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass

from klamm.model import TopicPartition
from klamm_broker.log.scrub.log_scrubbing import ScrubJob
from klamm_broker.log.scrub.segment_check import DamagedRange, SegmentVerdict


class DamageState(enum.IntEnum):
    """The outcome of a damage. The numbers are those of `proto/klamm/v1/broker.proto`."""

    UNREPAIRED = 0
    REPAIRED = 1
    DISMISSED = 2
    """Another replica has the same bytes, so that there was no damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The damage of one segment."""

    topic_partition: TopicPartition
    base_offset: int
    path: str
    """The path of the `.log` file."""
    ranges: tuple[DamagedRange, ...]
    indexes: Mapping[str, str]
    found_ms: int
    state: DamageState = DamageState.UNREPAIRED
    text: str = "not tried yet"
    """The reason why the damage was not repaired, or how it was repaired."""

    @property
    def lines(self) -> list[str]:
        """One line for each damaged range and index, with its place and the reason."""
        file = os.path.basename(self.path)
        stem = file.removesuffix(".log")
        return [
            *(
                f"{file}: offsets {damaged.first_offset} to {damaged.end_offset - 1}, bytes {damaged.position} to"
                f" {damaged.end_position - 1}: {damaged.reason}"
                for damaged in self.ranges
            ),
            *(f"{stem}{suffix}: {reason}" for suffix, reason in self.indexes.items()),
        ]


def damage_of(job: ScrubJob, verdict: SegmentVerdict, *, now_ms: int) -> Damage:
    """Returns the damage of a verdict, in the state UNREPAIRED."""
    return Damage(
        topic_partition=job.topic_partition,
        base_offset=job.source.base_offset,
        path=job.path(),
        ranges=verdict.ranges,
        indexes=verdict.indexes,
        found_ms=now_ms,
    )
