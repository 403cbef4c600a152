"""Runs a ClassicMembership: its effects become calls to the coordinator, their answers and the time become events.

The link does not depend on the user's thread. Between polls the member sends heartbeats, finishes a join that a poll
began, and leaves the group if polls are too far apart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import assert_never

from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView
from klamm.consumer.assignors import Member
from klamm.consumer.assignors.consumer_protocol import Assignment, decode_subscription, encode_assignment
from klamm.consumer.classic.membership import ClassicMembership, ClassicMembershipConfig, ClassicMemberState
from klamm.consumer.classic.membership_events import (
    AssignmentComputed,
    AssignmentFailed,
    ClassicEffects,
    ClassicEvent,
    ComputeAssignment,
    HeartbeatAnswered,
    JoinAnswered,
    JoinGroupMember,
    JoinPrepared,
    PrepareJoin,
    RejoinRequested,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    SyncAnswered,
    TakeAssignment,
)
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.group.group_calls import GroupCalls
from klamm.consumer.group.identity import Identity
from klamm.consumer.group.membership_events import (
    CommitRefused,
    Fail,
    ForgetCoordinator,
    LeaveRequested,
    Polled,
    Ticked,
    WakePoll,
)
from klamm.consumer.offsets.offset_store import COMMIT_FAILED, ask_coordinator
from klamm.errors import CommitFailedError, ErrorCode
from klamm.wire.calls import AnswerT, RequestT, Unary
from klamm.wire.v1 import coordinator_pb2
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

logger = logging.getLogger(__name__)

PROTOCOL_TYPE = "consumer"
_JOIN_SLACK_MS = 5_000
"""The extra time for a JoinGroup answer, in milliseconds. The coordinator answers within the rebalance timeout (as in
Kafka's client)."""


class ClassicGroupLink:
    """One consumer's link to its group. Calls `on_wake` when a waiting poll has something to do."""

    def __init__(self, client: KlammClient, config: ConsumerConfig, on_wake: Callable[[], None]) -> None:
        assert config.group_id is not None, "a group link without a group"
        self.group_id = config.group_id
        self.heartbeats_total = 0
        self.rebalances_total = 0
        self._client = client
        self._config = config
        self._on_wake = on_wake
        self._membership = ClassicMembership(
            ClassicMembershipConfig(
                group_instance_id=config.group_instance_id,
                session_timeout_ms=config.session_timeout_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                max_poll_interval_ms=config.max_poll_interval_ms,
                backoff=client.backoff,
            ),
            client.rng,
        )
        self._prepare: PrepareJoin | None = None
        self._assignment: TakeAssignment | None = None
        self._failure: Exception | None = None
        self._assigned_counts: dict[str, int | None] = {}
        """The partition counts from which this member, as the leader, computed the assignment. Empty for followers."""
        self._calls = GroupCalls(lambda: self._step(Ticked()))
        client.on_change(self._on_cluster_change)

    # --- for polls

    @property
    def needs_poll(self) -> bool:
        """True while a poll has group work to do, so that `note_poll` is not enough."""
        return self._membership.due or self._assignment is not None or self._failure is not None

    def note_poll(self) -> None:
        """Notes the time of a poll that has no group work to do. Any thread may call this."""
        self._membership.note_poll(self._calls.now_ms())

    def polled(self) -> PrepareJoin | None:
        """Notes that a poll begins. If a join must be prepared, returns it; the caller then calls `prepared`."""
        self._prepare = None
        self._rejoin_if_counts_changed()
        self._step(Polled())
        return self._prepare

    def prepared(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Continues the join with these assignors' metadata, after the join was prepared."""
        self._step(JoinPrepared(protocols=protocols))

    def take_assignment(self) -> TakeAssignment | None:
        """Removes and returns the assignment that came since the last poll. Returns None if there is none, or if the
        membership has ended since."""
        assignment, self._assignment = self._assignment, None
        if assignment is None or assignment.generation_id != self._membership.identity.generation_id:
            return None
        return assignment

    def take_failure(self) -> Exception | None:
        """Removes and returns the error with which the group refused this member, or None. A fenced static member gets
        its error each time."""
        failure = self._failure
        if self._membership.state is not ClassicMemberState.FENCED:
            self._failure = None
        return failure

    def request_rejoin(self, reason: str) -> None:
        self._step(RejoinRequested(reason=reason))

    # --- for commits

    @property
    def identity(self) -> Identity:
        """The consumer's identity as a member of the group, in any state."""
        return self._membership.identity

    @property
    def rebalancing(self) -> bool:
        """True while commits have to wait for a rebalance to end."""
        return self._membership.rebalancing

    def commit_identity(self) -> Identity:
        """Returns the identity to commit with. Raises CommitFailedError outside the group, and RebalanceInProgressError
        during a join."""
        if self.rebalancing:
            raise ErrorCode.REBALANCE_IN_PROGRESS.exception("poll until the rebalance is over, then commit again")
        if self._membership.identity.generation_id < 0:
            raise CommitFailedError(COMMIT_FAILED)
        return self._membership.identity

    def on_commit_refused(self, identity: Identity, code: ErrorCode, message: str) -> None:
        """Tells the membership that a commit was refused. The OffsetStore calls this."""
        self._step(CommitRefused(identity=identity, code=code, message=message))

    # --- the end

    async def leave(self, reason: str, *, static: bool = False, timeout_ms: int) -> None:
        """Leaves the group if this consumer is a member. Waits for the answer for `timeout_ms` at most."""
        self._step(LeaveRequested(reason=reason, static=static))
        await self._calls.wait_for("leave", timeout_ms)

    async def close(self) -> None:
        """Stops the heartbeats and all calls. Without `leave`, the coordinator removes the member after
        session.timeout.ms."""
        await self._calls.close()

    # --- the machine

    def _step(self, event: ClassicEvent) -> None:
        before = self._membership.state
        self._apply(self._membership.step(event, self._calls.now_ms()))
        if before is not self._membership.state:
            logger.debug(
                "group=%s event=%s state=%s->%s generation=%s",
                *(self.group_id, type(event).__name__, before.value, self._membership.state.value),
                self._membership.identity.generation_id,
            )
        self._calls.arm(self._membership.next_deadline_ms())

    def _apply(self, effects: ClassicEffects) -> None:
        for effect in effects:
            match effect:
                case PrepareJoin():
                    self._prepare = effect
                case TakeAssignment():
                    self.rebalances_total += 1
                    self._assignment = effect
                case Fail():
                    self._failure = effect.error
                case ForgetCoordinator():
                    self._client.forget_coordinator(self.group_id)
                case WakePoll():
                    self._on_wake()
                case SendJoin():
                    # The leader of the next generation is not known yet, so neither are its partition counts.
                    self._assigned_counts = {}
                    self._calls.spawn(self._join(effect), "join")
                case ComputeAssignment():
                    self._calls.spawn(self._compute(effect), "assign")
                case SendSync():
                    self._calls.spawn(self._sync(effect), "sync")
                case SendHeartbeat():
                    self._calls.spawn(self._heartbeat(effect), "heartbeat")
                case SendLeave():
                    self._calls.spawn(self._leave(effect), "leave")
                case _:
                    assert_never(effect)

    def _on_cluster_change(self, _: ClusterView, __: ClusterView) -> None:
        self._rejoin_if_counts_changed()

    def _rejoin_if_counts_changed(self) -> None:
        """Requests a rejoin if the partition counts changed while the member is STABLE. The poll that applies an
        assignment sees changes that came before it."""
        cluster = self._client.cluster
        counts = {topic: cluster.partition_count(topic) for topic in self._assigned_counts}
        if counts != self._assigned_counts and self._membership.state is ClassicMemberState.STABLE:
            self._assigned_counts = {}
            self.request_rejoin("the partitions of the subscribed topics changed")

    # --- calls

    async def _join(self, effect: SendJoin) -> None:
        config = self._config
        request = coordinator_pb2.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=effect.member_id,
            group_instance_id=config.group_instance_id or "",
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                coordinator_pb2.GroupProtocol(name=name, metadata=metadata) for name, metadata in effect.protocols
            ],
            client_id=config.client_id,
            reason=effect.reason,
        )
        timeout_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + _JOIN_SLACK_MS)
        code, message, answer = await self._ask(CoordinatorStub.join_group, request, timeout_ms)
        if answer is None:
            self._step(JoinAnswered(token=effect.token, code=code, message=message))
            return
        self._step(
            JoinAnswered(
                token=effect.token,
                code=code,
                message=message,
                generation_id=answer.generation_id,
                protocol_name=answer.protocol_name,
                leader=answer.leader,
                member_id=answer.member_id,
                members=tuple(
                    JoinGroupMember(member.member_id, member.group_instance_id or None, member.metadata)
                    for member in answer.members
                ),
                skip_assignment=answer.skip_assignment,
            )
        )

    async def _compute(self, effect: ComputeAssignment) -> None:
        try:
            assignments = await self._assign(effect.protocol_name, effect.members)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's; the next poll raises it
            self._step(AssignmentFailed(token=effect.token, error=error))
            return
        self._step(AssignmentComputed(token=effect.token, assignments=assignments))

    async def _assign(self, protocol_name: str, joined: Iterable[JoinGroupMember]) -> dict[str, bytes]:
        assignor = next(
            strategy for strategy in self._config.partition_assignment_strategy if strategy.name == protocol_name
        )
        members = [
            Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                subscription=decode_subscription(member.metadata),
            )
            for member in joined
        ]
        topics = {topic for member in members for topic in member.subscription.topics}
        cluster = await self._client.retrying(
            lambda: self._client.refresh_metadata(topics), timeout_ms=self._config.request_timeout_ms
        )
        self._assigned_counts = {topic: cluster.partition_count(topic) for topic in topics}
        counts = {topic: count for topic, count in self._assigned_counts.items() if count is not None}
        return {
            member_id: encode_assignment(Assignment(partitions=tuple(partitions)))
            for member_id, partitions in assignor.assign(counts, members).items()
        }

    async def _sync(self, effect: SendSync) -> None:
        request = coordinator_pb2.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=effect.identity.generation_id,
            member_id=effect.identity.member_id,
            group_instance_id=self._config.group_instance_id or "",
            protocol_type=PROTOCOL_TYPE,
            protocol_name=effect.protocol_name,
            assignments=[
                coordinator_pb2.MemberAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in sorted(effect.assignments.items())
            ],
        )
        timeout_ms = max(self._config.request_timeout_ms, self._config.max_poll_interval_ms + _JOIN_SLACK_MS)
        code, message, answer = await self._ask(CoordinatorStub.sync_group, request, timeout_ms)
        assignment = b"" if answer is None else answer.assignment
        self._step(SyncAnswered(token=effect.token, code=code, message=message, assignment=assignment))

    async def _heartbeat(self, effect: SendHeartbeat) -> None:
        self.heartbeats_total += 1
        request = coordinator_pb2.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=effect.identity.generation_id,
            member_id=effect.identity.member_id,
            group_instance_id=self._config.group_instance_id or "",
        )
        code, message, _ = await self._ask(CoordinatorStub.heartbeat, request, self._config.session_timeout_ms)
        self._step(HeartbeatAnswered(identity=effect.identity, code=code, message=message))

    async def _leave(self, effect: SendLeave) -> None:
        member = coordinator_pb2.LeavingMember(
            member_id=effect.member_id,
            group_instance_id=self._config.group_instance_id or "",
            reason=effect.reason,
        )
        request = coordinator_pb2.LeaveGroupRequest(group_id=self.group_id, members=[member])
        code, message, _ = await self._ask(CoordinatorStub.leave_group, request, self._config.request_timeout_ms)
        if code is not ErrorCode.NONE:
            logger.info("group=%s leaving failed: %s", self.group_id, message or code.name)

    async def _ask(
        self, rpc: Unary[CoordinatorStub, RequestT, AnswerT], request: RequestT, timeout_ms: int
    ) -> tuple[ErrorCode, str, AnswerT | None]:
        return await ask_coordinator(self._client, self.group_id, rpc, request, timeout_ms)
