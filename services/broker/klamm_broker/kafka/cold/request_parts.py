"""Divides a request of many items into parts, so that no single turn of the event loop serves all of them.

Kafka serves each item of these requests by itself. So a handler may get the items in several requests, one after
another, and the client gets the answers of all parts as one. A request whose items belong together is not divided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec.fields import Fields

PART_ITEMS: Final = 250
"""The most items of a part. Each of them takes some microseconds here, and some at the server that changes it."""
LARGE_ITEMS: Final = 100
"""The most items of a part if each takes longer: a resource with dozens of configs, a topic whose logs are deleted."""


class _Items(NamedTuple):
    """The items of a request, and their results in the answer."""

    path: tuple[str, ...]
    """The names of the arrays that lead to the items, the outermost first."""
    results: str
    """The name of the answer's array."""
    most: int = PART_ITEMS


_PARTITIONS: Final = _Items(("topics", "partitions"), "topics")
_ITEMS: Final[Mapping[ApiKey, Sequence[_Items]]] = {
    ApiKey.LIST_OFFSETS: [_PARTITIONS],
    ApiKey.OFFSET_COMMIT: [_PARTITIONS],
    ApiKey.OFFSET_FETCH: [
        _Items(("groups", "topics", "partition_indexes"), "groups"),
        _Items(("topics", "partition_indexes"), "topics"),
    ],
    ApiKey.LEAVE_GROUP: [_Items(("members",), "members")],
    ApiKey.DELETE_TOPICS: [
        _Items(("topics",), "responses", LARGE_ITEMS),
        _Items(("topic_names",), "responses", LARGE_ITEMS),
    ],
    ApiKey.DELETE_RECORDS: [_PARTITIONS],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [_PARTITIONS],
    ApiKey.WRITE_TXN_MARKERS: [_Items(("markers", "topics", "partition_indexes"), "markers")],
    ApiKey.TXN_OFFSET_COMMIT: [_PARTITIONS],
    ApiKey.DESCRIBE_CONFIGS: [_Items(("resources",), "results", LARGE_ITEMS)],
    ApiKey.ALTER_CONFIGS: [_Items(("resources",), "responses")],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [_Items(("dirs", "topics", "partitions"), "results")],
    ApiKey.ELECT_LEADERS: [_Items(("topic_partitions", "partitions"), "replica_election_results")],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [_Items(("resources",), "responses")],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [_Items(("topics", "partitions"), "responses")],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [_Items(("topics", "partition_indexes"), "topics")],
    ApiKey.OFFSET_DELETE: [_PARTITIONS],
    ApiKey.DESCRIBE_PRODUCERS: [_Items(("topics", "partition_indexes"), "topics")],
}
_WHOLE: Final = _Items((), "")
"""A request that is not divided."""


def parts_of(api_key: ApiKey, message: Any) -> Iterator[Any]:
    """Yields requests with few items each, which together ask for the same as `message`. Yields `message` itself if it
    has few items, or may not be divided."""
    path, _, most = _items_of(api_key, message)
    if not path or _count(message, path) <= most:
        yield message
        return
    for items in _groups(getattr(message, path[0]), path[1:], most):
        yield dataclasses.replace(message, **{path[0]: tuple(items)})


def joined_answer(api_key: ApiKey, message: Any, answers: Sequence[Fields]) -> Fields:
    """Returns the answer to `message` from the answers to its parts. An error that concerns a whole part concerns the
    whole request."""
    if len(answers) == 1:
        return answers[0]
    for answer in answers:
        if answer.get("error_code", ErrorCode.NONE):
            return answer
    path, results, _ = _items_of(api_key, message)
    lists = [answer[results] for answer in answers]
    # Only something with items below it may have been divided.
    joined = _joined(lists) if len(path) > 1 else list(chain.from_iterable(lists))
    return {**answers[0], results: joined}


def _items_of(api_key: ApiKey, message: Any) -> _Items:
    for items in _ITEMS.get(api_key, ()):
        if getattr(message, items.path[0], None) is not None:
            return items
    return _WHOLE


def _count(parent: Any, path: Sequence[str]) -> int:
    """Returns the number of items below `parent`. Something without items counts as one."""
    below = getattr(parent, path[0]) or ()
    return max(1, len(below) if len(path) == 1 else sum(_count(item, path[1:]) for item in below))


def _groups(items: Iterable[Any], path: Sequence[str], most: int) -> Iterator[list[Any]]:
    """Yields the items in groups. `path` leads from an item to what is counted, of which a group has at most `most`. An
    item with too much below it is divided too."""
    group: list[Any] = []
    size = 0
    for item in items:
        count = _count(item, path) if path else 1
        if group and size + count > most:
            yield group
            group, size = [], 0
        if count > most:
            for below in _groups(getattr(item, path[0]), path[1:], most):
                yield [dataclasses.replace(item, **{path[0]: tuple(below)})]
            continue
        group.append(item)
        size += count
    if group:
        yield group


def _joined(lists: Iterable[Sequence[Any]]) -> list[Any]:
    """Returns all results in their order. Neighbours about the same resource become one result."""
    joined: list[Any] = []
    for results in lists:
        if joined and results and (inner := _continued(joined[-1], results[0])):
            last = joined[-1]
            joined[-1] = {**last, inner: _joined([last[inner], results[0][inner]])}
            results = results[1:]
        joined += results
    return joined


def _continued(result: Any, other: Any) -> str:
    """Returns the name of the only list in which two results may differ, or "" if they are about different things."""
    if not isinstance(result, Mapping):
        return ""
    inner = [name for name, value in result.items() if isinstance(value, list)]
    if len(inner) != 1 or any(other.get(name) != value for name, value in result.items() if name != inner[0]):
        return ""
    (name,) = inner
    return str(name)
