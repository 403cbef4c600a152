"""What every shard hands to its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Generic[RecordT]):
    """Records to be appended together, after those of every earlier write."""

    write_id: int
    records: tuple[RecordT, ...]
