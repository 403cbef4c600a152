"""The events that every kind of shard handles, in addition to the events of its rules."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAppended:
    """The write's records are on all in-sync replicas. Writes are decided in the order of their ids."""

    write_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """The write's records are not in the log and never will be."""

    write_id: int
    error: ErrorCode
    """The error with which the broker answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Tells the shard the current time, so that it handles the timers that are due."""
