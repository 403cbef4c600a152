"""One shard as a pure state machine: `step(event, now) -> effects`.

Two kinds of state. What is promised (`state`) changes only by `replay` of acknowledged records. What is
going on (`groups`: who is joining, whose session lasts until when) is led by events, is rebuilt from the former at
`start`, and is lost with the process: the members notice nothing but a moment without answers.

A write's records are appended by the shell; its reply is parked until they are acknowledged. Until then only
later writes may take notice of it, readers see what is durable. If the append fails, nothing has happened. If it
takes longer than `offsets.commit.timeout.ms`, its requester is told to try again, and the write stays in its place:
it may be in the log, so it must be decided before anything after it.

Invariants: those of every group; every group that is stored or has offsets is in `groups`, or is one of the new
protocol (`consumers`), never both; every member that has no parked request has a session timer; timers belong to groups
that exist.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from klamm.errors import ErrorCode
from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm_coordinator.consumer_group.groups import ConsumerGroups, reply_after
from klamm_coordinator.consumer_group.messages import ConsumerGroupDescription, ConsumerGroupHeartbeat
from klamm_coordinator.effects import (
    AssignmentStored,
    ConsumerGroupStored,
    Effects,
    GroupsDeleted,
    NothingFollows,
    ReplyWhenStored,
    StaticMemberStored,
    Then,
)
from klamm_coordinator.group import rebalance, session
from klamm_coordinator.group.group import Group
from klamm_coordinator.group.join import handle_join, on_static_member_stored
from klamm_coordinator.group.messages import (
    GroupDescription,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    SyncGroup,
    SyncReply,
)
from klamm_coordinator.group.states import GroupState
from klamm_coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from klamm_coordinator.group.sync import handle_sync, on_assignment_stored
from klamm_coordinator.offsets import rules
from klamm_coordinator.offsets.messages import (
    CommitOffsets,
    CommitReply,
    DeleteGroups,
    DeleteOffsets,
    DeleteOffsetsReply,
    EndTransaction,
    EndTransactionReply,
    FetchedOffset,
)
from klamm_coordinator.records.consumer_group_schemas import ConsumerGroupKey
from klamm_coordinator.records.schemas import Record
from klamm_coordinator.settings import GroupSettings
from klamm_coordinator.shard import deletion
from klamm_coordinator.shard.append_errors import requester_error
from klamm_coordinator.shard.events import Event, Request, TimePassed, TopicsDeleted, WriteAppended, WriteFailed
from klamm_coordinator.shard.state import ShardState
from klamm_coordinator.shard.transactions import Transactions
from klamm_coordinator.timers import Now, Timers
from klamm_coordinator.turn import (
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    ExpiryTimer,
    JoinTimer,
    SessionTimer,
    SyncTimer,
    TimerKey,
    Turn,
    WriteTimer,
)
from klamm_coordinator.write import TxnProducer, Write

CLASSIC, CONSUMER = "classic", "consumer"
"""Kafka's names of the types of groups."""


class ListedGroup(NamedTuple):
    """A group in a list."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str


@dataclass(slots=True)
class _PendingWrite:
    write: Write[Record]
    then: Then | None
    """None once its requester was told that it takes too long."""


class Shard:
    """Load it with `replay`, then `start`, then `step`."""

    def __init__(self, settings: GroupSettings, rng: random.Random) -> None:
        self.state = ShardState()
        self.groups: dict[str, Group] = {}
        """Those of the classic protocol, and those that only store offsets."""
        self.consumers = ConsumerGroups(self.state, self.groups, settings, self._join_classic)
        self.transactions = Transactions()
        """Whose transactions may write; `begin_verification` before their coordinator is asked."""
        self._settings = settings
        self._rng = rng
        self._timers: Timers[TimerKey] = Timers()
        self._pending: dict[int, _PendingWrite] = {}
        self._next_write_id = 0
        self._to_expire: list[str] = []
        """Groups of which the offsets are still to be looked at, the next one last."""

    # Reading

    @property
    def pending_write_count(self) -> int:
        """Writes that are not decided, and requests that wait for one."""
        return len(self._pending) + self.consumers.waiting_count

    @property
    def group_count(self) -> int:
        """Of either protocol."""
        return len(self.groups) + len(self.state.consumer_groups)

    def next_deadline_ms(self) -> int | None:
        """When to step with `TimePassed` at the latest, on the monotonic clock."""
        return self._timers.next_deadline_ms()

    def describe(self, group_id: str) -> GroupDescription | None:
        """A group, or None when it is not there."""
        group = self.groups.get(group_id)
        return None if group is None or group.state is GroupState.DEAD else session.describe(group)

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription | None:
        """A group of the new protocol, or None when it is not there or of the classic one."""
        return self.consumers.describe(group_id)

    def list_groups(self) -> list[ListedGroup]:
        """Every group. Safe to call from another thread."""
        listed = [
            ListedGroup(group.group_id, CLASSIC, group.protocol_type or "", group.state.value)
            for group in list(self.groups.values())
        ]
        listed += [
            ListedGroup(group.group_id, CONSUMER, CONSUMER_PROTOCOL_TYPE, group.state)
            for group in list(self.state.consumer_groups.values())
        ]
        return listed

    def fetch_error(self, group_id: str, member_id: str, member_epoch: int) -> ErrorCode:
        """Whether offsets may be read in this name; without a member always (KIP-848)."""
        group = self.state.consumer_groups.get(group_id)
        if group is None or not member_id:
            return ErrorCode.NONE
        return group.epoch_error(member_id, member_epoch)

    def fetch_offsets(self, group_id: str, partitions: Sequence[TopicPartition] | None) -> tuple[FetchedOffset, ...]:
        """Durable offsets: those asked for, in order, or all."""
        return rules.fetch(self.state.offsets, group_id, partitions)

    def unstable_offsets(self, group_id: str, partitions: Sequence[TopicPartition] | None) -> list[TopicPartition]:
        """Those of them that an open transaction may change (KIP-447)."""
        return sorted(rules.unstable(self.state.offsets, group_id, partitions))

    # Changing

    def start(self, now: Now) -> Effects:
        """Everything is loaded: groups go on where they were; sessions begin anew, for heartbeats found nobody."""
        turn = self._turn(now)
        for group_id in self.state.group_ids():
            if group_id in self.state.consumer_groups:
                continue
            value = self.state.groups.get(group_id)
            group = Group(group_id) if value is None else Group.restore(group_id, value)
            self.groups[group_id] = group
            for member in group.members.values():
                rebalance.start_session(group, member, turn)
            if len(group.members) > self._settings.group_size_max:
                rebalance.prepare(group, "it is larger than group.max.size", turn)
        self.consumers.start(turn)
        self.transactions.load(self.state.offsets.pending.producer_ids())
        turn.schedule(ExpiryTimer(), self._settings.offsets_retention_check_interval_ms)
        return self._effects_of(turn)

    def step(self, event: Event, now: Now) -> Effects:
        """The event, then whatever is due: who speaks up at the last moment is heard."""
        turn = self._turn(now)
        self._handle(event, turn)
        effects = self._effects_of(turn)
        for timer in self._timers.pop_due(now.monotonic_ms):
            self._on_timer(timer, turn)
            self._begin_writes(turn, effects)
        return effects

    def check_invariants(self) -> None:
        """Asserts what the module's docstring lists."""
        for group in self.groups.values():
            group.check_invariants()
            for member in group.members.values():
                timer = SessionTimer(group.group_id, member.member_id)
                assert timer in self._timers or member.survives_session_end(), timer
            for member_id in group.pending_joins:
                assert SessionTimer(group.group_id, member_id) in self._timers, member_id
            is_joining = group.state is GroupState.PREPARING_REBALANCE
            assert (JoinTimer(group.group_id) in self._timers) == is_joining, group.state
            is_syncing = bool(group.pending_syncs)
            assert (SyncTimer(group.group_id) in self._timers) == is_syncing, group.pending_syncs
        for group_id in self.state.group_ids():
            assert (group_id in self.groups) != (group_id in self.state.consumer_groups), group_id
        self.consumers.check_invariants(self._timers)

    def _turn(self, now: Now) -> Turn:
        return Turn(now=now, settings=self._settings, timers=self._timers, rng=self._rng)

    def _effects_of(self, turn: Turn) -> Effects:
        effects = Effects(replies=turn.replies, notes=turn.notes)
        self._begin_writes(turn, effects)
        return effects

    def _begin_writes(self, turn: Turn, effects: Effects) -> None:
        """Makes the writes wanted so far known, before anything else of this step looks at what is in flight."""
        wanted, turn.writes = turn.writes, []
        for records, then, producer, marker in wanted:
            write_id = self._next_write_id
            self._next_write_id += 1
            write = Write(write_id=write_id, records=records, producer=producer, marker=marker)
            self._pending[write_id] = _PendingWrite(write, then)
            self.state.offsets.begin(records, transactional=producer is not None)
            turn.schedule(WriteTimer(write_id), self._settings.commit_timeout_ms)
            effects.writes.append(write)

    def _handle(self, event: Event, turn: Turn) -> None:
        match event:
            case WriteAppended():
                self._on_write_appended(event, turn)
            case WriteFailed():
                self._on_write_failed(event, turn)
            case TopicsDeleted():
                deletion.delete_offsets_of_topics(event.topics, self.groups, self.state, turn)
            case TimePassed():
                pass
            case _:
                self._handle_request(event, turn)

    def _handle_request(self, event: Request, turn: Turn) -> None:
        match event:
            case JoinGroup():
                self._on_join(event, turn)
            case SyncGroup():
                self._on_sync(event, turn)
            case Heartbeat():
                self._on_heartbeat(event, turn)
            case LeaveGroup():
                self._on_leave(event, turn)
            case ConsumerGroupHeartbeat():
                self.consumers.ask(event, turn)
            case CommitOffsets():
                self._on_commit(event, turn)
            case EndTransaction():
                self._on_end_transaction(event, turn)
            case DeleteOffsets():
                self._on_delete_offsets(event, turn)
            case DeleteGroups():
                deletion.handle_delete_groups(event, self.groups, self.consumers, self.state, turn)
            case _:
                assert_never(event)

    # Requests of members

    def _on_join(self, request: JoinGroup, turn: Turn) -> None:
        if self.consumers.has(request.group_id):
            self.consumers.ask(request, turn)
        else:
            self._join_classic(request, turn)

    def _join_classic(self, request: JoinGroup, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if group is None and not request.member_id:
            group = self._create_group(request.group_id, turn)
            if group is None:
                turn.reply(request.reply_id, JoinReply(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
                return
        if group is None:
            reply = JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            turn.reply(request.reply_id, reply)
            return
        handle_join(group, request, turn)
        self._forget_if_unused(group)

    def _on_sync(self, request: SyncGroup, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if group is None:
            turn.reply(request.reply_id, SyncReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            handle_sync(group, request, turn)

    def _on_heartbeat(self, request: Heartbeat, turn: Turn) -> None:
        group = self.groups.get(request.group_id)
        if group is None:
            turn.reply(request.reply_id, HeartbeatReply(error=ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            session.handle_heartbeat(group, request, turn)

    def _on_leave(self, request: LeaveGroup, turn: Turn) -> None:
        if self.consumers.has(request.group_id):
            self.consumers.ask(request, turn)
            return
        group = self.groups.get(request.group_id)
        if group is None:
            errors = (ErrorCode.UNKNOWN_MEMBER_ID,) * len(request.leavers)
            turn.reply(request.reply_id, LeaveReply(members=errors))
        else:
            session.handle_leave(group, request, turn)
            self._forget_if_unused(group)

    # Requests about offsets

    def _on_commit(self, request: CommitOffsets, turn: Turn) -> None:
        error = self._commit_error(request, turn)
        if error is ErrorCode.NONE and request.producer is not None:
            error = self._transaction_error(request.producer, request.verification)
        if error is not ErrorCode.NONE:
            turn.reply(request.reply_id, CommitReply(errors=(error,) * len(request.offsets)))
            return
        records, errors = rules.commit_records(
            request,
            metadata_bytes_max=self._settings.offset_metadata_bytes_max,
            wall_ms=turn.now.wall_ms,
        )
        reply = CommitReply(errors=errors)
        if records:
            if request.producer is not None:
                self.transactions.wrote(request.producer)
            turn.append(records, ReplyWhenStored(reply_id=request.reply_id, reply=reply), producer=request.producer)
        else:
            turn.reply(request.reply_id, reply)
            if request.group_id in self.groups:
                self._forget_if_unused(self.groups[request.group_id])

    def _commit_error(self, request: CommitOffsets, turn: Turn) -> ErrorCode:
        if request.group_id in self.state.consumer_groups:
            return self.consumers.commit_error(request)
        group = self.groups.get(request.group_id)
        if group is None and request.generation_id < 0:
            group = self._create_group(request.group_id, turn)
        if group is None:
            # A member of a group that is gone has to join again, which this code makes every client do.
            is_member = request.generation_id >= 0
            return ErrorCode.ILLEGAL_GENERATION if is_member else ErrorCode.GROUP_MAX_SIZE_REACHED
        check = session.check_commit if request.producer is None else session.check_transactional_commit
        return check(
            group,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            turn=turn,
        )

    def _transaction_error(self, producer: TxnProducer, verification: int | None) -> ErrorCode:
        is_admitted = self.transactions.admits(producer, verification)
        if verification is not None:
            self.transactions.end_verification(verification)
        return ErrorCode.NONE if is_admitted else ErrorCode.TRANSACTION_ABORTABLE

    def _on_end_transaction(self, request: EndTransaction, turn: Turn) -> None:
        self.transactions.end(request.producer, request.marker)
        then = ReplyWhenStored(reply_id=request.reply_id, reply=EndTransactionReply())
        turn.append_marker(request.producer, request.marker, then)

    def _on_delete_offsets(self, request: DeleteOffsets, turn: Turn) -> None:
        classic = self.groups.get(request.group_id)
        group = self.state.consumer_groups.get(request.group_id) or classic
        error = rules.delete_error(classic) if group is classic else self.consumers.delete_offsets_error(request)
        if error is not ErrorCode.NONE:
            turn.reply(request.reply_id, DeleteOffsetsReply(error=error))
            return
        assert group is not None
        records, errors = rules.delete_records(self.state.offsets, group, request)
        reply = DeleteOffsetsReply(errors=errors)
        if records:
            turn.append(records, ReplyWhenStored(reply_id=request.reply_id, reply=reply))
        else:
            turn.reply(request.reply_id, reply)

    # Writes

    def _on_write_appended(self, event: WriteAppended, turn: Turn) -> None:
        pending = self._take_write(event.write_id)
        write = pending.write
        producer_id = NO_PRODUCER_ID if write.producer is None else write.producer.producer_id
        for record in write.records:
            assert record.value is None or self._knows(record), record
            self.state.replay(record, producer_id)
        group_ids = {record.key.group_id for record in write.records}
        if write.marker is not None:
            group_ids = self.state.end_transaction(producer_id, committed=write.marker.committed)
        self._finish(pending, None, turn, group_ids)

    def _on_write_failed(self, event: WriteFailed, turn: Turn) -> None:
        pending = self._take_write(event.write_id)
        self._finish(pending, event.error, turn, {record.key.group_id for record in pending.write.records})

    def _knows(self, record: Record) -> bool:
        """Whether the record is of a group that is there, or makes one."""
        group_id = record.key.group_id
        return group_id in self.groups or self.consumers.has(group_id)

    def _take_write(self, write_id: int) -> _PendingWrite:
        assert next(iter(self._pending)) == write_id, (write_id, list(self._pending)[:3])
        pending = self._pending.pop(write_id)
        self._timers.cancel(WriteTimer(write_id))
        self.state.offsets.end(pending.write.records, transactional=pending.write.producer is not None)
        return pending

    def _finish(self, pending: _PendingWrite, error: ErrorCode | None, turn: Turn, group_ids: set[str]) -> None:
        if pending.then is not None:
            self._do(pending.then, error, turn)
        records = pending.write.records
        if records and isinstance(records[-1].key, ConsumerGroupKey):
            self.consumers.decided(records[-1].key.group_id, records, stored=error is None, turn=turn)
        for group_id in sorted(group_ids):
            if group_id in self.groups:
                self._forget_if_unused(self.groups[group_id])

    def _do(self, then: Then, broker_error: ErrorCode | None, turn: Turn) -> None:
        """What follows a write: of its success (no error), or of its failure."""
        error = None if broker_error is None else requester_error(broker_error, then)
        match then:
            case ReplyWhenStored():
                turn.reply(then.reply_id, _reply_after(then, error))
            case AssignmentStored(group_id=group_id):
                if group_id in self.groups:
                    on_assignment_stored(self.groups[group_id], then, error, turn)
            case StaticMemberStored(group_id=group_id):
                if group_id in self.groups:
                    on_static_member_stored(self.groups[group_id], then, error, turn)
            case ConsumerGroupStored():
                for reply_id, reply in then.replies:
                    turn.reply(reply_id, reply if error is None else reply_after(reply, error))
            case GroupsDeleted():
                deletion.on_groups_deleted(then, error, self.groups, self.state, turn)
            case NothingFollows():
                if broker_error is not None:
                    turn.note(f"append=failed error={broker_error.name} what={then.what}")
            case _:
                assert_never(then)

    # Timers

    def _on_timer(self, timer: TimerKey, turn: Turn) -> None:
        match timer:
            case SessionTimer(group_id, member_id):
                session.on_session_timer(self.groups[group_id], member_id, turn)
                self._forget_if_unused(self.groups[group_id])
            case JoinTimer(group_id):
                rebalance.on_join_timer(self.groups[group_id], turn)
            case SyncTimer(group_id):
                rebalance.on_sync_timer(self.groups[group_id], turn)
            case ConsumerSessionTimer() | ConsumerRebalanceTimer():
                self.consumers.on_timer(timer, turn)
            case WriteTimer(write_id):
                self._give_up_waiting(self._pending[write_id], turn)
            case ExpiryTimer():
                self._expire(turn)
            case _:
                assert_never(timer)

    def _expire(self, turn: Turn) -> None:
        """A turn's share of the groups; the others in the next turns."""
        if not self._to_expire:
            self._to_expire = sorted({*self.groups, *self.state.consumer_groups}, reverse=True)
        deletion.expire(self._to_expire, self.groups, self.consumers, self.state, turn)
        delay_ms = 1 if self._to_expire else self._settings.offsets_retention_check_interval_ms
        turn.schedule(ExpiryTimer(), delay_ms)

    def _give_up_waiting(self, write: _PendingWrite, turn: Turn) -> None:
        then, write.then = write.then, None
        assert then is not None
        self._do(then, ErrorCode.REQUEST_TIMED_OUT, turn)

    # Groups

    def _create_group(self, group_id: str, turn: Turn) -> Group | None:
        """None when the shard is full."""
        if self.group_count >= self._settings.group_count_max:
            return None
        group = Group(group_id, state_timestamp_ms=turn.now.wall_ms)
        self.groups[group_id] = group
        return group

    def _forget_if_unused(self, group: Group) -> None:
        """A group that only ever was an id leaves nothing to remember."""
        if (
            group.is_simple
            and group.state is GroupState.EMPTY
            and group.group_id not in self.state.groups
            and not self.state.offsets.has_any(group.group_id)
        ):
            del self.groups[group.group_id]


def _reply_after(
    then: ReplyWhenStored, error: ErrorCode | None
) -> CommitReply | DeleteOffsetsReply | EndTransactionReply:
    if error is None:
        return then.reply
    if isinstance(then.reply, EndTransactionReply):
        return EndTransactionReply(error=error)
    return replace(then.reply, errors=tuple(code or error for code in then.reply.errors))
