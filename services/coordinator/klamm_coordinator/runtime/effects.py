"""The effects that a step of a shard asks its shell to carry out. They are data, so that tests can print and compare
them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from klamm_coordinator.runtime.log_write import LogWrite

RecordT = TypeVar("RecordT")


@dataclass(slots=True)
class ShardEffects(Generic[RecordT]):
    """The effects of one step of a shard. The shell carries out each list in order."""

    replies: list[tuple[int, Any]] = field(default_factory=list)
    writes: list[LogWrite[RecordT]] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    """The actions outside of the shard and its log that the rules ask for. Most kinds of shard ask for none."""
    notes: list[str] = field(default_factory=list)
