"""The log of one replica: segments without files, under the retention of a real log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.log_retention import LogRetention

T = TypeVar("T")
SEGMENT_BYTES = 500
RECORD_BYTES = 100


@dataclass(eq=False, slots=True)
class SimSegment:
    """One segment of a log. Equal segments of two replicas are two objects."""

    base_offset: int
    next_offset: int
    files: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(size_bytes=0))
    indexes: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(largest=SimpleNamespace(timestamp_ms=-1)),
    )


class SimSegments:
    """The part of `LogSegments` that retention uses."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.items = [SimSegment(0, 0)]
        self.start_offset = 0
        self.log_dir: Any = None

    @property
    def active(self) -> SimSegment:
        return self.items[-1]

    @property
    def end_offset(self) -> int:
        return self.active.next_offset

    def check_usable(self) -> None:
        pass

    def reading(self, read: Callable[[], T]) -> T:
        return read()

    def roll(self, offset: int, now_ms: int) -> None:
        self.items.append(SimSegment(offset, offset))

    def retire_oldest(self, count: int) -> list[str]:
        del self.items[:count]
        return []


class SimLog:
    """A log. `retention` is the code under test."""

    def __init__(self, config: LogConfig) -> None:
        self.segments = SimSegments(config)
        unused: Any = SimpleNamespace(advance=lambda offset: None, truncate_from_start=lambda offset: None)
        segments: Any = self.segments
        self.retention = LogRetention(segments, unused, unused)

    @property
    def config(self) -> LogConfig:
        return self.segments.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.segments.config = config

    @property
    def start_offset(self) -> int:
        return self.segments.start_offset

    @property
    def end_offset(self) -> int:
        return self.segments.end_offset

    def append(self, now_ms: int) -> None:
        """Appends one record."""
        segments = self.segments
        if segments.active.files.size_bytes >= SEGMENT_BYTES:
            segments.roll(segments.end_offset, now_ms)
        active = segments.active
        active.next_offset += 1
        active.files.size_bytes += RECORD_BYTES
        active.indexes.largest.timestamp_ms = now_ms
