"""What a step of a shard asks its shell to do. It is data, so that a step can be printed and compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from klamm_coordinator.runtime.log_write import LogWrite

RecordT = TypeVar("RecordT")


@dataclass(slots=True)
class ShardEffects(Generic[RecordT]):
    """The effects of one step, each list in order."""

    replies: list[tuple[int, Any]] = field(default_factory=list)
    writes: list[LogWrite[RecordT]] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    """What the rules want done outside of the shard and its log; most kinds of shard want nothing."""
    notes: list[str] = field(default_factory=list)
