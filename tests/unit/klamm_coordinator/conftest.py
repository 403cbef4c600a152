"""Provides a shard on a clock that the test moves, with a broker that acknowledges at once by default."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import deque
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.kafka_types.writer import KafkaWriter
from klamm.model import TopicPartition
from klamm_coordinator.classic.messages import (
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    SyncReply,
)
from klamm_coordinator.classic.subscription import encode_assignment, read_assignment
from klamm_coordinator.group_shard.events import HoldsChanged
from klamm_coordinator.group_shard.refusals import Reply
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import FixedTopics, TopicInfo
from klamm_coordinator.kip848.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from klamm_coordinator.offsets.messages import (
    CommitOffset,
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    EndTransaction,
)
from klamm_coordinator.records.consumer_group_schemas import TopicIdPartition
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.runtime.log_write import LogWrite, TxnMarker, TxnProducer
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.timers import Now
from klamm_server.runtime.byte_shares import ByteShares, unbounded

GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
WALL_START_MS = 1_700_000_000_000


def subscription(*topics: str) -> bytes:
    """Returns a ConsumerProtocolSubscription of version 0."""
    writer = KafkaWriter().int16(0).int32(len(topics))
    for topic in topics:
        writer.string(topic)
    return writer.bytes_(b"").value()


def owning(topics: tuple[str, ...], owned: set[tuple[str, int]]) -> bytes:
    """Returns a ConsumerProtocolSubscription of version 1."""
    writer = KafkaWriter().int16(1).int32(len(topics))
    for topic in topics:
        writer.string(topic)
    writer.bytes_(b"").int32(len(owned))
    for topic, number in sorted(owned):
        writer.string(topic).int32_array((number,))
    return writer.value()


class ShardDriver:
    """Drives one shard. Checks that each request gets one reply, and every invariant after each step."""

    def __init__(self, *, seed: int = 1, shares: ByteShares | None = None, **settings: int) -> None:
        defaults = {"initial_rebalance_delay_ms": DELAY_MS}
        self.settings = GroupSettings(**(defaults | settings))
        self.rng = random.Random(seed)
        self.shares = unbounded() if shares is None else shares
        self.user = "User:alice"
        """The user that sends the requests."""
        self.topics = FixedTopics(0, {})
        self.shard = self._new_shard()
        self.now_ms = 0
        self.replies: dict[int, Reply] = {}
        self.asked: set[int] = set()
        self.notes: list[str] = []
        self.unsent: deque[LogWrite] = deque()
        self.log: list[Any] = []
        """Records acknowledged, in order; of transactions the writes."""
        self.auto_ack = True
        self._next_id = 0
        self._take(self.shard.start(self.now))

    @property
    def rules(self) -> GroupRules:
        return self.shard.rules

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_START_MS + self.now_ms)

    # Time and the log

    def step(self, event: Any) -> None:
        self._take(self.shard.step(event, self.now))
        while self.auto_ack and self.unsent:
            self.ack()

    def ack(self) -> None:
        """Acknowledges the oldest write, as the broker does."""
        write = self.unsent.popleft()
        self.log.extend(write.records if write.producer is None else [write])
        self._take(self.shard.step(WriteAppended(write_id=write.write_id), self.now))

    def nack(self, error: ErrorCode) -> None:
        """Refuses the oldest write, as the broker does."""
        write = self.unsent.popleft()
        self._take(self.shard.step(WriteFailed(write_id=write.write_id, error=error), self.now))

    def advance(self, duration_ms: int) -> None:
        """Moves the clock. Every deadline in between fires on time."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(TimePassed())
        self.now_ms = end_ms

    def crash(self) -> None:
        """Crashes the process and loads the shard again. Writes without an acknowledgement are lost."""
        self.unsent.clear()
        former = self.rules.state
        self.rules.close()
        self.shard = self._new_shard()
        self.replay(self.rules.state)
        assert self.rules.state == former
        self.asked = set(self.replies)
        self._take(self.shard.start(self.now))

    def _new_shard(self) -> ShardRuntime[GroupRules]:
        rules = GroupRules(self.settings, self.shares, lambda: self.topics)
        return ShardRuntime(rules, self.settings, self.rng)

    def replayed(self) -> GroupShardState:
        """Returns the state that the acknowledged records describe."""
        state = GroupShardState()
        self.replay(state)
        return state

    def replay(self, state: GroupShardState, *, after: int = 0) -> None:
        """Replays the acknowledged records into a state that has the first `after` entries already."""
        for entry in itertools.islice(self.log, after, None):
            if not isinstance(entry, LogWrite):
                state.replay(entry)
                continue
            for record in entry.records:
                state.replay(record, entry.producer.producer_id)
            if entry.marker is not None:
                state.end_transaction(entry.producer.producer_id, committed=entry.marker.committed)

    def _take(self, effects: ShardEffects[Any]) -> None:
        for reply_id, reply in effects.replies:
            assert reply_id in self.asked, f"an answer to nothing: {reply_id} {reply}"
            assert reply_id not in self.replies, f"a second answer: {reply_id} {reply}"
            self.replies[reply_id] = reply
        self.unsent.extend(effects.writes)
        self.notes.extend(effects.notes)
        self.shard.check_invariants()

    # Requests: each returns the id of its reply

    def ask(self, request: Any) -> int:
        self._next_id += 1
        self.asked.add(self._next_id)
        of_user = {"user": self.user} if hasattr(request, "user") else {}
        request = dataclasses.replace(request, reply_id=self._next_id, **of_user)
        if self.shard.takes(request):
            self.step(request)
        else:
            self._take(self.shard.refuse(request, self.now))
        return self._next_id

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        client_id: str = "client",
        group_id: str = GROUP,
        joins_without_id: bool = False,
        reason: str = "",
    ) -> int:
        return self.ask(
            JoinGroup(
                reply_id=0,
                group_id=group_id,
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host="/127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=protocol_type,
                protocols=tuple(Protocol(name=name, metadata=metadata) for name, metadata in protocols),
                reason=reason,
                joins_without_id=joins_without_id,
                topics=self.topics,
            )
        )

    def sync(
        self,
        generation_id: int,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str = "",
        protocol_name: str = "",
        group_id: str = GROUP,
    ) -> int:
        return self.ask(
            SyncGroup(
                reply_id=0,
                group_id=group_id,
                generation_id=generation_id,
                member_id=member_id,
                instance_id=instance_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=tuple((assignments or {}).items()),
            )
        )

    def heartbeat(
        self, generation_id: int, member_id: str, *, instance_id: str | None = None, group_id: str = GROUP
    ) -> ErrorCode:
        request = Heartbeat(
            reply_id=0,
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            instance_id=instance_id,
        )
        return self.replies[self.ask(request)].error

    def leave(self, *leavers: tuple[str, str | None], group_id: str = GROUP, reason: str = "") -> tuple[ErrorCode, ...]:
        request = LeaveGroup(
            reply_id=0,
            group_id=group_id,
            leavers=tuple(Leaver(member_id=m, instance_id=i, reason=reason) for m, i in leavers),
        )
        return self.replies[self.ask(request)].members

    def commit(
        self,
        offset: int,
        *,
        generation_id: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
        group_id: str = GROUP,
        producer: TxnProducer | None = None,
        verification: int | None = None,
    ) -> int:
        wanted = CommitOffset(
            partition=TopicPartition(topic, partition), offset=offset, leader_epoch=7, metadata=metadata
        )
        return self.ask(
            CommitOffsets(
                reply_id=0,
                group_id=group_id,
                generation_id=generation_id,
                member_id=member_id,
                instance_id=instance_id,
                offsets=(wanted,),
                producer=producer,
                verification=verification,
            )
        )

    def txn_commit(self, offset: int, producer: TxnProducer, **kwargs: Any) -> int:
        """Commits like `commit`, in a transaction that its coordinator has verified."""
        verification = self.rules.offsets.transactions.begin_verification(producer)
        return self.commit(offset, producer=producer, verification=verification, **kwargs)

    def end_transaction(self, producer: TxnProducer, *, committed: bool) -> int:
        """Writes the end marker with the producer's next epoch, as after EndTxn."""
        marker = TxnMarker(committed, coordinator_epoch=1, transaction_version=2)
        return self.ask(
            EndTransaction(reply_id=0, producer=TxnProducer(producer.producer_id, producer.epoch + 1), marker=marker)
        )

    def unstable(self, *partitions: int, group_id: str = GROUP) -> list[int]:
        wanted = [TopicPartition("t", partition) for partition in partitions] or None
        return [each.partition for each in self.rules.offsets.unstable(group_id, wanted)]

    def delete_offsets(self, *partitions: tuple[str, int], group_id: str = GROUP) -> int:
        return self.ask(
            DeleteOffsets(
                reply_id=0,
                group_id=group_id,
                partitions=tuple(TopicPartition(*partition) for partition in partitions),
            )
        )

    # The new protocol (KIP-848)

    def topics_are(self, **partition_counts: int) -> None:
        """Sets the cluster's topics. A topic whose count changes to None and back becomes a different topic."""
        former = self.topics.by_name
        version = self.topics.version + 1
        by_name = {name: TopicInfo(_topic_id(name, former, version), count) for name, count in partition_counts.items()}
        created = dict.fromkeys(by_name.keys() - former.keys(), version)
        self.topics = FixedTopics(version, by_name, {**self.topics.created, **created})

    def holds_are(self, **topics: tuple[str, ...]) -> None:
        """Sets the groups that each topic names in `retention.hold.groups`."""
        holds: dict[str, dict[str, bytes]] = {}
        for topic, group_ids in topics.items():
            for group_id in group_ids:
                holds.setdefault(group_id, {})[topic] = self.topics.by_name[topic].topic_id
        self.topics = dataclasses.replace(self.topics, version=self.topics.version + 1, holds=holds)
        self.step(HoldsChanged())

    def consumer_heartbeat(
        self,
        member_id: str,
        member_epoch: int,
        *,
        instance_id: str | None = None,
        topics: tuple[str, ...] | None = None,
        regex: str | None = None,
        owned: Any = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
        group_id: str = GROUP,
    ) -> int:
        return self.ask(
            ConsumerGroupHeartbeat(
                reply_id=0,
                group_id=group_id,
                member_id=member_id,
                member_epoch=member_epoch,
                instance_id=instance_id,
                rack_id=None,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=topics,
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                owned=owned,
                client_id="client",
                client_host="/127.0.0.1",
                topics=self.topics,
            )
        )

    def consumer(self, member_id: str, **kwargs: Any) -> ConsumerMember:
        """Returns a member that behaves like a client library's. It joins with its first heartbeat."""
        return ConsumerMember(self, member_id, **kwargs)

    def classic_consumer(self, **kwargs: Any) -> ClassicConsumer:
        """Returns a member of the classic protocol that behaves like a client library's."""
        return ClassicConsumer(self, **kwargs)

    def classic_group(self, *members: ClassicConsumer) -> None:
        """Makes a Stable classic group of these members, the first of which leads. Each topic's partitions go to the
        members in turn."""
        for member in members:
            member.send_join()
        self.advance(DELAY_MS * (len(members) + 1))
        assignments: dict[str, dict[str, list[int]]] = {member.joined().member_id: {} for member in members}
        ids = itertools.cycle(assignments)
        for topic, info in self.topics.by_name.items():
            for number in range(info.partition_count):
                assignments[next(ids)].setdefault(topic, []).append(number)
        encoded = {member_id: encode_assignment(owned, 1) for member_id, owned in assignments.items()}
        members[0].send_sync(encoded)
        for member in members[1:]:
            member.send_sync()
        for member in members:
            assert member.synced() is ErrorCode.NONE
        assert self.state() == "Stable"

    def settle(self, *members: ConsumerMember, rounds: int = 10) -> None:
        """Lets each member send heartbeats in turn, for as many rounds as a rebalance can need."""
        for _ in range(rounds):
            for member in members:
                member.heartbeat()

    def delete_groups(self, *group_ids: str) -> int:
        return self.ask(DeleteGroups(reply_id=0, group_ids=group_ids))

    # States that most tests begin with

    def state(self, group_id: str = GROUP) -> str:
        return self.rules.classic.groups[group_id].state.value

    def offset(self, topic: str = "t", partition: int = 0, group_id: str = GROUP) -> int:
        (fetched,) = self.rules.growth.fetch(group_id, [TopicPartition(topic, partition)])
        return fetched.offset

    def joined(self, reply_id: int) -> JoinReply:
        reply = self.replies[reply_id]
        assert isinstance(reply, JoinReply)
        return reply

    def synced(self, reply_id: int) -> SyncReply:
        reply = self.replies[reply_id]
        assert isinstance(reply, SyncReply)
        return reply

    def new_member_id(self, **kwargs: Any) -> str:
        """Sends the first JoinGroup of KIP-394. Returns the member id."""
        reply = self.joined(self.join(**kwargs))
        assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
        return reply.member_id

    def stable(self, count: int = 1, *, instances: tuple[str, ...] = (), **kwargs: Any) -> list[str]:
        """Makes a Stable group of `count` dynamic members and one static member per instance.

        Returns their ids, leader first.
        """
        ids = [self.new_member_id(**kwargs) for _ in range(count)]
        waiting = [self.join(member_id, **kwargs) for member_id in ids]
        waiting += [self.join(instance_id=instance, **kwargs) for instance in instances]
        self.advance(DELAY_MS * (len(waiting) + 1))
        replies = [self.joined(reply_id) for reply_id in waiting]
        members = [reply.member_id for reply in replies]
        leader = replies[0].leader
        generation_id = replies[0].generation_id
        for member_id in members:
            if member_id != leader:
                self.sync(generation_id, member_id)
        self.sync(generation_id, leader, {member_id: member_id.encode() for member_id in members})
        assert self.state() == "Stable"
        return sorted(members, key=lambda member_id: member_id != leader)


def _topic_id(name: str, former: Any, version: int) -> bytes:
    return former[name].topic_id if name in former else f"{name}-{version}".encode().rjust(16, b"0")


class ClassicConsumer:
    """A consumer of the classic protocol. It revokes all its partitions before it joins, unless it is cooperative."""

    def __init__(
        self,
        driver: ShardDriver,
        *,
        topics: tuple[str, ...] = ("t",),
        instance_id: str | None = None,
        protocol: str = "range",
        is_cooperative: bool = False,
    ) -> None:
        self.driver = driver
        self.topics = topics
        self.instance_id = instance_id
        self.protocol = protocol
        self.is_cooperative = is_cooperative
        self.member_id = ""
        self.generation_id = -1
        self.owned: set[tuple[str, int]] = set()
        self._asked = 0

    def rejoin(self) -> ErrorCode:
        """Joins and asks for the assignment, until the coordinator has no more to tell. Returns the last error."""
        error = self.join()
        return error if error is not ErrorCode.NONE else self.sync()

    def join(self) -> ErrorCode:
        self.send_join()
        return self.joined().error

    def sync(self) -> ErrorCode:
        self.send_sync()
        return self.synced()

    def heartbeat(self) -> ErrorCode:
        return self.driver.heartbeat(self.generation_id, self.member_id, instance_id=self.instance_id)

    def leave(self) -> ErrorCode:
        (error,) = self.driver.leave((self.member_id, self.instance_id))
        return error

    def act(self) -> ErrorCode:
        """Sends a heartbeat, and joins again if the coordinator asks for it."""
        error = self.heartbeat()
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            return self.rejoin()
        return error

    def send_join(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        metadata = subscription(*self.topics) if not self.is_cooperative else owning(self.topics, self.owned)
        self._asked = self.driver.join(
            self.member_id, instance_id=self.instance_id, protocols=((self.protocol, metadata),)
        )
        reply = self.driver.replies.get(self._asked)
        if isinstance(reply, JoinReply) and reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self.send_join()

    def joined(self) -> JoinReply:
        reply = self.driver.joined(self._asked)
        if reply.error is ErrorCode.NONE:
            self.member_id, self.generation_id = reply.member_id, reply.generation_id
        return reply

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        self._asked = self.driver.sync(
            self.generation_id, self.member_id, assignments, instance_id=self.instance_id, protocol_name=self.protocol
        )

    def synced(self) -> ErrorCode:
        reply = self.driver.synced(self._asked)
        if reply.error is ErrorCode.NONE:
            self.owned = set(read_assignment(reply.assignment).partitions)
        return reply.error


class ConsumerMember:
    """A member that revokes unassigned partitions at once, and reports this in its next heartbeat."""

    def __init__(
        self,
        driver: ShardDriver,
        member_id: str,
        *,
        topics: tuple[str, ...] | None = ("t",),
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        group_id: str = GROUP,
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.topics = topics
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.group_id = group_id
        self.epoch = 0
        self.owned: set[tuple[str, int]] = set()
        self._ids: dict[str, bytes] = {}

    def heartbeat(self, *, owned: Any = None) -> ConsumerGroupHeartbeatReply:
        """Sends a heartbeat, with all fields if the member joins, and adopts the assignment in the reply."""
        reply = self.send(owned=owned)
        if reply.error is ErrorCode.NONE:
            self.take(reply)
        return reply

    def send(self, *, owned: Any = None) -> ConsumerGroupHeartbeatReply:
        joins = self.epoch == 0
        reply_id = self.driver.consumer_heartbeat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            topics=self.topics if joins else None,
            regex=self.regex if joins else None,
            assignor=self.assignor,
            owned=self._partitions() if owned is None else owned,
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            group_id=self.group_id,
        )
        reply = self.driver.replies[reply_id]
        assert isinstance(reply, ConsumerGroupHeartbeatReply)
        return reply

    def take(self, reply: ConsumerGroupHeartbeatReply) -> None:
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self._ids |= {one.topic: one.topic_id for one in reply.assignment}
            self.owned = {(one.topic, number) for one in reply.assignment for number in one.partitions}

    def leave(self, epoch: int = -1) -> ErrorCode:
        reply_id = self.driver.consumer_heartbeat(
            self.member_id, epoch, instance_id=self.instance_id, group_id=self.group_id
        )
        return self.driver.replies[reply_id].error

    def _partitions(self) -> frozenset[TopicIdPartition]:
        return frozenset(TopicIdPartition(self._ids[topic], number) for topic, number in self.owned)


@pytest.fixture
def make_driver() -> type[ShardDriver]:
    return ShardDriver


@pytest.fixture
def driver() -> ShardDriver:
    return ShardDriver()
