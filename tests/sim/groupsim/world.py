"""The shard, its log, the topics, the clients, the faults, and the properties that must always hold.

    one owner       a member gets no partition that another one believes to own, unless that one has been expelled
    commits         are accepted for a partition from its owner only, or while it has no owner
    epochs          of the group and of each member only grow
    nothing is lost the state that the log's records describe is the shard's, also for its next owner
    convergence     after the faults, the group becomes Stable, everything is read, every member has its partitions

The invariants of the shard are checked too, after every step.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import Any

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.group_shard.refusals import Reply
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import FixedTopics, TopicInfo
from klamm_coordinator.offsets.messages import CommitOffset, CommitOffsets
from klamm_coordinator.records import schemas
from klamm_coordinator.records.consumer_group_schemas import MemberKey, TopicIdPartition
from klamm_coordinator.records.schemas import GroupRecord, OffsetCommitKey
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.timers import Now
from tests.sim.groupsim.client import Client
from tests.sim.groupsim.options import Options

TICK_MS = 400
NAMES = ("t", "u", "v1", "v2")
SETTINGS = GroupSettings(consumer_session_timeout_ms=12_000, consumer_heartbeat_interval_ms=1_000)


class World:
    """`run` it."""

    group_id = "g"

    def __init__(self, seed: int, trace: deque[str] | None) -> None:
        self.rng = random.Random(seed)
        self.options = Options.draw(self.rng)
        self.trace = trace
        self.now_ms = 0
        self.event_count = 0
        self.commit_count = 0
        self.replies: dict[int, Reply] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.unsent: deque[LogWrite[GroupRecord]] = deque()
        self.topics = FixedTopics(1, {name: self._new_topic(name) for name in NAMES})
        self._next_id = 0
        self._lost: set[int] = set()
        self._group_epoch = 0
        self._member_epochs: dict[str, int] = {}
        self.shard = ShardRuntime(GroupRules(SETTINGS, topics=lambda: self.topics), SETTINGS, self.rng)
        self._take(self.shard.start(self._now))
        self.clients = [
            self.make_client(number, f"i{number}" if number < self.options.static_count else None)
            for number in range(self.options.client_count)
        ]

    def make_client(self, number: int, instance_id: str | None) -> Client:
        """Returns the client of one slot."""
        return Client(self, number, instance_id)

    def run(self) -> None:
        """Runs the whole simulation. Raises AssertionError."""
        for _ in range(self.options.step_count):
            self._one_event()
        self._heal()

    # The actions of clients

    def ask(self, request: Any, *, lost: bool = False) -> int:
        """Sends a request and returns the id of its reply. The request or the reply may be lost."""
        self._next_id += 1
        if self._happens(self.options.request_loss):
            return self._next_id
        if lost or self._happens(self.options.reply_loss):
            self._lost.add(self._next_id)
        self._step(replace(request, reply_id=self._next_id))
        return self._next_id

    def check_free(self, taker: Client, partition: TopicIdPartition) -> None:
        """Checks that no other member believes to own the partition."""
        for other in self.clients:
            has_it = partition in other.owned and not other.is_expelled and other is not taker
            assert not has_it or taker.is_expelled, f"{taker.member_id} takes {partition} of {other.member_id}"

    # Events and faults

    def _one_event(self) -> None:
        rng, options = self.rng, self.options
        self.event_count += 1
        self._pass_time(TICK_MS)
        client = rng.choice(self.clients)
        if self._happens(options.failover):
            self._fail_over()
        elif self._happens(options.restart):
            client.restart()
        elif self._happens(options.leave):
            client.leave()
        elif self._happens(options.resubscribe):
            client.resubscribe()
        elif self._happens(options.topics_change):
            self._change_topics()
        elif self._happens(options.silence):
            self._pass_time(SETTINGS.consumer_session_timeout_ms)
        elif client.last_join is not None and self._happens(options.duplicate_join):
            self.ask(client.last_join, lost=True)
        elif self._happens(0.1):
            self._commit(client)
        else:
            client.act(rng, options.slow_revocation)
        while self.unsent and not self._happens(options.slow_log):
            self._decide()

    def _decide(self) -> None:
        write = self.unsent.popleft()
        if self._happens(self.options.write_failure):
            self._step(WriteFailed(write_id=write.write_id, error=ErrorCode.NOT_ENOUGH_REPLICAS))
        else:
            self._append(write)
            self._step(WriteAppended(write_id=write.write_id))

    def _fail_over(self) -> None:
        """Another coordinator loads the log, in which some of what was not acknowledged may be."""
        for _ in range(self.rng.randint(0, len(self.unsent))):
            self._append(self.unsent.popleft())
        self.unsent.clear()
        self._say("fail-over")
        self.shard = ShardRuntime(GroupRules(SETTINGS, topics=lambda: self.topics), SETTINGS, self.rng)
        self._load(self.rules.state)
        self._take(self.shard.start(self._now))

    def _commit(self, client: Client) -> None:
        """The client commits an offset of a partition that it believes to have."""
        if not client.owned or client.epoch <= 0:
            return
        partition = self.rng.choice(sorted(client.owned))
        self._next_id += 1
        self._lost.add(self._next_id)
        offset = CommitOffset(
            partition=TopicPartition(self._name_of(partition), partition.partition),
            offset=self._next_id,
            leader_epoch=0,
            metadata="",
        )
        write_count = len(self.unsent)
        self._step(
            CommitOffsets(
                reply_id=self._next_id,
                group_id=self.group_id,
                generation_id=client.epoch,
                member_id=client.member_id,
                instance_id=client.instance_id,
                offsets=(offset,),
            )
        )
        is_taken = any(isinstance(write.records[0].key, OffsetCommitKey) for write in list(self.unsent)[write_count:])
        group = self.rules.state.consumer_groups.get(self.group_id)
        owner = None if group is None else group.owners.get(partition)
        self.commit_count += is_taken
        assert not is_taken or owner in (None, client.member_id), f"{client.member_id} commits {partition} of {owner}"

    def _name_of(self, partition: TopicIdPartition) -> str:
        """Ids are made from names."""
        return partition.topic_id.decode().partition("-")[0]

    def _change_topics(self) -> None:
        name = self.rng.choice(NAMES)
        by_name, created = dict(self.topics.by_name), dict(self.topics.created)
        former = by_name.pop(name, None)
        if former is None:
            by_name[name] = self._new_topic(name)
            created[name] = self.topics.version + 1
        elif self.rng.random() < 0.6:
            by_name[name] = former._replace(partition_count=former.partition_count + 1)
        self.topics = FixedTopics(self.topics.version + 1, by_name, created)

    def _new_topic(self, name: str) -> TopicInfo:
        return TopicInfo(f"{name}-{self.rng.randrange(10**9)}".ljust(16, ".").encode()[:16], self.rng.randint(1, 5))

    def _heal(self) -> None:
        """Ends all faults. After a while, every member must have its partitions."""
        self.options = replace(
            self.options, request_loss=0, reply_loss=0, write_failure=0, slow_log=0, slow_revocation=0
        )
        for _ in range(200):
            for client in self.clients:
                self._pass_time(TICK_MS // len(self.clients))
                client.act(self.rng, 0)
                while self.unsent:
                    self._decide()
        self._check_converged()

    def _check_converged(self) -> None:
        group = self.rules.state.consumer_groups[self.group_id]
        assert group.state == "Stable", (group.state, group.currents)
        assert sorted(group.members) == sorted(client.member_id for client in self.clients), list(group.members)
        wanted = {
            TopicIdPartition(info.topic_id, number)
            for name in group.subscribed_topics()
            if (info := self.topics.get(name)) is not None
            for number in range(info.partition_count)
        }
        assert set(group.owners) == wanted, (set(group.owners) ^ wanted, "are not as subscribed")
        for client in self.clients:
            assert client.owned == group.current(client.member_id).assigned, client.member_id
        replayed = GroupShardState()
        self._load(replayed)
        assert replayed == self.rules.state, "the log says something else"

    # The shard

    @property
    def rules(self) -> GroupRules:
        return self.shard.rules

    @property
    def _now(self) -> Now:
        return Now(self.now_ms, 1_700_000_000_000 + self.now_ms)

    def _pass_time(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._step(TimePassed())
        self.now_ms = end_ms

    def _step(self, event: Any) -> None:
        self._say(event)
        self._take(self.shard.step(event, self._now))

    def _take(self, effects: ShardEffects[Any]) -> None:
        for reply_id, reply in effects.replies:
            if reply_id in self._lost:
                self._lost.discard(reply_id)
            else:
                self.replies[reply_id] = reply
        self.unsent.extend(effects.writes)
        self.shard.check_invariants()
        self._check_epochs()

    def _check_epochs(self) -> None:
        group = self.rules.state.consumer_groups.get(self.group_id)
        if group is None:
            self._member_epochs = {}
            return
        assert group.epoch >= self._group_epoch, f"epoch {self._group_epoch} -> {group.epoch}"
        self._group_epoch = group.epoch
        for member_id, current in group.currents.items():
            former = self._member_epochs.get(member_id, 0)
            has_left = current.member_epoch < 0
            assert current.member_epoch >= former or has_left, f"{member_id}: epoch {former} -> {current.member_epoch}"
        self._member_epochs = {member_id: current.member_epoch for member_id, current in group.currents.items()}

    # The log

    def _append(self, write: LogWrite[GroupRecord]) -> None:
        expelled = {
            record.key.member_id
            for record in write.records
            if isinstance(record.key, MemberKey) and record.value is None
        }
        for client in self.clients:
            client.is_expelled |= client.member_id in expelled
        self.log += [(schemas.encode_key(key), schemas.encode_value(value)) for key, value in write.records]

    def _load(self, state: GroupShardState) -> None:
        for key, value in self.log:
            state.replay(_decoded(key, value))

    def _happens(self, chance: float) -> bool:
        return self.rng.random() < chance

    def _say(self, what: Any) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms} {what}")


def _decoded(encoded_key: bytes, encoded: bytes | None) -> GroupRecord:
    key = schemas.decode_key(encoded_key)
    assert key is not None
    return GroupRecord(key, None if encoded is None else schemas.decode_value(key, encoded))
