"""Runs a ConsumerMembership (KIP-848): its effects become calls to the coordinator, answers and time become events.

The link does not depend on the user's thread. Between polls the member sends heartbeats, and leaves the group if polls
are too far apart."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from typing import assert_never

from klamm.cluster.client import KlammClient
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
from klamm.consumer.kip848.membership import (
    Assigned,
    ConsumerEffects,
    ConsumerEvent,
    ConsumerHeartbeatAnswered,
    ConsumerMembership,
    ConsumerMembershipConfig,
    ConsumerMemberState,
    LossHandled,
    Reconciled,
    SendConsumerHeartbeat,
    SendConsumerLeave,
    SubscribedTo,
    SubscriptionChanged,
    TakePartitions,
)
from klamm.consumer.offsets.offset_store import COMMIT_FAILED, ask_coordinator
from klamm.errors import CommitFailedError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1 import coordinator_pb2
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

logger = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_MS = 10_000


class ConsumerGroupLink:
    """One consumer's link to its group. Calls `on_wake` when a waiting poll has something to do."""

    def __init__(self, client: KlammClient, config: ConsumerConfig, on_wake: Callable[[], None]) -> None:
        assert config.group_id is not None, "a group link without a group"
        self.group_id = config.group_id
        self.heartbeats_total = 0
        self.rebalances_total = 0
        self._client = client
        self._config = config
        self._on_wake = on_wake
        member_id = base64.urlsafe_b64encode(client.rng.randbytes(16)).decode().rstrip("=")
        self._membership = ConsumerMembership(
            ConsumerMembershipConfig(
                group_instance_id=config.group_instance_id,
                max_poll_interval_ms=config.max_poll_interval_ms,
                backoff=client.backoff,
            ),
            member_id,
            client.rng,
        )
        self._assignment: Assigned | None = None
        self._failure: Exception | None = None
        self._calls = GroupCalls(lambda: self._step(Ticked()))

    # --- for polls

    @property
    def needs_poll(self) -> bool:
        """True while a poll has group work to do, so that `note_poll` is not enough."""
        return self._membership.due or self._assignment is not None or self._failure is not None

    @property
    def is_lost(self) -> bool:
        """True after the membership has ended, when another member may own the partitions. The caller then calls
        `loss_handled`."""
        return self._membership.state is ConsumerMemberState.LOST

    def note_poll(self) -> None:
        """Notes the time of a poll that has no group work to do. Any thread may call this."""
        self._membership.note_poll(self._calls.now_ms())

    def polled(self, subscription: SubscribedTo) -> None:
        """Notes that a poll begins. If the consumer is not in the group, it joins."""
        self._step(SubscriptionChanged(subscription=subscription))
        self._step(Polled())

    def loss_handled(self) -> None:
        """Notes that the consumer owns no partitions any more, and that the listener was told."""
        self._assignment = None
        self._step(LossHandled())

    def reconciled(self, owned: Assigned) -> None:
        """Notes the partitions that the consumer owns after it has revoked and added some."""
        self._step(Reconciled(owned=owned))

    def take_assignment(self) -> Assigned | None:
        """Removes and returns the member's target assignment, or None if it has not changed since the last poll."""
        assignment, self._assignment = self._assignment, None
        return assignment

    def take_failure(self) -> Exception | None:
        """Removes and returns the error with which the group refused this member, or None. A fenced static member gets
        its error each time."""
        failure = self._failure
        if self._membership.state is not ConsumerMemberState.FENCED:
            self._failure = None
        return failure

    def request_rejoin(self, reason: str) -> None:
        """Wakes the poll after the subscription has changed. The next poll sends the new subscription."""
        self._on_wake()

    # --- for commits

    @property
    def identity(self) -> Identity:
        """The consumer's identity as a member of the group, with its epoch."""
        return self._membership.identity

    @property
    def rebalancing(self) -> bool:
        """Always False: commits never wait, because each member has its own epoch."""
        return False

    def commit_identity(self) -> Identity:
        """Returns the identity to commit with. Raises CommitFailedError outside the group."""
        if self.identity.generation_id < 0:
            raise CommitFailedError(COMMIT_FAILED)
        return self.identity

    def on_commit_refused(self, identity: Identity, code: ErrorCode, message: str) -> None:
        """Tells the membership that a commit was refused. The OffsetStore calls this."""
        self._step(CommitRefused(identity=identity, code=code, message=message))

    # --- the end

    async def leave(self, reason: str, *, static: bool = False, timeout_ms: int) -> None:
        """Leaves the group if this consumer is a member. Waits for the answer for `timeout_ms` at most."""
        self._assignment = None
        self._step(LeaveRequested(reason=reason, static=static))
        await self._calls.wait_for("leave", timeout_ms)

    async def close(self) -> None:
        """Stops the heartbeats and all calls. Without `leave`, the coordinator removes the member after its session
        timeout."""
        await self._calls.close()

    # --- the machine

    def _step(self, event: ConsumerEvent) -> None:
        before = self._membership.state
        self._apply(self._membership.step(event, self._calls.now_ms()))
        if before is not self._membership.state:
            logger.debug(
                "group=%s event=%s state=%s->%s epoch=%s",
                *(self.group_id, type(event).__name__, before.value, self._membership.state.value),
                self._membership.identity.generation_id,
            )
        self._calls.arm(self._membership.next_deadline_ms())

    def _apply(self, effects: ConsumerEffects) -> None:
        for effect in effects:
            match effect:
                case TakePartitions():
                    self.rebalances_total += 1
                    self._assignment = effect.assignment
                case Fail():
                    self._failure = effect.error
                case ForgetCoordinator():
                    self._client.forget_coordinator(self.group_id)
                case WakePoll():
                    self._on_wake()
                case SendConsumerHeartbeat():
                    self._calls.spawn(self._heartbeat(effect), "heartbeat")
                case SendConsumerLeave():
                    self._calls.spawn(self._leave(effect), "leave")
                case _:
                    assert_never(effect)

    # --- calls

    def _request(self, member_epoch: int) -> coordinator_pb2.ConsumerGroupHeartbeatRequest:
        return coordinator_pb2.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self._membership.member_id,
            member_epoch=member_epoch,
            group_instance_id=self._config.group_instance_id or "",
            client_id=self._config.client_id,
        )

    async def _heartbeat(self, effect: SendConsumerHeartbeat) -> None:
        self.heartbeats_total += 1
        request = self._request(effect.member_epoch)
        if effect.is_full:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.rack_id = self._config.client_rack or ""
            request.server_assignor = self._config.group_remote_assignor or ""
        if effect.subscription is not None:
            names = coordinator_pb2.TopicNames(names=sorted(effect.subscription.topics))
            request.subscribed_topic_names.CopyFrom(names)
            request.subscribed_topic_regex = effect.subscription.pattern
        if effect.owned is not None:
            request.owned.CopyFrom(_owned(effect.owned))
        # A hanging call must time out before the session does. Only the coordinator knows the session timeout.
        timeout_ms = min(self._config.request_timeout_ms, HEARTBEAT_TIMEOUT_MS)
        code, message, answer = await ask_coordinator(
            self._client, self.group_id, CoordinatorStub.consumer_group_heartbeat, request, timeout_ms
        )
        if answer is None:
            self._step(ConsumerHeartbeatAnswered(token=effect.token, code=code, message=message))
            return
        self._step(
            ConsumerHeartbeatAnswered(
                token=effect.token,
                code=code,
                message=message,
                member_epoch=answer.member_epoch,
                heartbeat_interval_ms=answer.heartbeat_interval_ms,
                assignment=_assigned(answer.assignment) if answer.HasField("assignment") else None,
            )
        )

    async def _leave(self, effect: SendConsumerLeave) -> None:
        code, message, _ = await ask_coordinator(
            self._client,
            self.group_id,
            CoordinatorStub.consumer_group_heartbeat,
            self._request(effect.member_epoch),
            self._config.request_timeout_ms,
        )
        if code is not ErrorCode.NONE:
            logger.info("group=%s leaving failed: %s", self.group_id, message or code.name)


def _owned(owned: Assigned) -> coordinator_pb2.ConsumerAssignment:
    by_id: dict[bytes, list[int]] = {}
    for tp, topic_id in sorted(owned.items()):
        by_id.setdefault(topic_id, []).append(tp.partition)
    return coordinator_pb2.ConsumerAssignment(
        topics=[
            coordinator_pb2.ConsumerPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_id.items()
        ]
    )


def _assigned(assignment: coordinator_pb2.ConsumerAssignment) -> Assigned:
    return {
        TopicPartition(topic.topic, number): topic.topic_id
        for topic in assignment.topics
        for number in topic.partitions
    }
