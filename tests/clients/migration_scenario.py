"""A group that changes between the classic and the consumer protocol while it has members (KIP-848). Klamm and Apache
Kafka must answer each of its requests alike (`test_same_answers.py`)."""

from __future__ import annotations

import struct
import time
import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from tests.clients.scenarios import (
    TIMEOUT_S,
    TRANSACTION,
    code,
    create_topic,
    find_coordinator,
    first_partition,
    settled,
)
from tests.support.kafka_wire import KafkaWire

Step = tuple[str, Any]
NO_INSTANCE = {"group_instance_id": None}
TIMEOUT_MS = 30_000


def changes_of_protocol(wire: KafkaWire, name: str) -> list[Step]:
    """A classic member has all partitions. A consumer member joins and leaves. Then the same with static members."""
    topic_id = create_topic(wire, name, 2)
    find_coordinator(wire, name)
    find_coordinator(wire, name, TRANSACTION)
    world = _World(wire, name, topic_id)
    return [*_up_and_down(world), *_refusals(_World(wire, f"{name}-refused", topic_id)), *_static(world)]


def _up_and_down(world: _World) -> list[Step]:
    classic, consumer = _Classic(world), _Consumer(world)
    steps: list[Step] = [("first generation", classic.make_group())]
    steps += [
        ("a consumer joins", consumer.heartbeat()),
        ("lists", world.listed()),
        ("describes as classic", world.described_as_classic()),
        ("describes", world.described()),
        ("commits", [classic.commit(generation) for generation in (classic.generation, 9)]),
        ("commits in a transaction", [classic.commit_in_transaction(one) for one in (classic.generation, 9)]),
        ("heartbeat", classic.heartbeat()),
        ("sync before it joins", classic.sync()),
        ("joins again", classic.join()),
        ("sync with another protocol", classic.sync(protocol_name="roundrobin")),
        ("sync", classic.sync()),
        ("the consumer gets the rest", consumer.until_assigned()),
        ("heartbeat of a stable member", classic.heartbeat()),
        ("heartbeat of the other protocol", classic.heartbeat(member_id=consumer.member_id, generation=consumer.epoch)),
        ("heartbeat of an old generation", classic.heartbeat(generation=classic.generation - 1)),
        ("describes both", world.described()),
        ("commits of the consumer", [consumer.commit(epoch) for epoch in (consumer.epoch, 99)]),
        ("the consumer leaves", consumer.heartbeat(epoch=-1)),
        ("lists again", world.listed()),
        ("describes the classic group", world.described_as_classic()),
        ("describes the classic group as a consumer group", world.described()),
        ("heartbeat after the downgrade", classic.heartbeat()),
    ]
    epoch = classic.generation
    classic.send_join()
    joined = classic.joined()
    steps += [
        ("joins the classic group", (joined, classic.generation - epoch)),
        ("sync as the leader", classic.sync({classic.member_id: _assignment(world.topic, 0, 1)})),
        ("leaves", classic.leave()),
    ]
    return steps


def _refusals(world: _World) -> list[Step]:
    connect = _Classic(world, protocol_type="connect")
    connect.make_group()
    return [("a consumer joins another protocol type", _Consumer(world).heartbeat())]


def _static(world: _World) -> list[Step]:
    world = _World(world.wire, f"{world.topic}-static", world.topic_id, topic=world.topic)
    former, consumer = _Classic(world, instance_id="i"), _Consumer(world, instance_id="i")
    former.make_group()
    steps: list[Step] = [
        ("a static consumer replaces the member", consumer.heartbeat()),
        ("the former member is fenced", former.heartbeat()),
        ("describes the static member", world.described()),
    ]
    again = _Classic(world, instance_id="i")
    joined = again.join()
    steps += [("a static classic member comes back", joined[:3]), ("lists the group", world.listed()[:1])]
    return steps


class _World:
    def __init__(self, wire: KafkaWire, group: str, topic_id: uuid.UUID, *, topic: str = "") -> None:
        self.wire, self.group, self.topic, self.topic_id = wire, group, topic or group, topic_id

    def listed(self) -> list[str]:
        asked = {"states_filter": [], "types_filter": []}
        groups = self.wire.ask(ApiKey.LIST_GROUPS, 5, asked).groups
        return [
            text
            for group in groups
            if group.group_id == self.group
            for text in (group.group_type, group.protocol_type, group.group_state)
        ]

    def described_as_classic(self) -> tuple[Any, ...]:
        asked = {"groups": [self.group], "include_authorized_operations": False}
        (group,) = self.wire.ask(ApiKey.DESCRIBE_GROUPS, 6, asked).groups
        return group.error_code, group.group_state, group.protocol_type, group.protocol_data, len(group.members)

    def described(self) -> tuple[Any, ...]:
        asked = {"group_ids": [self.group], "include_authorized_operations": False}
        (group,) = self.wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked).groups
        members = sorted(
            (
                member.member_type,
                member.member_epoch - group.group_epoch,
                _count(member.assignment),
                _count(member.target_assignment),
                [topic == self.topic for topic in member.subscribed_topic_names],
                member.instance_id,
            )
            for member in group.members
        )
        return group.error_code, group.group_state, group.assignor_name, members


class _Classic:
    """A classic member that answers nothing by itself."""

    def __init__(self, world: _World, *, instance_id: str | None = None, protocol_type: str = "consumer") -> None:
        self.world, self.instance_id, self.protocol_type = world, instance_id, protocol_type
        self.member_id, self.generation = "", -1
        self._me = {"group_id": world.group, "group_instance_id": instance_id}

    def make_group(self) -> tuple[Any, ...]:
        self.send_join()
        joined = self.joined()
        return joined, self.sync({self.member_id: _assignment(self.world.topic, 0, 1)})

    def join(self) -> tuple[Any, ...]:
        self.send_join()
        return self.joined()

    def send_join(self) -> None:
        topic = self.world.topic.encode()
        metadata = struct.pack(">hih", 1, 1, len(topic)) + topic + struct.pack(">ii", -1, 0)
        join = {
            **self._me,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": "range", "metadata": metadata}],
            "reason": None,
        }
        answer = settled(lambda: self.world.wire.ask(ApiKey.JOIN_GROUP, 9, join))
        if answer.error_code == ErrorCode.member_id_required:
            self.member_id = answer.member_id
            self.send_join()
        else:
            self._answer = answer

    def joined(self) -> tuple[Any, ...]:
        answer = self._answer
        if answer.error_code == ErrorCode.none:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        leads = answer.leader == answer.member_id
        return answer.error_code, answer.protocol_type, answer.protocol_name, leads, len(answer.members)

    def sync(self, assignments: dict[str, bytes] | None = None, *, protocol_name: str = "range") -> tuple[Any, ...]:
        asked = {
            **self._me,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocol_name": protocol_name,
            "assignments": [{"member_id": one, "assignment": data} for one, data in (assignments or {}).items()],
        }
        answer = self.world.wire.ask(ApiKey.SYNC_GROUP, 5, asked)
        topic = self.world.topic.encode()
        named = struct.pack(">h", len(topic)) + topic
        return answer.error_code, answer.assignment.hex().replace(named.hex(), "<topic>")

    def heartbeat(self, *, member_id: str | None = None, generation: int | None = None) -> ErrorCode:
        asked = {
            **self._me,
            "generation_id": self.generation if generation is None else generation,
            "member_id": member_id or self.member_id,
        }
        return code(self.world.wire.ask(ApiKey.HEARTBEAT, 4, asked))

    def leave(self) -> list[ErrorCode]:
        member = {"member_id": self.member_id, "group_instance_id": self.instance_id, "reason": None}
        asked = {"group_id": self.world.group, "members": [member]}
        return [one.error_code for one in self.world.wire.ask(ApiKey.LEAVE_GROUP, 5, asked).members]

    def commit(self, generation: int) -> ErrorCode:
        return _commit(self.world, self.member_id, generation)

    def commit_in_transaction(self, generation: int) -> ErrorCode:
        wire, group = self.world.wire, self.world.group
        transaction = {"transactional_id": group}
        init = {**transaction, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        made = settled(lambda: wire.ask(ApiKey.INIT_PRODUCER_ID, 4, init))
        me = {**transaction, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        settled(lambda: wire.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, {**me, "group_id": group}))
        commit = {
            **me,
            **NO_INSTANCE,
            "group_id": group,
            "generation_id": generation,
            "member_id": self.member_id,
            "topics": _offsets(self.world.topic),
        }
        answer = settled(lambda: wire.ask(ApiKey.TXN_OFFSET_COMMIT, 3, commit), first_partition)
        settled(lambda: wire.ask(ApiKey.END_TXN, 3, {**me, "committed": True}))
        return first_partition(answer)


class _Consumer:
    def __init__(self, world: _World, *, instance_id: str | None = None) -> None:
        self.world, self.instance_id = world, instance_id
        self.member_id, self.epoch = str(uuid.uuid4()), 0

    def heartbeat(self, *, epoch: int | None = None) -> tuple[Any, ...]:
        answer = self.ask(self.epoch if epoch is None else epoch)
        return answer.error_code, None if answer.assignment is None else _count(answer.assignment)

    def until_assigned(self) -> int:
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            answer = self.ask(self.epoch)
            if answer.assignment is not None and _count(answer.assignment):
                return _count(answer.assignment)
            assert time.monotonic() < deadline_s, answer
            time.sleep(0.05)

    def ask(self, epoch: int) -> Any:
        joins = epoch == 0
        asked = {
            "group_id": self.world.group,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": TIMEOUT_MS if joins else -1,
            "subscribed_topic_names": [self.world.topic] if joins else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [] if joins else None,
        }
        answer = self.world.wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
        if answer.error_code == ErrorCode.none and epoch >= 0:
            self.epoch = answer.member_epoch
        return answer

    def commit(self, epoch: int) -> ErrorCode:
        return _commit(self.world, self.member_id, epoch)


def _commit(world: _World, member_id: str, generation: int) -> ErrorCode:
    asked = {
        **NO_INSTANCE,
        "group_id": world.group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": _offsets(world.topic),
    }
    return first_partition(settled(lambda: world.wire.ask(ApiKey.OFFSET_COMMIT, 9, asked), first_partition))


def _offsets(topic: str) -> list[dict[str, Any]]:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    return [{"name": topic, "partitions": [partition]}]


def _assignment(topic: str, *partitions: int) -> bytes:
    name = topic.encode()
    numbers = struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions)
    return struct.pack(">hih", 1, 1, len(name)) + name + numbers + struct.pack(">i", -1)


def _count(assignment: Any) -> int:
    return sum(len(topic_partition.partitions) for topic_partition in assignment.topic_partitions)


ANSWERS: list[Step] = [
    (
        "first generation",
        (
            (ErrorCode.none, "consumer", "range", True, 1),
            (ErrorCode.none, "000100000001<topic>000000020000000000000001ffffffff"),
        ),
    ),
    ("a consumer joins", (ErrorCode.none, 0)),
    ("lists", ["consumer", "consumer", "Reconciling"]),
    ("describes as classic", (ErrorCode.group_id_not_found, "Dead", "", "", 0)),
    (
        "describes",
        (ErrorCode.none, "Reconciling", "uniform", [(0, -1, 2, 1, [True], None), (1, 0, 0, 1, [True], None)]),
    ),
    ("commits", [ErrorCode.none, ErrorCode.illegal_generation]),
    ("commits in a transaction", [ErrorCode.none, ErrorCode.illegal_generation]),
    ("heartbeat", ErrorCode.rebalance_in_progress),
    ("sync before it joins", (ErrorCode.rebalance_in_progress, "")),
    ("joins again", (ErrorCode.none, "consumer", "range", False, 0)),
    ("sync with another protocol", (ErrorCode.inconsistent_group_protocol, "")),
    ("sync", (ErrorCode.none, "000100000001<topic>0000000100000000ffffffff")),
    ("the consumer gets the rest", 1),
    ("heartbeat of a stable member", ErrorCode.none),
    ("heartbeat of the other protocol", ErrorCode.unknown_member_id),
    ("heartbeat of an old generation", ErrorCode.illegal_generation),
    ("describes both", (ErrorCode.none, "Stable", "uniform", [(0, 0, 1, 1, [True], None), (1, 0, 1, 1, [True], None)])),
    ("commits of the consumer", [ErrorCode.none, ErrorCode.stale_member_epoch]),
    ("the consumer leaves", (ErrorCode.none, None)),
    ("lists again", ["classic", "consumer", "PreparingRebalance"]),
    ("describes the classic group", (ErrorCode.none, "PreparingRebalance", "consumer", "", 1)),
    ("describes the classic group as a consumer group", (ErrorCode.group_id_not_found, "", "", [])),
    ("heartbeat after the downgrade", ErrorCode.rebalance_in_progress),
    ("joins the classic group", ((ErrorCode.none, "consumer", "range", True, 1), 1)),
    ("sync as the leader", (ErrorCode.none, "000100000001<topic>000000020000000000000001ffffffff")),
    ("leaves", [ErrorCode.none]),
    ("a consumer joins another protocol type", (ErrorCode.group_id_not_found, None)),
    ("a static consumer replaces the member", (ErrorCode.none, 2)),
    ("the former member is fenced", ErrorCode.fenced_instance_id),
    ("describes the static member", (ErrorCode.none, "Stable", "uniform", [(1, 0, 2, 2, [True], "i")])),
    ("a static classic member comes back", (ErrorCode.none, "consumer", "range")),
    ("lists the group", ["classic"]),
]
"""The answers of Apache Kafka."""
