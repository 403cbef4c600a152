"""An internal topic as the log of a shard sees it: a name, an encoding, and a record that claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTopic:
    """What `LogLink` has to know of a topic whose partitions are shards."""

    name: str
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    """Key and value of a record of its rules' writes."""
    claim: Any
    """A tombstone of what cannot exist: every reader of the topic knows such a record and does nothing about it."""
