"""One of the two sides that get the same questions, with the topics, groups, producers and members for them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import ApiKey
from tests.support.kafka_wire import KafkaWire

TIMEOUT_S = 30
TIMEOUT_MS = 1_000 * TIMEOUT_S
SILENCE_S = 5
"""A server that has not answered after this time does not answer."""
TIME_MS = 1_700_000_000_000
"""The time of the first record. Topics here keep records for ever."""
UNKNOWN_ID = uuid.UUID("00000000-0000-4000-8000-00000000beef")
CLOSED = "closes the connection"
SILENT = "does not answer"
NOT_YET = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
}
SHARED_TOPICS = {"plain": 2, "a.dot": 1, "compacted": 1, "small": 1, "trimmed": 1, "transactions": 1}
"""The partitions of each topic that questions only read."""
TXN_TIMEOUT_MS = 300
"""The time-out of transactions that are to time out: long enough to begin one."""
SUBSCRIPTION = bytes.fromhex("0001000000010005" + b"plain".hex() + "ffffffff00000000")
"""A subscription to the topic `plain`, as Kafka's own consumer writes it."""


class GroupMembership(NamedTuple):
    """A membership in a classic group of its own."""

    group: str
    member_id: str
    generation: int


class TransactionalProducer(NamedTuple):
    """Its transactional id is registered."""

    transactional_id: str
    producer_id: int
    epoch: int


class Side:
    """Klamm or Kafka. `ask` gives an answer of kio, or CLOSED or SILENT."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._wire: KafkaWire | None = None

    def close(self) -> None:
        if self._wire is not None:
            self._wire.__exit__()
            self._wire = None

    def ask(self, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        self._wire = self._wire or KafkaWire(self.bootstrap, timeout_s=SILENCE_S)
        try:
            return self._wire.ask(api_key, version, fields)
        except TimeoutError:
            self.close()
            return SILENT
        except ConnectionError:
            self.close()
            return CLOSED

    def ask_until(
        self, is_right: Callable[[Any], bool], api_key: ApiKey, version: int, fields: Mapping[str, Any]
    ) -> Any:
        """The first answer that is right. Raises AssertionError when none is in time."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_right(answer := self.ask(api_key, version, fields)):
            assert time.monotonic() < deadline_s, f"{self.bootstrap} to {api_key.name}: {answer}"
            time.sleep(0.02)
        return answer

    def create_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Returns the name when the broker leads all partitions."""
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [
                {"name": key, "value": value} for key, value in {"retention.ms": "-1", **(configs or {})}.items()
            ],
        }
        asked = {"topics": [wanted], "timeout": TIMEOUT_MS, "validate_only": False}
        created = self.ask(ApiKey.CREATE_TOPICS, 7, asked).topics[0]
        assert created.error_code is ErrorCode.none, f"{self.bootstrap} to the creation of {name}: {created}"
        self.topic_ids[name] = created.topic_id
        self.wait_for_topic(name, partitions)
        return name

    def wait_for_topic(self, name: str, partitions: int) -> None:
        """Waits until the broker leads all partitions of the topic and answers for them."""
        asked = {
            "topics": [{"name": name, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        self.ask_until(
            lambda answer: sum(partition.leader_id >= 0 for partition in answer.topics[0].partitions) == partitions,
            ApiKey.METADATA,
            12,
            asked,
        )
        asked_offsets = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
        self.ask_until(
            lambda answer: all(partition.error_code is ErrorCode.none for partition in answer.topics[0].partitions),
            ApiKey.LIST_OFFSETS,
            1,
            {"replica_id": -1, "topics": [{"name": name, "partitions": asked_offsets}]},
        )

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, producer: TransactionalProducer | None = None
    ) -> None:
        """Produces one batch, which all replicas acknowledge."""
        asked = {
            "transactional_id": producer.transactional_id if producer else None,
            "acks": -1,
            "timeout": TIMEOUT_MS,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
        }
        answer = self.ask(ApiKey.PRODUCE, 11, asked)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none, answer

    def wait_for_coordinators(self) -> None:
        """Waits until each coordinator answers for its groups and transactional ids. The names are many, so that each
        partition has some of them."""
        names = [f"name-{number}" for number in range(1_000)]
        for key_type in (0, 1):
            self.ask_until(
                lambda answer: answer.error_code not in NOT_YET,
                ApiKey.FIND_COORDINATOR,
                3,
                {"key": names[0], "key_type": key_type},
            )
        self.ask_until(
            lambda answer: not NOT_YET & {group.error_code for group in answer.groups},
            ApiKey.DESCRIBE_GROUPS,
            5,
            {"groups": names, "include_authorized_operations": False},
        )
        self.ask_until(
            lambda answer: (
                not NOT_YET & {transaction_state.error_code for transaction_state in answer.transaction_states}
            ),
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            {"transactional_ids": names},
        )

    def delete_own_topics(self) -> None:
        """Deletes the topics that questions made: other questions are about all topics that there are."""
        asked = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        names = [topic.name for topic in self.ask(ApiKey.METADATA, 12, asked).topics if not topic.is_internal]
        own = [name for name in names if name not in {*SHARED_TOPICS, "empty"}]
        self.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": own, "timeout": TIMEOUT_MS})

    def shared_state(self) -> Mapping[str, list[Any]]:
        """Returns the state that all questions share, and that no question may change.

        It has the first and last offset of each partition of the shared topics, the offsets committed by the group
        `stored`, and the state of the group `unknown`, which must not exist. The topic `empty` is left out, because
        transactions of some questions write markers to it.
        """
        state: dict[str, list[Any]] = {}
        for time_ms in (-2, -1):
            wanted = [
                {"name": name, "partitions": [{"partition_index": one, "timestamp": time_ms} for one in range(count)]}
                for name, count in SHARED_TOPICS.items()
            ]
            answer = self.ask(ApiKey.LIST_OFFSETS, 1, {"replica_id": -1, "topics": wanted})
            for topic in answer.topics:
                state.setdefault(topic.name, []).extend(partition.offset for partition in topic.partitions)
        asked = {"group_id": "stored", "topics": None}
        stored = self.ask(ApiKey.OFFSET_FETCH, 7, {**asked, "require_stable": False})
        state["stored"] = [
            (topic.name, partition.partition_index, partition.committed_offset)
            for topic in stored.topics
            for partition in topic.partitions
        ]
        asked_groups = {"groups": ["unknown"], "include_authorized_operations": False}
        state["unknown"] = [group.group_state for group in self.ask(ApiKey.DESCRIBE_GROUPS, 5, asked_groups).groups]
        return state

    def join(self, group: str, instance_id: str | None = None) -> GroupMembership:
        """A new classic member, alone in its group, that has its assignment."""
        asked = join_group(group, group_instance_id=instance_id)
        answer = self.ask(ApiKey.JOIN_GROUP, 5, asked)
        if answer.error_code is ErrorCode.member_id_required:
            answer = self.ask(ApiKey.JOIN_GROUP, 5, {**asked, "member_id": answer.member_id})
        assert answer.error_code is ErrorCode.none, answer
        member = GroupMembership(group, answer.member_id, answer.generation_id)
        synced = self.ask(ApiKey.SYNC_GROUP, 3, sync_group(member, group_instance_id=instance_id))
        assert synced.error_code is ErrorCode.none, synced
        return member

    def register(self, transactional_id: str, *, timeout_ms: int = 900_000) -> TransactionalProducer:
        """A producer without a transaction."""
        answer = self.ask_until(
            lambda answer: answer.error_code not in NOT_YET,
            ApiKey.INIT_PRODUCER_ID,
            4,
            {"transactional_id": transactional_id, "transaction_timeout": timeout_ms},
        )
        assert answer.error_code is ErrorCode.none, answer
        return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch)

    def begin(self, transactional_id: str, topic: str, *, timeout_ms: int = 900_000) -> TransactionalProducer:
        """A producer with an open transaction over partition 0, without records."""
        producer = self.register(transactional_id, timeout_ms=timeout_ms)
        answer = self.ask_until(
            lambda answer: (
                not NOT_YET & {partition_result.partition_error_code for partition_result in partition_results(answer)}
            ),
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": transactional_id,
                "v3_and_below_producer_id": producer.producer_id,
                "v3_and_below_producer_epoch": producer.epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
            },
        )
        assert {partition_result.partition_error_code for partition_result in partition_results(answer)} == {
            ErrorCode.none
        }, answer
        return producer

    def end(self, producer: TransactionalProducer, *, committed: bool) -> None:
        """Ends the transaction. Returns when the outcome is decided, even if markers are still missing."""
        asked = {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "committed": committed,
        }
        answer = self.ask(ApiKey.END_TXN, 3, asked)
        assert answer.error_code is ErrorCode.none, answer

    def wait_for_end(self, transactional_id: str) -> None:
        """Waits until the transaction's markers are written."""
        self.ask_until(
            lambda answer: answer.transaction_states[0].transaction_state.startswith("Complete"),
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            {"transactional_ids": [transactional_id]},
        )


def partition_results(answer: Any) -> list[Any]:
    return [each for result in answer.results_by_topic_v3_and_below for each in result.results_by_partition]


def join_group(group: str, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        "reason": None,
        **changes,
    }


def sync_group(member: GroupMembership, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": member.group,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member.member_id, "assignment": b"assignment"}],
        **changes,
    }


def batch(count: int = 1, *, first: int = 0, producer: TransactionalProducer | None = None, **settings: Any) -> bytes:
    """Records of one batch, whose times are one second apart from the `first` on."""
    records = [(TIME_MS + 1_000 * (first + number), b"key", b"value", ()) for number in range(count)]
    if producer is not None:
        settings = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "base_sequence": 0,
            "is_transactional": True,
            **settings,
        }
    return encode_batch(records, **settings)


class Ask(NamedTuple):
    """The circumstances that a question is made for."""

    side: Side
    version: int
    name: str
    """The name of a topic, group or transactional id. It is the same on both sides, and no other question has it."""

    def topic(self, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """The name of a new topic."""
        return self.side.create_topic(self.name, partitions=partitions, configs=configs)

    def topic_id(self, name: str) -> uuid.UUID:
        """The id of a topic that was created here, or one that no topic has."""
        return self.side.topic_ids.get(name, UNKNOWN_ID)

    def member(self) -> GroupMembership:
        """A new member of a new group."""
        return self.side.join(self.name)

    def producer(self) -> TransactionalProducer:
        """A new one without a transaction."""
        return self.side.register(self.name)

    def transaction(self, topic: str = "empty") -> TransactionalProducer:
        """A new producer with an open transaction."""
        return self.side.begin(self.name, topic)

    def timed_out(self, topic: str = "empty") -> TransactionalProducer:
        """A new producer whose transaction was aborted because it was open for too long."""
        producer = self.side.begin(self.name, topic, timeout_ms=TXN_TIMEOUT_MS)
        self.side.wait_for_end(producer.transactional_id)
        return producer


Build = Callable[[Ask], Mapping[str, Any]]


class Case(NamedTuple):
    """A question that only some versions can ask."""

    build: Build
    since: int = 0
    until: int = 1_000


Cases = Mapping[ApiKey, Mapping[str, Build | Case]]


def since(version: int, build: Build) -> Case:
    return Case(build, since=version)


def set_up(side: Side) -> None:
    """The topics, transactional ids and the group that the questions are about."""
    side.wait_for_coordinators()
    side.create_topic("plain", partitions=2)
    for first, count in ((0, 3), (3, 2), (5, 1)):
        side.produce("plain", batch(count, first=first))
    side.create_topic("empty")
    side.create_topic("a.dot")
    side.create_topic("compacted", configs={"cleanup.policy": "compact"})
    side.create_topic("small", configs={"max.message.bytes": "200"})
    side.create_topic("trimmed")
    side.produce("trimmed", batch(6))
    trimmed = [{"name": "trimmed", "partitions": [{"partition_index": 0, "offset": 4}]}]
    side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": trimmed, "timeout": TIMEOUT_MS})
    _set_up_transactions(side)
    _set_up_group(side)


def _set_up_transactions(side: Side) -> None:
    """Three records that count, two that were aborted, and two of a transaction that stays open."""
    side.create_topic("transactions")
    for name, count, committed in (("committed", 3, True), ("aborted", 2, False)):
        producer = side.begin(name, "transactions")
        side.produce("transactions", batch(count, producer=producer), producer=producer)
        side.end(producer, committed=committed)
        side.wait_for_end(name)
    producer = side.begin("open", "transactions")
    side.produce("transactions", batch(2, producer=producer), producer=producer)


def _set_up_group(side: Side) -> None:
    """`stored` has offsets and no member."""
    committed: Sequence[Mapping[str, Any]] = [
        {"partition_index": number, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": "note"}
        for number in range(2)
    ]
    asked = {
        "group_id": "stored",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": "plain", "partitions": committed}],
    }
    side.ask(ApiKey.OFFSET_COMMIT, 8, asked)
