"""The scenarios of the newest versions of Kafka 4.4's APIs, for Klamm and for Kafka alike (`test_same_versions.py`)."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.features import LEVELS
from tests.clients.scenarios import (
    GROUP,
    NOT_YET,
    TIMEOUT_MS,
    TIMEOUT_S,
    TRANSACTION,
    Scenario,
    code,
    create_topic,
    find_coordinator,
    settled,
)
from tests.support.kafka_wire import KafkaWire

UNKNOWN = uuid.UUID(int=9)
TIMES_MS = (1_000, 3_000, 2_000)
KEPT = {"retention.ms": "-1"}
"""The configs of a topic whose records of 1970 shall outlast the next check of its retention."""
"""The timestamps of the records that are written here."""
METADATA_TOPIC = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}


def records(producer: tuple[int, int] | None = None, sequence: int = 0) -> bytes:
    """Returns three records. They are part of a transaction of this producer, if there is one."""
    values = [(time_ms, b"key", b"value", ()) for time_ms in TIMES_MS]
    if producer is None:
        return bytes(encode_batch(values))
    producer_id, epoch = producer
    return bytes(
        encode_batch(
            values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
    )


def produce(
    wire: KafkaWire,
    version: int,
    topic: str | uuid.UUID | None,
    *,
    partition: int = 0,
    transactional_id: str | None = None,
    data: bytes | None = None,
) -> Any:
    """The partition's answer, and the topic's id where topics have ids."""
    named = {"name": topic if isinstance(topic, str) else "", "topic_id": None if isinstance(topic, str) else topic}
    parts = [{"index": partition, "records": records() if data is None else data}]
    asked = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": TIMEOUT_MS,
        "topic_data": [{**named, "partition_data": parts}],
    }

    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        (answer,) = wire.ask(ApiKey.PRODUCE, version, asked).responses
        # A node of Kafka learns about a topic some moments before it has the topic's log.
        if produced(answer)[0] not in (*NOT_YET, ErrorCode.not_leader_or_follower):
            return answer
        assert time.monotonic() < deadline_s, answer
        time.sleep(0.05)


def produced(answer: Any) -> tuple[ErrorCode, int]:
    (part,) = answer.partition_responses
    return part.error_code, part.base_offset


# Records


def topics_by_id(wire: KafkaWire, name: str) -> dict[str, Any]:
    """Produces and fetches by topic id, by an id that no topic has, and without an id."""
    topic_id = create_topic(wire, name, configs=KEPT)
    answers = {
        "there": produce(wire, 13, topic_id),
        "no such id": produce(wire, 13, UNKNOWN),
        "no id": produce(wire, 13, None),
        "no such partition": produce(wire, 13, topic_id, partition=7),
        "by name": produce(wire, 12, name),
        "no such name": produce(wire, 12, f"{name}-gone"),
    }
    found = {key: produced(answer) for key, answer in answers.items()}
    ids = [answers[key].topic_id for key in ("there", "no such id", "no id", "no such partition")]
    assert ids == [topic_id, UNKNOWN, None, topic_id], ids
    return found


def fetch(version: int) -> Scenario:
    """Fetches from a topic with three records, and from an id that no topic has."""

    def scenario(wire: KafkaWire, name: str) -> list[Any]:
        topic_id = create_topic(wire, name, configs=KEPT)
        produce(wire, 13, topic_id)
        part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 1, "partition_max_bytes": 1_000_000}
        part |= {"last_fetched_epoch": -1, "log_start_offset": -1}
        asked = {
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id": one, "partitions": [part]} for one in (topic_id, UNKNOWN)],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = wire.ask(ApiKey.FETCH, version, asked)
        assert {response.topic_id for response in answer.responses} == {topic_id, UNKNOWN}
        parts = {response.topic_id == topic_id: response.partitions[0] for response in answer.responses}
        return [
            (code(answer), answer.session_id),
            *(
                (
                    one.error_code,
                    one.high_watermark,
                    one.last_stable_offset,
                    one.log_start_offset,
                    one.preferred_read_replica,
                    bool(one.records),
                )
                for _, one in sorted(parts.items(), reverse=True)
            ),
        ]

    return scenario


def list_offsets(version: int) -> Scenario:
    """(code, time, offset) by timestamp, and of a partition that is named twice."""

    def scenario(wire: KafkaWire, name: str) -> dict[int | str, Any]:
        produce(wire, 13, create_topic(wire, name, configs=KEPT))

        def ask(*timestamps: int, topic: str = name) -> Any:
            parts = [
                {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp} for timestamp in timestamps
            ]
            asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": parts}]}
            answer = wire.ask(ApiKey.LIST_OFFSETS, version, {**asked, "timeout": TIMEOUT_MS})
            found = [part for one in answer.topics for part in one.partitions]
            return [(one.error_code, one.timestamp, one.offset, one.leader_epoch >= 0) for one in found]

        return {
            **{timestamp: ask(timestamp) for timestamp in (2_500, 9_000, *range(-1, -8, -1))},
            "twice": {code for code, *_ in ask(-1, -2)},
            "gone": ask(-5, topic=f"{name}-gone"),
        }

    return scenario


def metadata(version: int) -> Scenario:
    """Asks for the metadata of a topic, of one that is not there, and of all."""

    def scenario(wire: KafkaWire, name: str) -> Any:
        create_topic(wire, name, 2)
        flags = {
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        asked = [{"name": name, "topic_id": None}]
        # Before version 4 who asks has created what is not there.
        asked += [{"name": f"{name}-gone", "topic_id": None}] if version >= 4 else []
        answer = wire.ask(ApiKey.METADATA, version, {"topics": asked, **flags})
        everything = wire.ask(ApiKey.METADATA, version, {"topics": None if version else [], **flags})
        assert name in {topic.name for topic in everything.topics}
        nobody = wire.ask(ApiKey.METADATA, version, {"topics": [], **flags}).topics if version else ()
        (broker,) = answer.brokers
        return (
            (broker.node_id, getattr(broker, "rack", "-"), getattr(answer, "controller_id", "-"), len(nobody)),
            bool(getattr(answer, "cluster_id", "-")),
            getattr(answer, "error_code", "-"),
            {
                topic.name.removeprefix(name): (
                    topic.error_code,
                    getattr(topic, "is_internal", "-"),
                    sorted(
                        (part.error_code, part.partition_index, part.leader_id, part.replica_nodes, part.isr_nodes)
                        for part in topic.partitions
                    ),
                )
                for topic in answer.topics
            },
        )

    return scenario


def log_dirs(wire: KafkaWire, name: str) -> Any:
    create_topic(wire, name)
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        answer = wire.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, {"topics": [{"topic": name, "partitions": [0, 1]}]})
        (log_dir,) = answer.results
        # A node of Kafka learns about a topic some moments before it has the topic's log.
        if log_dir.topics:
            break
        assert time.monotonic() < deadline_s, answer
        time.sleep(0.05)
    parts = [
        (partition.partition_index, partition.partition_size, partition.offset_lag, partition.is_future_key)
        for topic in log_dir.topics
        for partition in topic.partitions
    ]
    assert 0 < log_dir.usable_bytes <= log_dir.total_bytes
    return code(answer), log_dir.error_code, log_dir.is_cordoned, parts


# Groups


def offsets_by_id(wire: KafkaWire, name: str) -> dict[str, Any]:
    """Commits and fetches offsets by topic id, by an id that no topic has, and for all topics."""
    topic_id = create_topic(wire, name, partition_count=2, configs=KEPT)
    find_coordinator(wire, name, GROUP)

    def commit(*ids: uuid.UUID | None, partition: int = 0) -> Any:
        parts = [{"partition_index": partition, "committed_offset": 5, "committed_metadata": "note"}]
        parts[0]["committed_leader_epoch"] = 3
        asked = {
            "group_id": name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"topic_id": one, "partitions": parts} for one in ids],
        }
        answer = settled(
            lambda: wire.ask(ApiKey.OFFSET_COMMIT, 10, asked),
            lambda answer: max(topic.partitions[0].error_code for topic in answer.topics if topic.topic_id == ids[0]),
        )
        return sorted((ids.index(topic.topic_id), topic.partitions[0].error_code) for topic in answer.topics)

    def fetched(*ids: uuid.UUID | None, everything: bool = False) -> Any:
        topics = None if everything else [{"topic_id": one, "partition_indexes": [0, 1]} for one in ids]
        group = {"group_id": name, "member_id": None, "member_epoch": -1, "topics": topics}
        asked = {"groups": [group], "require_stable": True}
        (found,) = settled(
            lambda: wire.ask(ApiKey.OFFSET_FETCH, 10, asked), lambda one: one.groups[0].error_code
        ).groups
        return code(found), sorted(
            (
                (topic_id, UNKNOWN, None).index(topic.topic_id),
                part.partition_index,
                part.committed_offset,
                part.committed_leader_epoch,
                part.metadata,
                part.error_code,
            )
            for topic in found.topics
            for part in topic.partitions
        )

    return {
        "commit": commit(topic_id, UNKNOWN, None),
        "commit to no partition": commit(topic_id, partition=7),
        "commit to unknown ids": commit(UNKNOWN),
        "fetch": fetched(topic_id, UNKNOWN, None),
        "fetch unknown ids": fetched(UNKNOWN),
        "fetch all": fetched(everything=True),
    }


def join_group(version: int) -> Scenario:
    """Returns a scenario in which a member joins at once, in versions with and without a rebalance timeout."""

    def scenario(wire: KafkaWire, name: str) -> Any:
        find_coordinator(wire, name, GROUP)
        asked = {
            "group_id": name,
            "session_timeout": 6_000,
            "rebalance_timeout": 6_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
        }
        answer = settled(lambda: wire.ask(ApiKey.JOIN_GROUP, version, asked))
        members = [(member.member_id == answer.member_id, member.metadata) for member in answer.members]
        return code(answer), answer.generation_id, answer.protocol_name, answer.leader == answer.member_id, members

    return scenario


def missing_group(version: int) -> Scenario:
    """DescribeGroups of a group that there is not."""

    def scenario(wire: KafkaWire, name: str) -> Any:
        find_coordinator(wire, name, GROUP)
        asked = {"groups": [name], "include_authorized_operations": False}
        (group,) = settled(
            lambda: wire.ask(ApiKey.DESCRIBE_GROUPS, version, asked), lambda answer: answer.groups[0].error_code
        ).groups
        said = bool(getattr(group, "error_message", None))
        return code(group), said, group.group_state, group.protocol_type, group.protocol_data, group.members

    return scenario


def coordinators(version: int) -> Scenario:
    """Returns a scenario of FindCoordinator with both key types, and with an unknown one."""

    def scenario(wire: KafkaWire, name: str) -> Any:
        def find(key_type: int) -> Any:
            asked = {"key_type": key_type, "coordinator_keys": [name]}
            (found,) = settled(
                lambda: wire.ask(ApiKey.FIND_COORDINATOR, version, asked),
                lambda answer: answer.coordinators[0].error_code,
            ).coordinators
            return found.key == name, found.node_id, code(found)

        return find(GROUP), find(TRANSACTION)

    return scenario


# Transactions


def init(wire: KafkaWire, name: str) -> tuple[int, int]:
    find_coordinator(wire, name, TRANSACTION)
    asked = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    answer = settled(lambda: wire.ask(ApiKey.INIT_PRODUCER_ID, 5, asked))
    assert code(answer) == ErrorCode.none
    return answer.producer_id, answer.producer_epoch


def end(wire: KafkaWire, version: int, name: str, producer: tuple[int, int], *, committed: bool) -> Any:
    asked = {
        "transactional_id": name,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "committed": committed,
    }
    return settled(lambda: wire.ask(ApiKey.END_TXN, version, asked))


def stable_end(wire: KafkaWire, name: str) -> int:
    """Returns the offset at which a read_committed reader would continue."""
    parts = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    asked = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": name, "partitions": parts}]}
    answer = wire.ask(ApiKey.LIST_OFFSETS, 11, {**asked, "timeout": TIMEOUT_MS})
    return answer.topics[0].partitions[0].offset


def state_of(wire: KafkaWire, name: str) -> str:
    """Waits until the transaction's markers are written, and returns its state."""
    asked = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": name}
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        (found,) = settled(lambda: wire.ask(ApiKey.LIST_TRANSACTIONS, 2, asked)).transaction_states
        if not found.transaction_state.startswith("Prepare"):
            return found.transaction_state
        assert time.monotonic() < deadline_s, found
        time.sleep(0.01)


def open_topics(wire: KafkaWire, name: str) -> list[str]:
    """The topics of an open transaction."""
    asked = {"transactional_ids": [name]}
    answer = settled(lambda: wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, asked).transaction_states[0])
    return sorted(topic.topic.removeprefix(name) for topic in answer.topics)


def second_protocol(wire: KafkaWire, name: str) -> dict[str, Any]:
    """Runs transactions whose client adds no partitions. Each end ends an epoch too (KIP-890)."""
    topic_id = create_topic(wire, name, configs=KEPT)
    producer_id, epoch = producer = init(wire, name)
    find_coordinator(wire, name, GROUP)
    seen: dict[str, Any] = {}

    def ended(what: str, producer: tuple[int, int], *, committed: bool) -> None:
        answer = end(wire, 5, name, producer, committed=committed)
        known = answer.producer_id in (producer_id, -1)
        seen[what] = (code(answer), known, answer.producer_epoch - epoch if answer.producer_epoch >= 0 else None)

    seen["produce"] = produced(produce(wire, 13, topic_id, transactional_id=name, data=records(producer)))
    offset = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
    asked = {
        "transactional_id": name,
        "group_id": name,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": [offset]}],
    }
    answer = settled(
        lambda: wire.ask(ApiKey.TXN_OFFSET_COMMIT, 5, asked), lambda answer: answer.topics[0].partitions[0].error_code
    )
    seen["offsets"] = answer.topics[0].partitions[0].error_code
    seen["ongoing"] = (state_of(wire, name), open_topics(wire, name))
    seen["stable end before"] = stable_end(wire, name)
    ended("commit", producer, committed=True)
    seen["committed"] = state_of(wire, name)
    seen["stable end after"] = stable_end(wire, name)
    ended("commit again", producer, committed=True)
    ended("abort what is committed", producer, committed=False)
    next_epoch = (producer_id, epoch + 1)
    ended("commit nothing", next_epoch, committed=True)
    ended("abort nothing", next_epoch, committed=False)
    seen["aborted"] = state_of(wire, name)
    late = produce(wire, 13, topic_id, transactional_id=name, data=records(producer, sequence=3))
    seen["late"] = produced(late)
    return seen


def first_protocol(wire: KafkaWire, name: str) -> dict[str, Any]:
    """Runs a transaction whose client adds its partitions. Others are refused with the error that its version knows."""
    create_topic(wire, name)
    producer = init(wire, name)
    asked = {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": producer[0],
        "v3_and_below_producer_epoch": producer[1],
        "v3_and_below_topics": [{"name": name, "partitions": [0]}],
    }
    seen: dict[str, Any] = {
        f"not added, version {version}": produced(
            produce(wire, version, name, transactional_id=name, data=records(producer))
        )
        for version in (9, 10, 11)
    }
    answer = settled(
        lambda: wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, asked),
        lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    )
    seen["add"] = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    seen["added"] = produced(produce(wire, 11, name, transactional_id=name, data=records(producer)))
    seen["end"] = code(end(wire, 4, name, producer, committed=True))
    seen["ended"] = state_of(wire, name)
    seen["end again"] = code(end(wire, 4, name, producer, committed=True))
    return seen


def add_for_brokers(version: int) -> Scenario:
    """AddPartitionsToTxn of several transactions, some only verified."""

    def scenario(wire: KafkaWire, name: str) -> dict[str, Any]:
        create_topic(wire, name, 2)
        producer = init(wire, name)

        def ask(
            partitions: Iterable[int], *, only: bool, epoch: int = 0, topic: str = name, transactional_id: str = name
        ) -> Any:
            transaction = {
                "transactional_id": transactional_id,
                "producer_id": producer[0],
                "producer_epoch": producer[1] + epoch,
                "verify_only": only,
                "topics": [{"name": topic, "partitions": list(partitions)}],
            }

            def parts(answer: Any) -> list[tuple[int, ErrorCode]]:
                (one,) = answer.results_by_transaction
                return sorted(
                    (part.partition_index, part.partition_error_code)
                    for topic in one.topic_results
                    for part in topic.results_by_partition
                )

            answer = settled(
                lambda: wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [transaction]}),
                lambda answer: parts(answer)[0][1],
            )
            return code(answer), parts(answer)

        return {
            "verify before": ask([0], only=True),
            "add": ask([0], only=False),
            "verify": ask([0, 1], only=True),
            "new epoch": ask([0], only=False, epoch=1),
            "no such topic": ask([0], only=False, topic=f"{name}-gone"),
            "no such transaction": ask([0], only=False, transactional_id=f"{name}-gone"),
        }

    return scenario


def listed_transactions(wire: KafkaWire, name: str) -> dict[str, Any]:
    init(wire, f"{name}-one")
    init(wire, f"{name}-two")

    def listed(pattern: str | None, *states: str) -> Any:
        asked = {
            "state_filters": states,
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": pattern,
        }
        answer = settled(lambda: wire.ask(ApiKey.LIST_TRANSACTIONS, 2, asked))
        ids = sorted(transaction_state.transactional_id for transaction_state in answer.transaction_states)
        mine = [one.removeprefix(name) for one in ids if one.startswith(name)]
        return code(answer), mine, answer.unknown_state_filters

    return {
        "all": listed(None),
        "empty": listed(""),
        "pattern": listed(f"{name}-o.*"),
        "a part": listed("-one"),
        "not a pattern": listed("("),
        "unknown state": listed(f"{name}-.*", "Empty", "Nonsense"),
        "unknown states": listed(f"{name}-.*", "Nonsense"),
    }


def markers(version: int) -> Scenario:
    """WriteTxnMarkers: an operator ends an open transaction in a partition."""

    def scenario(wire: KafkaWire, name: str) -> dict[str, Any]:
        topic_id = create_topic(wire, name, configs=KEPT)
        producer = init(wire, name)
        first = produce(wire, 13, topic_id, transactional_id=name, data=records(producer))
        assert produced(first)[0] == ErrorCode.none

        def write(epoch: int, *topics: tuple[str, int], coordinator_epoch: int = 0) -> Any:
            marker = {
                "producer_id": producer[0],
                "producer_epoch": producer[1] + epoch,
                "transaction_result": False,
                "coordinator_epoch": coordinator_epoch,
                "transaction_version": 0,
                "topics": [{"name": topic, "partition_indexes": [number]} for topic, number in topics],
            }
            answer = wire.ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker] if topics else []})
            return sorted(
                (topic.name.removeprefix(name), part.partition_index, part.error_code)
                for one in answer.markers
                for topic in one.topics
                for part in topic.partitions
            )

        asked = {"topics": [{"name": name, "partition_indexes": [0]}]}

        def open_at() -> list[int]:
            found = wire.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0].active_producers
            return [one.current_txn_start_offset for one in found]

        return {
            "none": write(0),
            "elsewhere": write(0, (f"{name}-gone", 0), (name, 7)),
            "open": (open_at(), stable_end(wire, name)),
            "abort": write(0, (name, 0)),
            "closed": (open_at(), stable_end(wire, name)),
            "again": write(0, (name, 0)),
            "newer": write(1, (name, 0), coordinator_epoch=4),
            "older epoch": write(0, (name, 0), coordinator_epoch=4),
            "older coordinator": write(1, (name, 0), coordinator_epoch=3),
        }

    return scenario


# The cluster


def features(version: int) -> Scenario:
    """The levels of what Klamm has."""

    def scenario(wire: KafkaWire, name: str) -> Any:
        asked = {"client_software_name": "test", "client_software_version": "1"}
        answer = wire.ask(ApiKey.API_VERSIONS, version, asked)
        levels = {
            finalized_feature.name: (finalized_feature.min_version_level, finalized_feature.max_version_level)
            for finalized_feature in answer.finalized_features
        }
        assert answer.finalized_features_epoch >= 0
        # Before version 4 Kafka does not name those that can be 0; Klamm's cannot.
        supported = {
            supported_feature.name: supported_feature.max_version
            for supported_feature in answer.supported_features
            if version >= 4
        }
        return (
            code(answer),
            {level: levels[level] for level in LEVELS},
            {level: supported.get(level) for level in LEVELS},
        )

    return scenario


def feature_updates(version: int) -> Scenario:
    """Returns a scenario of the updates that Klamm can answer like Kafka. They change nothing, or are refused."""

    def scenario(wire: KafkaWire, name: str) -> list[Any]:
        def update(*updates: tuple[str, int], kind: int = 1) -> Any:
            asked = {
                "timeout": TIMEOUT_MS,
                "validate_only": True,
                "feature_updates": [
                    {"feature": one, "max_version_level": level, "allow_downgrade": kind > 1, "upgrade_type": kind}
                    for one, level in updates
                ],
            }
            answer = wire.ask(ApiKey.UPDATE_FEATURES, version, asked)
            results = [(one.feature, one.error_code) for one in getattr(answer, "results", ())]
            return code(answer), bool(answer.error_message), sorted(results)

        return [
            update(),
            update(*LEVELS.items()),
            update(("transaction.version", 1)),
            update(("transaction.version", 3)),
            update(("transaction.version", -1), kind=2),
            update(("transaction.version", 2), kind=2),
            update(("transaction.version", 2), kind=9),
            update(("no.such.version", 1)),
            update(("no.such.version", 0), kind=3),
            update(("group.version", 1), ("no.such.version", 1)),
            update(("metadata.version", 29), kind=2),
            update(("metadata.version", 31)),
            update(("kraft.version", 0), kind=3),
        ]

    return scenario


def voters(wire: KafkaWire, name: str) -> dict[str, ErrorCode]:
    """The quorum of one controller is asked for changes that it refuses."""
    quorum = wire.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": [METADATA_TOPIC]})
    (voter,) = quorum.topics[0].partitions[0].current_voters
    directory = voter.replica_directory_id
    listeners = [{"name": "CONTROLLER", "host": "localhost", "port": 1}]
    answers = {}

    def add(what: str, **fields: Any) -> None:
        wanted = {
            "cluster_id": None,
            "timeout": 1_000,
            "voter_id": voter.replica_id,
            "voter_directory_id": directory,
            "listeners": listeners,
            "ack_when_committed": True,
        }
        answer = wire.ask(ApiKey.ADD_RAFT_VOTER, 1, wanted | fields)
        answers[f"add {what}"] = code(answer)
        assert answer.error_message

    def remove(what: str, **fields: Any) -> None:
        wanted = {"cluster_id": None, "voter_id": voter.replica_id, "voter_directory_id": directory}
        answers[f"remove {what}"] = code(wire.ask(ApiKey.REMOVE_RAFT_VOTER, 0, wanted | fields))

    add("to another cluster", cluster_id="another")
    add("without directory", voter_id=77, voter_directory_id=None)
    add("without listener", voter_id=77, voter_directory_id=UNKNOWN, listeners=[])
    add("who votes already")
    remove("from another cluster", cluster_id="another")
    remove("without directory", voter_directory_id=None)
    remove("who does not vote", voter_id=77, voter_directory_id=UNKNOWN)
    remove("the last one")
    return answers


def is_closed_to(bootstrap: str, number: int) -> bool:
    """True if a request of that API closes the connection instead of getting an answer."""
    host, _, port = bootstrap.rpartition(":")
    frame = struct.pack(">hhih", number, 0, 1, 4) + b"test" + bytes(64)
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        return connection.recv(1) == b""
