"""The rules of a shard of groups: classic groups, consumer groups, and offsets.

There are two kinds of state. The durable state (`state`) changes only by `replay` of acknowledged records. The other
state (in `classic`, `consumers` and `offsets`) changes with events. It is lost with the process, and `start` rebuilds
it from the durable state. The members notice only a moment without answers.

Until a write is acknowledged, only later writes may depend on it. Readers see the durable state.

Invariants: those of both kinds of groups; every group that is stored or has offsets is of one kind, never of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, assert_never

from klamm.errors import ErrorCode
from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm_coordinator.classic.follow_ups import AssignmentStored, StaticMemberStored
from klamm_coordinator.classic.groups import ClassicGroups
from klamm_coordinator.classic.messages import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from klamm_coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE
from klamm_coordinator.classic.timers import JoinTimer, SessionTimer, SyncTimer
from klamm_coordinator.group_shard import deletion
from klamm_coordinator.group_shard.deletion import GroupsDeleted, OffsetExpiryTimer
from klamm_coordinator.group_shard.events import (
    ConfirmOwner,
    ConfirmOwnerReply,
    ForgetLosses,
    GroupEvent,
    HoldsChanged,
    LogStartsFound,
    TopicsDeleted,
)
from klamm_coordinator.group_shard.growth import Growth
from klamm_coordinator.group_shard.losses import Losses
from klamm_coordinator.group_shard.refusals import Reply, refused, requester_error
from klamm_coordinator.group_shard.releases import Releases
from klamm_coordinator.group_shard.replayer import GroupReplayer
from klamm_coordinator.group_shard.shard_topic import OFFSETS
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.groups.group_context import GroupContext, NoteFailure
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.sizes import record_bytes
from klamm_coordinator.groups.topics import NO_TOPICS, HeldTopics, Topics
from klamm_coordinator.kip848.groups import ConsumerGroups
from klamm_coordinator.kip848.messages import ConsumerGroupHeartbeat
from klamm_coordinator.kip848.timers import (
    ConsumerJoinTimer,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    ConsumerSyncTimer,
    ConsumerTimer,
)
from klamm_coordinator.offsets.messages import CommitOffsets, DeleteGroups, DeleteOffsets, EndTransaction
from klamm_coordinator.offsets.rules import OffsetRules
from klamm_coordinator.records.consumer_group_schemas import ConsumerGroupKey
from klamm_coordinator.records.group_topic_schema import GroupTopicKey
from klamm_coordinator.records.lost_records_schema import LostRecordsKey
from klamm_coordinator.records.released_hold_schema import ReleasedHoldKey
from klamm_coordinator.records.schemas import GroupRecord, OffsetCommitKey
from klamm_coordinator.runtime.accounts import Accounts
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.timers import Timers
from klamm_coordinator.runtime.write_queue import PendingWrite
from klamm_server.runtime.byte_shares import ByteShares, unbounded

TimerKey = SessionTimer | JoinTimer | SyncTimer | ConsumerTimer | OffsetExpiryTimer
Then = AssignmentStored | StaticMemberStored | GroupsDeleted | NoteFailure

CLASSIC, CONSUMER = "classic", "consumer"
"""Kafka's names of the types of groups."""


class GroupSummary(NamedTuple):
    """One group in the answer to ListGroups."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str


class GroupRules:
    """The rules of a shard of groups, for a `ShardRuntime`."""

    def __init__(
        self,
        settings: GroupSettings,
        shares: ByteShares | None = None,
        topics: Callable[[], HeldTopics] = lambda: NO_TOPICS,
    ) -> None:
        """`shares` bound the memory of this shard's groups together with those of other shards. `topics` returns the
        topics that the coordinator knows now."""
        self._accounts = accounts = Accounts(unbounded() if shares is None else shares)
        self.state = state = GroupShardState(accounts)
        has_offsets = state.offsets.has_any
        self.classic = ClassicGroups(state.groups, state.consumer_groups, has_offsets, settings, accounts)
        self.consumers = ConsumerGroups(state.consumer_groups, self.classic, has_offsets, settings, accounts)
        self.offsets = OffsetRules(state.offsets, state.topics, self.classic, self.consumers, settings, accounts)
        self.growth = Growth(state, self.classic, settings, topics)
        self.losses = Losses(state)
        self.releases = Releases(state, self.classic, self.consumers, topics)
        self.write_timeout_ms = settings.commit_timeout_ms
        self._settings = settings
        self._to_expire: list[str] = []
        """The ids of groups whose offsets have not been checked for expiry yet. The next group to check is the last."""
        self._in_flight: dict[int, tuple[str, int]] = {}
        """The group of each undecided write with data, and the bytes of its records."""

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for an earlier write of their group."""
        return self.consumers.waiting_count

    def list_groups(self) -> list[GroupSummary]:
        """Returns a summary of every group. Safe to call from another thread."""
        listed = [
            GroupSummary(group.group_id, CLASSIC, group.protocol_type or "", group.state.value)
            for group in list(self.classic.groups.values())
        ]
        listed += [
            GroupSummary(group.group_id, CONSUMER, CONSUMER_PROTOCOL_TYPE, group.state)
            for group in list(self.state.consumer_groups.values())
        ]
        return listed

    def has(self, group_id: str) -> bool:
        """Returns True if the group exists."""
        return group_id in self.classic.groups or self.consumers.has(group_id)

    def generations(self) -> list[tuple[str, int]]:
        """Returns the generation of every classic group, and the group epoch of every consumer group, by group id."""
        found = [(group.group_id, group.generation_id) for group in self.classic.groups.values()]
        return [*found, *((group.group_id, group.epoch) for group in self.state.consumer_groups.values())]

    def partitions_of(self, group_id: str, topics: Topics) -> set[TopicPartition]:
        """Returns all partitions of the topics that the group reads, or in which it has offsets."""
        found = set(self.state.offsets.of_group(group_id))
        for name in {*self.growth.topics_of(group_id), *(partition.topic for partition in found)}:
            info = topics.get(name)
            if info is not None:
                found.update(TopicPartition(name, number) for number in range(info.partition_count))
        return found

    # Loading

    def replayer(self) -> GroupReplayer:
        """Returns an object that loads the shard's state from its log."""
        return GroupReplayer(self.state)

    def summary(self) -> str:
        """Returns the numbers of groups and offsets, for the program's log."""
        groups = f"groups={len(self.state.groups)} consumer_groups={len(self.state.consumer_groups)}"
        return f"{groups} offsets={self.state.offsets.count()}"

    def start(self, context: GroupContext) -> None:
        """Starts the groups' sessions and the shard's timers after all records were loaded."""
        for group_id in self.state.group_ids():
            if group_id not in self.state.consumer_groups:
                self.classic.start(group_id, context)
        self.consumers.start(context)
        self.offsets.start()
        self.growth.start(context)
        self.losses.start(context)
        self.releases.start(context)
        context.schedule(OffsetExpiryTimer(), self._settings.offsets_retention_check_interval_ms)

    def close(self) -> None:
        """Gives back the memory of all groups, because the coordinator drops the shard."""
        self._accounts.close()

    # Events

    def passes_when_full(self, request: Any) -> bool:
        """Returns True for a classic heartbeat. Otherwise, members would lose their sessions while the log is slow."""
        return isinstance(request, Heartbeat)

    def on_refused(self, request: Any, context: GroupContext) -> None:
        """Continues the session of a member whose heartbeat is refused, because the member is alive."""
        if isinstance(request, ConsumerGroupHeartbeat):
            self.consumers.hear(request, context)

    def handle(self, event: GroupEvent, context: GroupContext) -> None:
        """Passes a request or another event to the rules that handle it."""
        match event:
            case JoinGroup() | LeaveGroup() | SyncGroup() | Heartbeat():
                self._handle_classic(event, context)
            case ConsumerGroupHeartbeat():
                self.consumers.ask(event, context)
            case CommitOffsets():
                self.offsets.commit(event, context)
            case EndTransaction():
                self.offsets.end_transaction(event, context)
            case DeleteOffsets():
                self.offsets.delete(event, context)
            case DeleteGroups():
                deletion.handle_delete_groups(event, self.classic, self.consumers, self.state, self.releases, context)
            case ForgetLosses():
                self.losses.forget(event, context)
            case HoldsChanged():
                self.releases.on_holds_changed(context)
            case LogStartsFound():
                self.losses.count(event.found, context)
            case ConfirmOwner():
                context.append((OFFSETS.claim,), replies=((event.reply_id, ConfirmOwnerReply()),))
            case TopicsDeleted():
                deletion.delete_offsets_of_topics(event.topics, self.classic.groups, self.state, context)
            case _:
                assert_never(event)

    def _handle_classic(self, event: JoinGroup | LeaveGroup | SyncGroup | Heartbeat, context: GroupContext) -> None:
        """Handles a request of the classic protocol, whose member may be in a group of either type."""
        group_id = event.group_id
        match event:
            case JoinGroup() | LeaveGroup() if self.consumers.has(group_id):
                self.consumers.ask(event, context)
            case SyncGroup() if self.consumers.is_converting(group_id):
                self.consumers.ask(event, context)
            case SyncGroup() | Heartbeat() if self.consumers.get(group_id) is not None:
                self.consumers.answer(event, context)
            case JoinGroup():
                self.classic.join(event, context)
            case LeaveGroup():
                self.classic.leave(event, context)
            case SyncGroup():
                self.classic.sync(event, context)
            case Heartbeat():
                self.classic.heartbeat(event, context)

    def on_timer(self, timer: TimerKey, context: GroupContext) -> None:
        """Passes a due timer to the rules that set it."""
        match timer:
            case SessionTimer() | JoinTimer() | SyncTimer() if self.consumers.is_converting(timer.group_id):
                context.schedule(timer, self.write_timeout_ms)  # until the write that converts the group is decided
            case SessionTimer() | JoinTimer() | SyncTimer():
                self.classic.on_timer(timer, context)
            case ConsumerSessionTimer() | ConsumerRebalanceTimer() | ConsumerJoinTimer() | ConsumerSyncTimer():
                self.consumers.on_timer(timer, context)
            case OffsetExpiryTimer():
                self._expire(context)
            case _:
                assert_never(timer)

    def _expire(self, context: GroupContext) -> None:
        """Deletes expired offsets of as many groups as one turn may check. The next turns check the other groups."""
        if not self._to_expire:
            self._to_expire = sorted({*self.classic.groups, *self.state.consumer_groups}, reverse=True)
        deletion.expire(self._to_expire, self.classic, self.consumers, self.state, context)
        delay_ms = 1 if self._to_expire else self._settings.offsets_retention_check_interval_ms
        context.schedule(OffsetExpiryTimer(), delay_ms)

    # Writes

    def begin_write(self, write: LogWrite[GroupRecord]) -> None:
        """Notes that the offsets in the write are in flight, and counts the memory that its records may take."""
        in_flight_bytes = self.state.offsets.begin(write.records, transactional=write.producer is not None)
        self.state.topics.begin(write.records)
        self.state.lost.begin(write.records)
        if not in_flight_bytes and write.records and not isinstance(write.records[0].key, OffsetCommitKey):
            in_flight_bytes = sum(map(record_bytes, write.records))
        if in_flight_bytes:
            group_id = write.records[-1].key.group_id
            self._in_flight[write.write_id] = group_id, in_flight_bytes
            self._accounts.add(group_id, in_flight_bytes)

    def end_write(self, write: LogWrite[GroupRecord], *, is_appended: bool) -> None:
        """Notes that the write's offsets are no longer in flight. If the write was appended, applies its records and
        marker."""
        self._end_write(write, is_appended=is_appended)
        if write.write_id in self._in_flight:
            group_id, in_flight_bytes = self._in_flight.pop(write.write_id)
            self._accounts.add(group_id, -in_flight_bytes)

    def _end_write(self, write: LogWrite[GroupRecord], *, is_appended: bool) -> None:
        self.state.offsets.end(write.records, transactional=write.producer is not None)
        self.state.topics.end(write.records)
        self.state.lost.end(write.records)
        if not is_appended:
            self.losses.heed_failure(write.records)
            self.releases.heed_failure(write.records)
            return
        producer_id = NO_PRODUCER_ID if write.producer is None else write.producer.producer_id
        for record in write.records:
            assert record.value is None or self._knows(record), record
            self.state.replay(record, producer_id)
            if producer_id < 0:
                self.growth.heed(record)
                self.losses.heed(record)
                self.releases.heed(record.key.group_id)
        if write.marker is not None:
            for group_id in self.state.end_transaction(producer_id, committed=write.marker.committed):
                self.classic.forget_if_unused(group_id)
                self.growth.heed_commits(group_id)
                self.releases.heed(group_id)

    def _knows(self, record: GroupRecord) -> bool:
        """Returns True if the record belongs to a group that exists, or creates one. Topics and losses of a group may
        be stored after its deletion. They are then deleted as well. Released holds belong to groups that are gone."""
        independent = GroupTopicKey | LostRecordsKey | ReleasedHoldKey
        return isinstance(record.key, independent) or self.has(record.key.group_id)

    def refused(self, reply: Reply, broker_error: ErrorCode) -> Reply:
        """Returns the answer instead of `reply`, because the write failed or takes too long."""
        return refused(reply, broker_error)

    def follow(self, then: Then, broker_error: ErrorCode, context: GroupContext) -> None:
        """Carries out `then` after a write was appended, has failed, or takes too long."""
        error = requester_error(broker_error)
        match then:
            case AssignmentStored() | StaticMemberStored():
                self.classic.follow(then, error, context)
            case GroupsDeleted():
                deletion.on_groups_deleted(then, error, self.classic, self.state, context)
                for group_id in then.group_ids:
                    self.releases.heed(group_id)
            case NoteFailure():
                if broker_error is not ErrorCode.NONE:
                    context.note(f"could not append a record, error={broker_error.name} what={then.what}")
            case _:
                assert_never(then)

    def resume(self, pending: PendingWrite[GroupRecord], broker_error: ErrorCode, context: GroupContext) -> None:
        """Continues the requests that waited for a consumer group's write, and removes classic groups that are
        unused."""
        records = pending.write.records
        # A write that changes the type of a group begins or ends with the record of a classic group.
        if records and (isinstance(records[0].key, ConsumerGroupKey) or isinstance(records[-1].key, ConsumerGroupKey)):
            is_stored = broker_error is ErrorCode.NONE
            self.consumers.decided(records[-1].key.group_id, records, stored=is_stored, context=context)
        for group_id in {record.key.group_id for record in records}:
            self.classic.forget_if_unused(group_id)
        self.growth.update(context)
        self.losses.update(context)
        self.releases.update(context)

    def check_invariants(self, timers: Timers[TimerKey], writes: Collection[LogWrite[GroupRecord]]) -> None:
        """Asserts the invariants that the module's docstring lists."""
        self.classic.check_invariants(timers)
        self.consumers.check_invariants(timers)
        for group_id in self.state.group_ids():
            assert (group_id in self.classic.groups) != (group_id in self.state.consumer_groups), group_id
        self._check_accounts()

    def _check_accounts(self) -> None:
        """Asserts that the accounts have the size of each group, counted one by one."""
        sizes = Counter(self.state.sizes())
        for group_id, in_flight_bytes in self._in_flight.values():
            sizes[group_id] += in_flight_bytes
        for group_id, group in self.classic.groups.items():
            sizes[group_id] += group.size_bytes
        self._accounts.check_invariants({group_id: size_bytes for group_id, size_bytes in sizes.items() if size_bytes})
