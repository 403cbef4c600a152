"""The scenarios that Klamm and Apache Kafka must answer alike (`test_same_answers.py`). Each scenario uses one
connection to a cluster of one node. It returns the content of the answers without the values of a single node (ids,
times, texts)."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from klamm.records import encode_batch
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.kafka_wire import KafkaWire

TIMEOUT_S = 30
TIMEOUT_MS = 1_000 * TIMEOUT_S
GROUP, TRANSACTION = 0, 1
NO_FLAGS = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
NOT_YET = (
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
    ErrorCode.unstable_offset_commit,
)

Scenario = Callable[[KafkaWire, str], Any]
"""A function of a connection and a name that does not exist there."""


def newest(api_key: ApiKey) -> int:
    """The last version that Klamm has."""
    return SPOKEN[api_key].max


def code(answer: Any) -> ErrorCode:
    return answer.error_code


def first_partition(answer: Any) -> ErrorCode:
    return answer.topics[0].partitions[0].error_code


def settled(ask: Callable[[], Any], code_of: Callable[[Any], ErrorCode] = code) -> Any:
    """The first answer that is not about a moment."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (found := code_of(answer := ask())) in NOT_YET:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)
    return answer


def codes(partitions: Iterable[Any]) -> list[tuple[int, ErrorCode]]:
    return [(partition.partition_index, partition.error_code) for partition in partitions]


def create_topic(
    wire: KafkaWire, name: str, partition_count: int = 1, configs: Mapping[str, str] | None = None
) -> uuid.UUID:
    """Creates a topic, waits until the node knows its leaders, and returns its id."""
    topic = {
        "name": name,
        "num_partitions": partition_count,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": config, "value": value} for config, value in (configs or {}).items()],
    }
    answer = wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False})
    assert answer.topics[0].error_code == ErrorCode.none
    asked = {"topics": [{"name": name, "topic_id": None}], **NO_FLAGS}
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        (found,) = wire.ask(ApiKey.METADATA, 12, asked).topics
        if found.error_code == ErrorCode.none and all(partition.leader_id >= 0 for partition in found.partitions):
            return found.topic_id
        assert time.monotonic() < deadline_s, found


def find_coordinator(wire: KafkaWire, key: str, key_type: int = GROUP) -> None:
    """Waits until the key's coordinator answers. The first call creates the internal topic."""
    asked = {"key_type": key_type, "coordinator_keys": [key]}
    settled(lambda: wire.ask(ApiKey.FIND_COORDINATOR, 4, asked), lambda answer: answer.coordinators[0].error_code)


# Records


def blamed_records(version: int) -> Scenario:
    """Produce of batches in which some records are wrong, each kind into the topic that refuses it (KIP-467)."""

    def scenario(wire: KafkaWire, name: str) -> dict[str, Any]:
        limits = {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"}
        compact = {"cleanup.policy": "compact"}
        settings = {"compacted": compact, "dated": limits, "both": {**compact, **limits}}
        ids = {kind: create_topic(wire, f"{name}-{kind}", configs=configs) for kind, configs in settings.items()}
        now_ms, day_ms = int(time.time() * 1000), 86_400_000
        rows: dict[str, list[tuple[int, bytes | None]]] = {
            "good": [(now_ms, b"k")] * 2,
            "keyless": [(now_ms, b"k"), (now_ms, None), (now_ms, b"k"), (now_ms, None)],
            "one keyless": [(now_ms, None), (now_ms, b"k")],
            "too new": [(now_ms, b"k"), (now_ms + day_ms, b"k")],
            "too old": [(now_ms - day_ms, b"k"), (now_ms, b"k"), (now_ms - day_ms, b"k")],
            "everything": [(now_ms - day_ms, None), (now_ms, None), (now_ms + day_ms, b"k"), (now_ms, b"k")],
        }

        def produce(kind: str, batch: bytes) -> Any:
            partition = {"index": 0, "records": batch}
            topic = {"name": f"{name}-{kind}", "topic_id": ids[kind], "partition_data": [partition]}
            asked = {"transactional_id": None, "acks": -1, "timeout": TIMEOUT_MS, "topic_data": [topic]}
            (answer,) = wire.ask(ApiKey.PRODUCE, version, asked).responses[0].partition_responses
            errors = [one.batch_index for one in getattr(answer, "record_errors", ())]
            return answer.error_code, errors, answer.base_offset, getattr(answer, "log_start_offset", None)

        return {
            f"{kind}, {what}": produce(kind, encode_batch([(at, key, b"v", ()) for at, key in some]))
            for kind in settings
            for what, some in rows.items()
        }

    return scenario


# Topics


def partitions_by_hand(version: int) -> Scenario:
    """CreatePartitions with replicas chosen for some of the new partitions, for all, for none and for too many."""

    def scenario(wire: KafkaWire, name: str) -> list[ErrorCode]:
        create_topic(wire, name)

        def grow(count: int, *assignments: list[int], topic: str = name) -> ErrorCode:
            wanted = {"name": topic, "count": count, "assignments": [{"broker_ids": ids} for ids in assignments]}
            asked = {"topics": [wanted], "timeout": TIMEOUT_MS, "validate_only": False}
            return wire.ask(ApiKey.CREATE_PARTITIONS, version, asked).results[0].error_code

        return [
            grow(3, [1]),
            grow(3, [1], [1], [1]),
            grow(3),
            grow(3, [1], [9]),
            grow(3, [1], []),
            grow(3, [1], [1, 1]),
            grow(1, [1]),
            grow(0, [1]),
            grow(-1, [1]),
            grow(3, [1], [1]),
            grow(3, [1], [1]),
            grow(3, [1], [1], topic=f"{name}-gone"),
        ]

    return scenario


# Offsets

NEGATIVE = [-1, -2, -3, -(2**63)]


def fetched(wire: KafkaWire, group: str, topics: object) -> list[tuple[object, ...]]:
    asked = {
        "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}],
        "require_stable": True,
    }
    answer = settled(
        lambda: wire.ask(ApiKey.OFFSET_FETCH, 9, asked),
        lambda answer: next(
            (
                partition.error_code
                for topic in answer.groups[0].topics
                for partition in topic.partitions
                if partition.error_code
            ),
            answer.groups[0].error_code,
        ),
    )
    return sorted(
        (
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
            partition.error_code,
        )
        for topic in answer.groups[0].topics
        for partition in topic.partitions
    )


def offsets_of(name: str) -> list[dict[str, object]]:
    partitions = [
        {
            "partition_index": number,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": "a note",
            "commit_timestamp": -1,
        }
        for number, offset in enumerate([*NEGATIVE, 7])
    ]
    return [{"name": name, "partitions": partitions}]


def all_of(name: str) -> list[dict[str, object]]:
    """Returns all partitions, one more than those that have an offset."""
    return [{"name": name, "partition_indexes": list(range(len(NEGATIVE) + 2))}]


def negative_offsets(version: int) -> Scenario:
    """OffsetCommit of offsets that no record has, and what OffsetFetch makes of them."""

    def scenario(wire: KafkaWire, name: str) -> tuple[Any, ...]:
        create_topic(wire, name, len(NEGATIVE) + 2)
        find_coordinator(wire, name)
        commit = {
            "group_id": name,
            "generation_id_or_member_epoch": -1,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": -1,
            "topics": offsets_of(name),
        }
        answer = settled(lambda: wire.ask(ApiKey.OFFSET_COMMIT, version, commit), first_partition)
        named, everything = fetched(wire, name, all_of(name)), fetched(wire, name, None)
        return codes(answer.topics[0].partitions), named, everything

    return scenario


def negative_offsets_of_a_transaction(wire: KafkaWire, name: str) -> tuple[Any, ...]:
    """The same by TxnOffsetCommit."""
    create_topic(wire, name, len(NEGATIVE) + 2)
    find_coordinator(wire, name)
    find_coordinator(wire, name, TRANSACTION)
    init = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    made = settled(lambda: wire.ask(ApiKey.INIT_PRODUCER_ID, 4, init))
    me = {"transactional_id": name, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    added = settled(lambda: wire.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, {**me, "group_id": name}))
    commit = {
        **me,
        "group_id": name,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": offsets_of(name),
    }
    answer = settled(lambda: wire.ask(ApiKey.TXN_OFFSET_COMMIT, 3, commit), first_partition)
    ended = settled(lambda: wire.ask(ApiKey.END_TXN, 3, {**me, "committed": True}))
    assert (added.error_code, ended.error_code) == (ErrorCode.none, ErrorCode.none)
    return codes(answer.topics[0].partitions), fetched(wire, name, all_of(name)), fetched(wire, name, None)


# Subscriptions

IMPOSSIBLE_NAMES = ["a b", "../secrets", "x" * 300, "", "?", "é"]


def impossible_subscriptions(wire: KafkaWire, name: str) -> tuple[Any, ...]:
    """A member of the new protocol that subscribes to names that no topic can have, and to one that there is."""
    topic_id = create_topic(wire, name, 2)
    find_coordinator(wire, name)
    member = {
        "group_id": name,
        "member_id": str(uuid.uuid4()),
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": [*IMPOSSIBLE_NAMES, name],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    joined = answer = settled(lambda: wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member))
    # Kafka's coordinator may learn about the topic only after the member has joined.
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (answer.assignment and answer.assignment.topic_partitions) and time.monotonic() < deadline_s:
        time.sleep(0.05)
        beat = {**member, "member_epoch": answer.member_epoch, "topic_partitions": None}
        answer = wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
    assigned = () if answer.assignment is None else answer.assignment.topic_partitions
    asked = {"group_ids": [name], "include_authorized_operations": False}
    (group,) = wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked).groups
    return (
        joined.error_code,
        [(one.topic_id == topic_id, one.partitions) for one in assigned],
        [set(one.subscribed_topic_names) - {name} for one in group.members],
    )


def odd_joins(wire: KafkaWire, name: str) -> dict[str, ErrorCode]:
    """JoinGroup of the classic protocol, by static members of a group each."""
    find_coordinator(wire, name)
    topics = b"".join(
        struct.pack(">h", len(impossible_name.encode())) + impossible_name.encode()
        for impossible_name in IMPOSSIBLE_NAMES
    )
    subscription = struct.pack(">hi", 0, len(IMPOSSIBLE_NAMES)) + topics + struct.pack(">i", -1)

    def joined(what: str, **changes: object) -> ErrorCode:
        join = {
            "group_id": f"{name}-{what}",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "group_instance_id": "one",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription}],
            "reason": None,
            **changes,
        }
        return settled(lambda: wire.ask(ApiKey.JOIN_GROUP, 9, join)).error_code

    return {
        "impossible names": joined("names"),
        "no subscription": joined("empty", protocols=[{"name": "range", "metadata": b""}]),
        "garbage": joined("garbage", protocols=[{"name": "range", "metadata": b"\x00\x01\xff"}]),
        "a protocol without a name": joined("nameless", protocols=[{"name": "", "metadata": b""}]),
        "no protocols": joined("none", protocols=[]),
        "no protocol type": joined("no-type", protocol_type=""),
        "another protocol type": joined("other-type", protocol_type="connect"),
        "no group": joined("", group_id=""),
        "a short session": joined("short", session_timeout=1),
        "a long session": joined("long", session_timeout=2**31 - 1),
        "no rebalance timeout": joined("now", rebalance_timeout=0),
        "a negative rebalance timeout": joined("never", rebalance_timeout=-1),
        "an unknown member": joined("unknown", member_id="somebody", group_instance_id=None),
    }


# Authorized operations (KIP-430)


def operations(is_asked_for: bool) -> Scenario:
    """Returns a scenario that asks for the operations allowed on the cluster, on topics and on groups, by every request
    that reports them."""

    def of_topics(wire: KafkaWire, version: int, *topics: dict[str, object]) -> Any:
        asked = {
            "topics": topics,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": is_asked_for,
            "include_topic_authorized_operations": is_asked_for,
        }
        return wire.ask(ApiKey.METADATA, version, asked)

    def scenario(wire: KafkaWire, name: str) -> dict[str, Any]:
        create_topic(wire, name)
        find_coordinator(wire, name)
        join = {
            "group_id": name,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "group_instance_id": "one",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        }
        assert settled(lambda: wire.ask(ApiKey.JOIN_GROUP, 9, join)).error_code == ErrorCode.none
        named = [{"name": one, "topic_id": None} for one in (name, f"{name}-gone", "a b")]
        by_version = {version: of_topics(wire, version, *named) for version in (8, 10, 12)}
        by_id = of_topics(wire, 12, {"name": None, "topic_id": uuid.UUID(int=7)})
        pages = wire.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": named[:2], "cursor": None})
        of_cluster = {"include_cluster_authorized_operations": is_asked_for, "include_fenced_brokers": False}
        of_groups = {"include_authorized_operations": is_asked_for}
        groups = [name, f"{name}-gone"]
        return {
            "cluster": {
                *(by_version[version].cluster_authorized_operations for version in (8, 10)),
                *(
                    wire.ask(ApiKey.DESCRIBE_CLUSTER, version, of_cluster).cluster_authorized_operations
                    for version in (0, newest(ApiKey.DESCRIBE_CLUSTER))
                ),
            },
            "topics": [
                {topic.name.removeprefix(name): topic.topic_authorized_operations for topic in answer.topics}
                for answer in by_version.values()
            ],
            "unknown topic id": [topic.topic_authorized_operations for topic in by_id.topics],
            "pages": {topic.name.removeprefix(name): topic.topic_authorized_operations for topic in pages.topics},
            "groups": [
                {
                    group.group_id.removeprefix(name): (group.error_code, group.authorized_operations)
                    for group in wire.ask(ApiKey.DESCRIBE_GROUPS, version, {"groups": groups, **of_groups}).groups
                }
                for version in (3, 5, 6)
            ],
            "consumer groups": {
                group.group_id.removeprefix(name): (group.error_code, group.authorized_operations)
                for group in wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": groups, **of_groups}).groups
            },
        }

    return scenario
