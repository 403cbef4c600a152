"""An answer as a tree of plain values in which only that is left which both sides must have in common."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klamm.records.header import validate_batch
from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.side import UNKNOWN_ID, Side

Tree = Any
"""dict, list, str, int, bool or None"""

_OWN: Final = frozenset(
    {
        "api_keys",
        "batch_index_error_message",
        "broker_epoch",
        "cluster_id",
        "error_message",
        "finalized_features",
        "finalized_features_epoch",
        "host",
        "log_dir",
        "partition_error_message",
        "session_id",
        "supported_features",
        "throttle_time",
        "total_bytes",
        "usable_bytes",
    }
)
"""Fields for which each side has values of its own, and messages. They are not compared."""
_OWN_BEHIND: Final[Mapping[ApiKey, frozenset[str]]] = {
    ApiKey.DESCRIBE_QUORUM: frozenset({"high_watermark", "log_end_offset", "leader_epoch", "replica_directory_id"})
}
"""The same, in the answers of one API."""
_SETS: Final = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: frozenset({"entries", "entity", "values"}),
    ApiKey.ALTER_CLIENT_QUOTAS: frozenset({"entries", "entity"}),
}
"""Lists whose order is that of a hash table of Kafka's."""
_NUMBERED: Final = {"producer_id": 0, "port": 0, "group_epoch": 1, "assignment_epoch": 1, "member_epoch": 1}
"""Numbers that each side counts for itself from there on."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOW_MS: Final = 3_600_000
_HEADER_BYTES: Final = 61


class Normaliser(NamedTuple):
    """Makes one answer the same on both sides where it may differ."""

    side: Side
    api_key: ApiKey
    name: str
    """The name of the things that were created for the question alone. It is replaced by `new`."""

    def tree(self, answer: Any, field: str = "") -> Tree:
        """Ids become words, times of this hour `now`, records the headers of their batches."""
        if field in _OWN or field in _OWN_BEHIND.get(self.api_key, ()):
            return "own"
        if field in _NUMBERED:
            return "own" if answer >= _NUMBERED[field] else answer
        match answer:
            case bytes() | memoryview() | bytearray():
                return _batches(bytes(answer)) if field == "records" else bytes(answer).hex()
            case enum.Enum():
                return answer.name
            case datetime.datetime():
                return _time(int(answer.timestamp() * 1_000))
            case datetime.timedelta():
                return answer // datetime.timedelta(milliseconds=1)
            case uuid.UUID():
                return self._topic(answer)
            case str():
                return _UUID.sub("uuid", answer).replace(self.name, "new")
            case tuple():
                trees = [self.tree(one, field) for one in answer]
                return sorted(trees, key=str) if field in _SETS.get(self.api_key, ()) else trees
            case int() if "time" in field:
                return _time(answer)
        if dataclasses.is_dataclass(answer):
            return {one.name: self.tree(getattr(answer, one.name), one.name) for one in dataclasses.fields(answer)}
        return answer

    def _topic(self, topic_id: uuid.UUID) -> str:
        if topic_id == UNKNOWN_ID:
            return "unknown topic"
        names = {one: name for name, one in self.side.topic_ids.items()}
        return names.get(topic_id, "own").replace(self.name, "new")


def _time(when_ms: int) -> int | str:
    return "now" if abs(time.time() * 1_000 - when_ms) < _NOW_MS else when_ms


def _batches(records: bytes) -> list[str]:
    """Returns the content of each batch without its leader epoch and producer id, which differ on each side."""
    found = []
    position = 0
    while len(records) - position >= _HEADER_BYTES:
        size = 12 + int.from_bytes(records[position + 8 : position + 12], "big")
        if position + size > len(records):
            break
        header = validate_batch(records, position)
        kind = "control" if header.is_control else "transactional" if header.is_transactional else "plain"
        last = header.base_offset + header.last_offset_delta
        found.append(f"{header.base_offset} to {last}, {kind}, {size} bytes")
        position += size
    if position < len(records):
        found.append(f"{len(records) - position} bytes of a batch")
    return found
