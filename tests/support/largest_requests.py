"""The largest request of each Kafka API that Klamm accepts: one for each of its arrays, with as many items as it may
have."""

from __future__ import annotations

import copy
import io
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kio.serial import entity_writer

from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import COLD_REQUEST_MAX_BYTES, WHOLE_ITEMS_MAX, ApiKey, items_max
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.schemas import request_schema
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.every_request import requests
from tests.support.waiting import patience

Fields = Mapping[str, Any]
Path = tuple[str | int, ...]
"""The keys that lead to an array of a request's fields."""

_NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "group_id",
    "member_id",
    "transactional_id",
    "path",
    "partition_index",
    "partition",
    "producer_id",
    "topic_id",
    "key",
    "feature",
    "entity_type",
    "principal_filter",
    "resource_name_filter",
)
"""The fields that distinguish the items of an array, in the order in which they are looked for."""
_CLIENT_ID: Final = b"large"
_NOBODY: Final = uuid.UUID(int=1)


class LargestRequest(NamedTuple):
    """A request with one array that is as long as it may be."""

    api_key: ApiKey
    array: str
    """The array's name, or "" if the API has no array."""
    items: int
    frame: bytes
    """The request with its length before it."""


def largest_requests(topic: str, *, share: Callable[[ApiKey], float] = lambda _: 1.0) -> Iterator[LargestRequest]:
    """Yields the requests about a topic. `share` may shorten the arrays of an API to a part."""
    now_ms = int(time.time() * 1000)
    batch = encode_batch([(now_ms, None, b"value", ())])
    count = WHOLE_ITEMS_MAX
    yield LargestRequest(ApiKey.PRODUCE, "partitions", count, _produce([(topic, count)], batch))
    yield LargestRequest(ApiKey.PRODUCE, "topics", count, _produce([(f"t{n}", 1) for n in range(count)], batch))
    yield LargestRequest(ApiKey.FETCH, "partitions", count, _fetch([(topic, count)]))
    yield LargestRequest(ApiKey.FETCH, "topics", count, _fetch([(f"t{n}", 1) for n in range(count)]))
    for api_key, fields in _examples(topic).items():
        paths = list(_arrays(fields))
        if not paths:
            yield LargestRequest(api_key, "", 1, _frame(api_key, fields))
        for path in paths:
            yield _longest(api_key, fields, path, int(items_max(api_key) * share(api_key)))


def size_of_answer(address: tuple[str, int], request: LargestRequest) -> int:
    """Sends a request on a connection of its own, and returns the size of the answer in bytes. Raises ConnectionError
    if the broker closes the connection."""
    with socket.create_connection(address, patience()) as connection:
        connection.sendall(request.frame)
        head = connection.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            raise ConnectionError(f"no answer to {request.api_key.name} with {request.items} {request.array}")
        (size,) = struct.unpack(">i", head)
        left: int = size
        while left:
            left -= len(connection.recv(min(left, 1 << 20)))
        return int(size)


def _examples(name: str) -> dict[ApiKey, dict[str, Any]]:
    """Returns one request of each API that kio encodes, with one item in each of its arrays."""
    asked = requests(name)
    # It would end the test.
    del asked[ApiKey.UNREGISTER_BROKER]
    asked[ApiKey.TXN_OFFSET_COMMIT]["topics"][0]["topic_id"] = _NOBODY
    offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": None}
    of_group = {"group_id": name, "member_id": "", "group_instance_id": None}
    return {
        **asked,
        ApiKey.OFFSET_COMMIT: {
            **of_group,
            "generation_id_or_member_epoch": -1,
            "topics": [{"topic_id": _NOBODY, "partitions": [offset]}],
        },
        ApiKey.OFFSET_FETCH: {
            "groups": [{**of_group, "member_epoch": -1, "topics": [{"topic_id": _NOBODY, "partition_indexes": [0]}]}],
            "require_stable": False,
        },
        ApiKey.SYNC_GROUP: {**asked[ApiKey.SYNC_GROUP], "assignments": [{"member_id": "m", "assignment": b""}]},
        ApiKey.LIST_GROUPS: {"states_filter": ["Stable"], "types_filter": ["classic"]},
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": [{"topic": name, "partitions": [0]}]},
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {
            "timeout": 5_000,
            "topics": [{"name": name, "partition_indexes": [0]}],
        },
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {
            "components": [{"entity_type": "user", "match_type": 0, "match": "u"}],
            "strict": False,
        },
        ApiKey.ALTER_CLIENT_QUOTAS: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": name}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            "validate_only": False,
        },
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": [{"name": name}]},
        ApiKey.UPDATE_FEATURES: {
            **asked[ApiKey.UPDATE_FEATURES],
            "feature_updates": [{"feature": "metadata.version", "max_version_level": 1, "upgrade_type": 1}],
        },
        ApiKey.LIST_TRANSACTIONS: {
            **asked[ApiKey.LIST_TRANSACTIONS],
            "state_filters": ["Ongoing"],
            "producer_id_filters": [1],
        },
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {
            **asked[ApiKey.CONSUMER_GROUP_HEARTBEAT],
            "topic_partitions": [{"topic_id": _NOBODY, "partitions": [0]}],
        },
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
            "topics": [{"name": name}],
            "response_partition_limit": 2_000,
            "cursor": None,
        },
    }


def _arrays(fields: Fields, before: Path = ()) -> Iterator[Path]:
    for name, value in fields.items():
        if isinstance(value, list) and value:
            yield (*before, name)
            if isinstance(value[0], dict):
                yield from _arrays(value[0], (*before, name, 0))


def _longest(api_key: ApiKey, fields: dict[str, Any], path: Path, allowed: int) -> LargestRequest:
    """Returns the request with that array as long as the limits of items and bytes allow it."""
    count = allowed
    while True:
        long = copy.deepcopy(fields)
        parent: Any = long
        for key in path[:-1]:
            parent = parent[key]
        (item,) = parent[path[-1]]
        parent[path[-1]] = [_another(item, number) for number in range(count)]
        items = _count(long)
        if items > allowed:
            count = min(count - 1, count * allowed // items)
            continue
        frame = _frame(api_key, long)
        if len(frame) - 4 <= COLD_REQUEST_MAX_BYTES:
            return LargestRequest(api_key, ".".join(str(key) for key in path if key != 0), count, frame)
        count = count * COLD_REQUEST_MAX_BYTES // len(frame)


def _another(item: Any, number: int) -> Any:
    """Returns an item that differs from others by its number."""
    match item:
        case str():
            return f"{item}-{number}"
        case int():
            return number
        case uuid.UUID():
            return uuid.UUID(int=item.int + number)
    for name in _NAMES:
        if name in item:
            return {**item, name: _another("name" if item[name] is None else item[name], number)}
    name = next(name for name, value in item.items() if isinstance(value, list))
    return {**item, name: [_another(item[name][0], number)]}


def _count(fields: Fields) -> int:
    """Returns the number of items of all arrays together."""
    arrays = [value for value in fields.values() if isinstance(value, list)]
    return sum(len(array) + sum(_count(item) for item in array if isinstance(item, dict)) for array in arrays)


def _frame(api_key: ApiKey, fields: Fields) -> bytes:
    version = SPOKEN[api_key].max
    schema = request_schema(api_key, version)
    body = io.BytesIO()
    entity_writer(schema)(body, messages._make(schema, fields))
    return _with_header(api_key, version, body.getvalue())


def _with_header(api_key: ApiKey, version: int, body: bytes) -> bytes:
    tags = b"\x00" if version >= SPOKEN[api_key].flexible else b""
    frame = struct.pack(">hhih", api_key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID + tags + body
    return struct.pack(">i", len(frame)) + frame


def _produce(topics: list[tuple[str, int]], batch: bytes) -> bytes:
    """Returns a Produce of the batch for each partition of some topics, given with their numbers of partitions."""
    body = struct.pack(">hhii", -1, 1, 5_000, len(topics))
    records = struct.pack(">i", len(batch)) + batch
    parts = [body]
    for topic, partitions in topics:
        parts.append(struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", partitions))
        parts += [struct.pack(">i", number) + records for number in range(partitions)]
    return _with_header(ApiKey.PRODUCE, 8, b"".join(parts))


def _fetch(topics: list[tuple[str, int]]) -> bytes:
    """Returns a Fetch without a session, like `_produce`."""
    parts = [struct.pack(">iiiibiii", -1, 0, 1, 50_000_000, 0, 0, -1, len(topics))]
    for topic, partitions in topics:
        parts.append(struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", partitions))
        parts += [struct.pack(">iiqqi", number, -1, 0, -1, 1_000_000) for number in range(partitions)]
    parts.append(struct.pack(">ih", 0, 0))
    return _with_header(ApiKey.FETCH, 11, b"".join(parts))
