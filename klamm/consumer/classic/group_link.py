"""Runs a ClassicMembership: its effects become calls to the coordinator, their answers and the time become events.

Independent of the user's thread: between polls the member heartbeats, finishes a join that a poll began, and
leaves the group when polls are too far apart.
"""

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
"""JoinGroup is answered within the rebalance timeout; this much more for the way (as Kafka's client)."""


class ClassicGroupLink:
    """One consumer's link to its group. `on_wake` is called when a waiting poll has something to do."""

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
        """Partition counts that the assignment we computed as the leader was made from; empty for followers."""
        self._calls = GroupCalls(lambda: self._step(Ticked()))
        client.on_change(self._on_cluster_change)

    # --- for polls

    @property
    def needs_poll(self) -> bool:
        """Whether a poll has more to do here than to be noted."""
        return self._membership.due or self._assignment is not None or self._failure is not None

    def note_poll(self) -> None:
        """A poll that found nothing to do; may be called from any thread."""
        self._membership.note_poll(self._calls.now_ms())

    def polled(self) -> PrepareJoin | None:
        """Notes that a poll begins. If a join must be prepared, returns it; the caller then calls `prepared`."""
        self._prepare = None
        self._rejoin_if_counts_changed()
        self._step(Polled())
        return self._prepare

    def prepared(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Ready to join with these assignors' metadata."""
        self._step(JoinPrepared(protocols=protocols))

    def take_assignment(self) -> TakeAssignment | None:
        """The assignment that came since the last poll, unless the membership has ended since."""
        assignment, self._assignment = self._assignment, None
        if assignment is None or assignment.generation_id != self._membership.identity.generation_id:
            return None
        return assignment

    def take_failure(self) -> Exception | None:
        """What the group refused us for. A fenced static member gets it again and again."""
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
        """Whether commits have to wait for a rebalance to end."""
        return self._membership.rebalancing

    def commit_identity(self) -> Identity:
        """The identity to commit with. Raises CommitFailedError outside the group, RebalanceInProgressError while
        joining."""
        if self.rebalancing:
            raise ErrorCode.REBALANCE_IN_PROGRESS.exception("poll until the rebalance is over, then commit again")
        if self._membership.identity.generation_id < 0:
            raise CommitFailedError(COMMIT_FAILED)
        return self._membership.identity

    def on_commit_refused(self, identity: Identity, code: ErrorCode, message: str) -> None:
        """The OffsetStore calls this when a commit was refused."""
        self._step(CommitRefused(identity=identity, code=code, message=message))

    # --- the end

    async def leave(self, reason: str, *, static: bool = False, timeout_ms: int) -> None:
        """Leaves the group if this consumer is a member. Waits for the answer for `timeout_ms` at most."""
        self._step(LeaveRequested(reason=reason, static=static))
        await self._calls.wait_for("leave", timeout_ms)

    async def close(self) -> None:
        """Stops heartbeating and everything else; without `leave` the group notices by session.timeout.ms."""
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
                    self._assigned_counts = {}  # The next leader is not known yet, nor the counts it assigns from.
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
                    JoinGroupMember(each.member_id, each.group_instance_id or None, each.metadata)
                    for each in answer.members
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
        assignor = next(each for each in self._config.partition_assignment_strategy if each.name == protocol_name)
        members = [
            Member(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                subscription=decode_subscription(each.metadata),
            )
            for each in joined
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
