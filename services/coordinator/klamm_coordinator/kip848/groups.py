"""The consumer groups of a shard: one write of a group at a time.

A group changes only by acknowledged records. While a write of a group is under way, other requests for the group wait.
When the write is decided, the waiting requests go into the next write together. So a thousand members that join at once
cost a few writes and targets, not a thousand. If a write fails, the group is unchanged, and all its requests get an
error.

A group without members becomes a classic group when a member joins with the classic protocol, and the other way round.
A group with members changes its protocol online (KIP-848, upgrade.py and downgrade.py). The tombstones of the old group
are written with, or before, the first records of the new group. The offsets stay. Until a classic group has become a
consumer group, its members' requests wait or see the classic group as it is.

Invariants (`check_invariants`): those of every group; a member has its timers (deadlines.py), or its removal waits to
be written; requests wait only while a write is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.groups import ClassicGroups
from klamm_coordinator.classic.messages import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    SyncGroup,
)
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.groups.group_context import GroupContext, new_member_id
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.kip848 import classic_members
from klamm_coordinator.kip848.change import GroupChange
from klamm_coordinator.kip848.deadlines import Deadlines, check_timers
from klamm_coordinator.kip848.departure import fence, leave, remove_leaver, tombstones
from klamm_coordinator.kip848.downgrade import downgrade, downgrade_records, may_downgrade
from klamm_coordinator.kip848.group import JOIN_EPOCH, ConsumerGroup
from klamm_coordinator.kip848.messages import (
    AssignedTopic,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    ConsumerMemberDescription,
    FenceMember,
)
from klamm_coordinator.kip848.reconcile import next_current
from klamm_coordinator.kip848.subscribe import GrowthCheck, refresh_topics, subscribe
from klamm_coordinator.kip848.target import update_target
from klamm_coordinator.kip848.timers import (
    ConsumerJoinTimer,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    ConsumerSyncTimer,
    ConsumerTimer,
)
from klamm_coordinator.kip848.upgrade import check_upgrade, upgrade
from klamm_coordinator.records.consumer_group_schemas import CurrentKey, MemberKey, Partitions
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord
from klamm_coordinator.runtime.accounts import Accounts
from klamm_coordinator.runtime.timers import Timers
from klamm_server.runtime.byte_shares import NOBODY
from klamm_server.runtime.fair_share import BEGIN, CONTINUE

RECORDS_PER_WRITE = 1_000
"""The number of records after which a write gets no further request."""

Waiting = ConsumerGroupHeartbeat | FenceMember | LeaveGroup | JoinGroup | SyncGroup


@dataclass(slots=True)
class _Batch:
    """The requests that one write handles, and the answers to them."""

    change: GroupChange
    heartbeats: list[tuple[ConsumerGroupHeartbeat, str, bool]] = field(default_factory=list)
    """The heartbeats, each with the member's id and whether the member knows its epoch. A member that does not know it
    gets its epoch and its current assignment, but makes no step towards its target (subscribe.py)."""
    joins: list[tuple[JoinGroup, str]] = field(default_factory=list)
    """The JoinGroup requests to the consumer group, each with the member's id."""
    replies: list[tuple[int, Any]] = field(default_factory=list)
    is_upgrade: bool = False
    """True if the write makes a consumer group of a classic group with members."""

    @property
    def is_begun(self) -> bool:
        return bool(self.change.records or self.heartbeats or self.joins or self.replies)


class ConsumerGroups:
    """All consumer groups of a shard. The caller calls `start` once, then `ask` and `on_timer` for events, and
    `decided` for every write with records of a consumer group."""

    def __init__(
        self,
        values: dict[str, ConsumerGroup],
        classic: ClassicGroups,
        has_offsets: Callable[[str], bool],
        settings: GroupSettings,
        accounts: Accounts,
    ) -> None:
        self._values = values
        self._classic = classic
        self._settings = settings
        self._accounts = accounts
        self._has_offsets = has_offsets
        self._busy: set[str] = set()
        """Groups with a write under way."""
        self._dying: set[str] = set()
        """The groups that are being deleted."""
        self._queues: dict[str, deque[Waiting]] = {}
        self._topics_seen: dict[str, int] = {}
        """The version of the topics with which a group was last compared, by group id."""
        self._joined: dict[str, list[str]] = {}
        """The members of the classic protocol whose joins are being written, by group id."""
        self._downgrades: dict[str, ClassicGroup] = {}
        """The classic groups that consumer groups become with the write that is under way."""
        self._deadlines = Deadlines(settings)

    # Reading

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for a write of their group."""
        return sum(map(len, self._queues.values()))

    def has(self, group_id: str) -> bool:
        """Returns True if the group is of the new protocol, or has a write under way that may make it one."""
        return group_id in self._values or group_id in self._busy

    def get(self, group_id: str) -> ConsumerGroup | None:
        """Returns the group as it is stored, or None if it is not of the new protocol."""
        return self._values.get(group_id)

    def is_converting(self, group_id: str) -> bool:
        """Returns True while a write is under way that makes a consumer group of a classic group."""
        return group_id in self._busy and group_id in self._classic.groups

    def epoch_error(self, group_id: str, member_id: str, member_epoch: int) -> ErrorCode:
        """Returns NONE if this member may read the group's offsets at that epoch, otherwise the error."""
        group = self._values.get(group_id)
        return ErrorCode.NONE if group is None else group.epoch_error(member_id, member_epoch)

    def describe(self, group_id: str) -> ConsumerGroupDescription | None:
        """Returns the description of a group, or None if the group is not of the new protocol."""
        group = self._values.get(group_id)
        if group is None:
            return None
        return ConsumerGroupDescription(
            group_id=group_id,
            state=group.state,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=group.preferred_assignor(self._settings.consumer_assignors[0]),
            members=tuple(
                ConsumerMemberDescription(
                    member_id=member_id,
                    member_epoch=group.current(member_id).member_epoch,
                    metadata=member,
                    assignment=_by_topic(group, group.current(member_id).assigned),
                    target=_by_topic(group, group.target(member_id)),
                )
                for member_id, member in sorted(group.members.items())
            ),
        )

    # Changing

    def start(self, context: GroupContext) -> None:
        """Starts all sessions again after the shard was loaded, because no coordinator received heartbeats during the
        load."""
        for group in self._values.values():
            self._deadlines.arm_missing(group, context)

    def ask(self, request: Waiting, context: GroupContext) -> None:
        """Handles a request, or lets it wait until the group's write is decided."""
        if isinstance(request, ConsumerGroupHeartbeat | JoinGroup):
            self.hear(request, context)
        self._queues.setdefault(request.group_id, deque()).append(request)
        self._drain(request.group_id, context)

    def answer(self, request: SyncGroup | Heartbeat, context: GroupContext) -> None:
        """Answers a member of the classic protocol from the stored group."""
        group = self._values[request.group_id]
        if isinstance(request, SyncGroup):
            reply = classic_members.sync_reply(group, request)
            if reply.error is ErrorCode.NONE:
                self._deadlines.synced(group, request.member_id, context)
            context.reply(request.reply_id, reply)
            return
        error = classic_members.heartbeat_error(group, request)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._deadlines.renew_session(group, request.member_id, context)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._deadlines.expect_join(group, request.member_id, context)
        context.reply(request.reply_id, HeartbeatReply(error=error))

    def on_timer(self, timer: ConsumerTimer, context: GroupContext) -> None:
        """Fences a member that has missed a deadline."""
        current = self._values[timer.group_id].current(timer.member_id)
        match timer:
            case ConsumerSessionTimer():
                reason, known = "session-timeout", None
            case ConsumerRebalanceTimer():
                reason, known = "rebalance-timeout", current
            case ConsumerJoinTimer():
                reason, known = "join-timeout", current
            case ConsumerSyncTimer():
                reason, known = "sync-timeout", current
        self.ask(FenceMember(group_id=timer.group_id, member_id=timer.member_id, reason=reason, current=known), context)

    def decided(self, group_id: str, records: Iterable[GroupRecord], *, stored: bool, context: GroupContext) -> None:
        """Continues the requests that waited for the group's write. If it is `stored`, its records were replayed."""
        self._busy.discard(group_id)
        self._dying.discard(group_id)
        group = self._values.get(group_id)
        joined, classic = self._joined.pop(group_id, ()), self._downgrades.pop(group_id, None)
        if stored:
            for record in records:
                if isinstance(record.key, MemberKey | CurrentKey):
                    self._deadlines.arm(group, group_id, record.key.member_id, context)
            self._settle_type(group_id, classic, context)
            self._settle_joins(group, joined, context)
        else:
            self._topics_seen.pop(group_id, None)
        if group is None:
            self._topics_seen.pop(group_id, None)
        # Waiting requests come first, because one of them may remove a member whose timer has fired.
        self._drain(group_id, context)
        if group is not None and group_id not in self._busy:
            self._deadlines.arm_missing(group, context)

    def delete_error(self, group_id: str) -> ErrorCode:
        """Returns NONE if the consumer group may be deleted now, otherwise the error."""
        if group_id in self._busy:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if self._values[group_id].is_empty else ErrorCode.NON_EMPTY_GROUP

    def delete(self, group_id: str) -> tuple[GroupRecord, ...]:
        """Marks the group as being deleted, and returns its tombstones. The caller must write them as the last
        records."""
        assert self.delete_error(group_id) is ErrorCode.NONE, group_id
        self._busy.add(group_id)
        self._dying.add(group_id)
        return tombstones(self._values[group_id])

    def commit_error(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        partitions: list[TopicPartition],
        *,
        is_transactional: bool,
    ) -> ErrorCode:
        """Returns NONE if offsets may be committed in this member's name, otherwise the error. While the group has no
        members, any client may commit.

        A transaction that names no member may always commit, because its transactional id fences it."""
        group = self._values[group_id]
        if group_id in self._dying:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_epoch < 0 and (group.is_empty or (is_transactional and not member_id)):
            return ErrorCode.NONE
        return group.commit_error(member_id, member_epoch, partitions)

    def is_dying(self, group_id: str) -> bool:
        """Returns True while the group is being deleted."""
        return group_id in self._dying

    def check_invariants(self, timers: Timers[Any]) -> None:
        """Asserts the invariants that the module's docstring lists."""
        assert self._queues.keys() <= self._busy, (list(self._queues), self._busy)
        for group_id, group in self._values.items():
            group.check_invariants()
            assert group_id not in self._classic.groups, group_id
            if group_id not in self._busy:
                check_timers(group, timers)

    # Writes, one after the other

    def _drain(self, group_id: str, context: GroupContext) -> None:
        while group_id not in self._busy and (queue := self._queues.pop(group_id, None)):
            batch = _Batch(GroupChange(self._values.get(group_id) or ConsumerGroup(group_id)))
            while queue and len(batch.change.records) < RECORDS_PER_WRITE:
                if self._goes_alone(queue[0], batch):
                    if not batch.is_begun:
                        self._take_alone(queue.popleft(), queue, context)
                    break
                if batch.is_upgrade and not _joins(queue[0]):
                    break
                self._take(queue.popleft(), batch, context)
            queue.extendleft(reversed(self._finish(batch, context)))
            if queue:
                self._queues[group_id] = queue
        self._accounts.requester = NOBODY

    def _goes_alone(self, request: Waiting, batch: _Batch) -> bool:
        """Returns True if the request is not about the members of a consumer group, and so cannot be in a batch."""
        if isinstance(request, SyncGroup):
            return True
        durable = self._values.get(request.group_id)
        if isinstance(request, JoinGroup):
            return durable is None or durable.is_empty or batch.change.group.is_empty
        return isinstance(request, LeaveGroup) and durable is None and not batch.is_begun

    def _take_alone(self, request: Waiting, queue: deque[Waiting], context: GroupContext) -> None:
        group = self._values.get(request.group_id)
        match request:
            case JoinGroup() if group is not None:
                queue.appendleft(request)
                context.note(f"an empty consumer group became a classic group, group={request.group_id}")
                self._write(request.group_id, tombstones(group), (), context)
            case JoinGroup():
                self._classic.join(request, context)
            case SyncGroup() if group is not None:
                self.answer(request, context)
            case SyncGroup():
                self._classic.sync(request, context)
            case LeaveGroup():
                self._classic.leave(request, context)

    def _take(self, request: Waiting, batch: _Batch, context: GroupContext) -> None:
        if isinstance(request, ConsumerGroupHeartbeat | JoinGroup):
            self._accounts.requester = request.user
        match request:
            case ConsumerGroupHeartbeat():
                try:
                    self._take_heartbeat(request, batch, context)
                except BrokerError as error:
                    batch.replies.append((request.reply_id, _refusal(request, error)))
            case JoinGroup():
                try:
                    self._take_join(request, batch, context)
                except BrokerError as error:
                    reply = JoinReply(error=error.code, member_id=request.member_id)
                    batch.replies.append((request.reply_id, reply))
            case FenceMember():
                session = ConsumerSessionTimer(request.group_id, request.member_id)
                if request.current is None and session in context.timers:
                    return  # the member sent a heartbeat while this request waited
                if fence(batch.change, request):
                    member = f"member={request.member_id} reason={request.reason}"
                    context.note(f"removed a member, group={request.group_id} {member}")
            case LeaveGroup():
                errors = tuple(remove_leaver(batch.change, leaver) for leaver in request.leavers)
                batch.replies.append((request.reply_id, LeaveReply(members=errors)))

    def _take_heartbeat(self, request: ConsumerGroupHeartbeat, batch: _Batch, context: GroupContext) -> None:
        change = batch.change
        classic = self._check_type(change.group, request)
        if request.member_epoch < 0:
            leave(change, request)
            reply = ConsumerGroupHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)
            batch.replies.append((request.reply_id, reply))
            return
        member_id = request.member_id or new_member_id(request.client_id, context.rng)
        if classic is not None:
            upgrade(change, classic, request.topics)
        try:
            subscribe(
                change,
                request,
                member_id,
                self._growth_check(change, context),
                size_max=self._settings.consumer_size_max,
            )
        except BrokerError:
            if classic is not None:
                batch.change = GroupChange(ConsumerGroup(request.group_id))
            raise
        if classic is not None:
            batch.is_upgrade = True
            self._classic.ask_to_rejoin(classic, context)
            context.note(f"upgrading a classic group to a consumer group, group={request.group_id} member={member_id}")
        knows_its_epoch = (
            request.member_epoch != JOIN_EPOCH or change.group.current(member_id).member_epoch == JOIN_EPOCH
        )
        batch.heartbeats.append((request, member_id, knows_its_epoch))

    def _check_type(self, group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> ClassicGroup | None:
        """Returns the classic group with members that must be upgraded first, or None if there is none.

        Raises a BrokerError unless the group is a consumer group, or can become one with this request."""
        if group.epoch > 0:
            return None
        group_id = request.group_id
        classic = self._classic.groups.get(group_id)
        if classic is not None and classic.state is ClassicGroupState.DEAD:
            raise ErrorCode.COORDINATOR_NOT_AVAILABLE.exception(f"group {group_id!r} is being deleted")
        if request.member_epoch < 0:
            raise ErrorCode.GROUP_ID_NOT_FOUND.exception(f"consumer group {group_id!r} does not exist")
        if classic is not None and classic.state is not ClassicGroupState.EMPTY:
            check_upgrade(classic, self._settings)
            if request.member_epoch > JOIN_EPOCH:
                # The group was downgraded after this member was fenced. The member can join again.
                raise ErrorCode.UNKNOWN_MEMBER_ID.exception(
                    f"{request.member_id!r} is not a member of group {group_id!r}"
                )
            return classic
        if classic is None and len(self._classic.groups) + len(self._values) >= self._settings.group_count_max:
            raise ErrorCode.GROUP_MAX_SIZE_REACHED.exception(
                f"the group's partition of __consumer_offsets is full: it has {self._settings.group_count_max}"
                " groups (group.count.max)"
            )
        return None

    def _take_join(self, request: JoinGroup, batch: _Batch, context: GroupContext) -> None:
        member_id = request.member_id
        if not member_id:
            member_id = new_member_id(request.instance_id or request.client_id, context.rng)
        if not request.member_id and request.instance_id is None and not request.joins_without_id:
            classic_members.check_protocols(batch.change.group, request)
            context.reply(request.reply_id, JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        check_growth = self._growth_check(batch.change, context)
        classic_members.join(batch.change, request, member_id, check_growth, size_max=self._settings.consumer_size_max)
        batch.joins.append((request, member_id))

    def _growth_check(self, change: GroupChange, context: GroupContext) -> GrowthCheck:
        """Returns the check whether there is memory for a member that joins, or whose subscription changes.

        The check counts what other requests of the same write add, too."""

        def check(added_bytes: int, *, is_new: bool) -> None:
            pending_bytes = max(0, change.group.size_bytes - change.durable.size_bytes)
            if added_bytes <= 0 or self._accounts.admits(
                change.group_id, pending_bytes + added_bytes, BEGIN if is_new else CONTINUE
            ):
                return
            self._accounts.refuse("group", change.group_id, added_bytes, context)
            raise ErrorCode.GROUP_MAX_SIZE_REACHED.exception(
                f"the coordinator has no memory for {added_bytes} more bytes of group {change.group_id!r}, because"
                f" the user of this group holds its share of {self._accounts.shares.setting}"
            )

        return check

    def _finish(self, batch: _Batch, context: GroupContext) -> list[JoinGroup]:
        """Writes the batch, or answers it if it changes nothing. Returns the joins that have to wait for the write."""
        change = batch.change
        classic = self._downgrade(change, context)
        if classic is not None:
            self._answer_gone(batch)
            self._downgrades[change.group_id] = classic
            records = downgrade_records(change.durable, classic)
            self._write(change.group_id, records, tuple(batch.replies), context)
            return [request for request, _ in batch.joins]
        if batch.heartbeats or batch.joins:
            last = batch.joins[-1][0] if batch.joins else batch.heartbeats[-1][0]
            self._refresh_target(change, last.topics, context)
        for request, member_id, knows_its_epoch in batch.heartbeats:
            reply = self._reconcile(change, request, member_id, is_told_only=not knows_its_epoch)
            batch.replies.append((request.reply_id, reply))
            session = ConsumerSessionTimer(change.group_id, member_id)
            if session in context.timers and member_id in change.group.members:
                self._deadlines.renew_session(change.group, member_id, context)
        for join, member_id in batch.joins:
            batch.replies.append((join.reply_id, self._reconcile_join(change, join, member_id)))
        joined = [member_id for _, member_id in batch.joins]
        if not change.records:
            context.effects.replies.extend(batch.replies)
            self._settle_joins(change.group, joined, context)
            return []
        records = tuple(change.records)
        stored = self._classic.groups.get(change.group_id)
        if stored is not None and stored.protocol_type is not None:
            records = (GroupRecord(GroupMetadataKey(change.group_id), None), *records)
        self._joined[change.group_id] = joined
        self._write(change.group_id, records, tuple(batch.replies), context)
        return []

    def _downgrade(self, change: GroupChange, context: GroupContext) -> ClassicGroup | None:
        """Returns the classic group that the consumer group becomes with this write, or None."""
        if not may_downgrade(change.durable, change.group, self._settings):
            return None
        classic = downgrade(change.durable, change.group, context.now.wall_ms)
        if classic is None:
            context.note(
                f"could not downgrade a consumer group: a member's metadata is malformed, group={change.group_id}"
            )
        else:
            context.note(f"downgrading a consumer group to a classic group, group={change.group_id}")
        return classic

    def _answer_gone(self, batch: _Batch) -> None:
        """Adds the answers to heartbeats of members that a later request in the same write removed."""
        for request, member_id, _ in batch.heartbeats:
            batch.replies.append((request.reply_id, _gone(member_id)))

    def _reconcile_join(self, change: GroupChange, request: JoinGroup, member_id: str) -> JoinReply:
        if not change.group.is_classic(member_id):
            return JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID)  # a later request in the same write removed the member
        current = next_current(change.group, member_id, classic_members.owned_partitions(request))
        if current != change.group.current(member_id):
            change.write(CurrentKey(change.group_id, member_id), current)
        return classic_members.join_reply(change.group, member_id)

    def _settle_joins(self, group: ConsumerGroup | None, joined: Iterable[str], context: GroupContext) -> None:
        """Expects a SyncGroup of the members of the classic protocol that have joined."""
        for member_id in joined:
            if group is not None and group.is_classic(member_id):
                self._deadlines.joined(group, member_id, context)

    def _refresh_target(self, change: GroupChange, topics: Topics, context: GroupContext) -> None:
        is_due = change.group.epoch != change.group.assignment_epoch
        if is_due or self._topics_seen.get(change.group_id) != topics.version:
            refresh_topics(change, topics, wall_ms=context.now.wall_ms)
            self._topics_seen[change.group_id] = topics.version
        update_target(change, self._settings.consumer_assignors[0])

    def _reconcile(
        self, change: GroupChange, request: ConsumerGroupHeartbeat, member_id: str, *, is_told_only: bool
    ) -> ConsumerGroupHeartbeatReply:
        if member_id not in change.group.members:
            return _gone(member_id)  # a later request in the same write removed the member
        before = change.group.current(member_id)
        current = before if is_told_only else next_current(change.group, member_id, request.owned)
        if current != before:
            change.write(CurrentKey(change.group_id, member_id), current)
        is_told = (
            request.member_epoch in (JOIN_EPOCH, before.previous_member_epoch)
            or request.is_full
            or current.assigned != before.assigned
        )
        return ConsumerGroupHeartbeatReply(
            member_id=member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._settings.consumer_heartbeat_interval_ms,
            assignment=_by_topic(change.group, current.assigned) if is_told else None,
        )

    def _write(
        self,
        group_id: str,
        records: tuple[GroupRecord, ...],
        replies: tuple[tuple[int, Any], ...],
        context: GroupContext,
    ) -> None:
        self._busy.add(group_id)
        context.append(records, replies=replies)

    # Timers and the type of a group

    def hear(self, request: ConsumerGroupHeartbeat | JoinGroup, context: GroupContext) -> None:
        """Starts the member's session again as soon as its request arrives, so that a slow log does not end the
        session."""
        group = self._values.get(request.group_id)
        if group is None or request.member_id not in group.members:
            return
        current = group.current(request.member_id)
        epochs = (current.member_epoch, current.previous_member_epoch, JOIN_EPOCH)
        if isinstance(request, JoinGroup) or request.member_epoch in epochs:
            self._deadlines.renew_session(group, request.member_id, context)

    def _settle_type(self, group_id: str, downgraded: ClassicGroup | None, context: GroupContext) -> None:
        """Ensures that the group is of one protocol only, after its write. A deleted consumer group with offsets
        becomes a classic group."""
        if group_id in self._values:
            self._classic.release(group_id, context)
        elif downgraded is not None:
            self._classic.adopt(downgraded, context)
        elif self._has_offsets(group_id) and group_id not in self._classic.groups:
            self._classic.put(ClassicGroup(group_id, state_timestamp_ms=context.now.wall_ms))


def _refusal(request: ConsumerGroupHeartbeat, error: BrokerError) -> ConsumerGroupHeartbeatReply:
    return ConsumerGroupHeartbeatReply(error=error.code, message=error.message, member_id=request.member_id)


def _joins(request: Waiting) -> bool:
    return isinstance(request, ConsumerGroupHeartbeat) and request.member_epoch == JOIN_EPOCH


def _gone(member_id: str) -> ConsumerGroupHeartbeatReply:
    error = ErrorCode.UNKNOWN_MEMBER_ID
    return ConsumerGroupHeartbeatReply(error=error, message=error.text, member_id=member_id)


def _by_topic(group: ConsumerGroup, partitions: Partitions) -> tuple[AssignedTopic, ...]:
    """Returns the partitions by topic, sorted by topic name and partition number. Leaves out topics that no longer
    exist."""
    names = {topic.topic_id: topic.name for topic in group.topics.values()}
    topics = (
        AssignedTopic(
            topic_id=topic_id,
            topic=names.get(topic_id, ""),
            partitions=tuple(partition.partition for partition in of_topic),
        )
        for topic_id, of_topic in groupby(sorted(partitions), key=lambda partition: partition.topic_id)
    )
    return tuple(sorted((topic for topic in topics if topic.topic), key=lambda topic: topic.topic))
