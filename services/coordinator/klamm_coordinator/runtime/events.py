"""The events of any shard, besides the events of its rules."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAppended:
    """All in-sync replicas have the write's records. Writes are decided in their order."""

    write_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """The write's records are not in the log and never will be."""

    write_id: int
    error: ErrorCode
    """What the broker said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """A deadline may be due."""
