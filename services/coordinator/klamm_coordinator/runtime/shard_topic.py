"""The description of an internal topic for the log of a shard: the topic's name, its encoding, and its claim record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTopic:
    """The data that `LogLink` needs about a topic whose partitions are shards."""

    name: str
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    """Returns the key and value of a record that the rules write, as bytes."""
    claim: Any
    """The record with which an owner claims a shard's log. It is a tombstone of a key that cannot exist, so that every
    reader of the topic skips it."""
