"""Tests a member of the new group protocol (KIP-848): its heartbeats, their timing, and its use of the answers."""

from __future__ import annotations

import random

import pytest

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
from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.retry import Backoff

INTERVAL_MS = 1_000
POLLS_MS = 60_000
ORDERS = SubscribedTo(frozenset({"orders"}), "")
BOTH = {TopicPartition("orders", 0): b"i" * 16, TopicPartition("orders", 1): b"i" * 16}
ONE = {TopicPartition("orders", 0): b"i" * 16}


class Driver:
    def __init__(self, instance_id: str | None = None) -> None:
        config = ConsumerMembershipConfig(
            group_instance_id=instance_id,
            max_poll_interval_ms=POLLS_MS,
            backoff=Backoff(initial_ms=100, max_ms=100, jitter=0),
        )
        self.member = ConsumerMembership(config, "m", random.Random(1))
        self.now_ms = 5_000
        self.sent: SendConsumerHeartbeat | None = None

    def step(self, event):
        effects = self.member.step(event, self.now_ms)
        self.sent = next((effect for effect in effects if isinstance(effect, SendConsumerHeartbeat)), self.sent)
        return effects

    def answer(self, code=ErrorCode.NONE, epoch=1, assignment=None):
        assert self.sent is not None
        sent, self.sent = self.sent, None
        return self.step(
            ConsumerHeartbeatAnswered(
                token=sent.token,
                code=code,
                member_epoch=epoch,
                heartbeat_interval_ms=INTERVAL_MS,
                assignment=assignment,
            )
        )

    def join(self, assignment=BOTH):
        """Joins the group until the member owns its assignment."""
        self.step(SubscriptionChanged(subscription=ORDERS))
        self.step(Polled())
        self.answer(assignment=assignment)
        self.step(Reconciled(owned=assignment))
        self.answer()

    def pass_time(self, duration_ms):
        self.now_ms += duration_ms
        return self.step(Ticked())


@pytest.fixture
def driver():
    return Driver()


def test_the_first_poll_joins_with_a_full_heartbeat(driver):
    assert driver.step(SubscriptionChanged(subscription=ORDERS)) == []
    assert driver.member.due

    driver.step(Polled())

    sent = driver.sent
    assert (sent.member_epoch, sent.is_full, sent.subscription, sent.owned) == (0, True, ORDERS, {})
    assert driver.answer(epoch=4, assignment=BOTH) == [TakePartitions(assignment=BOTH), WakePoll()]
    assert driver.member.identity == Identity(4, "m")


def test_a_poll_without_a_subscription_does_not_join(driver):
    assert driver.step(Polled()) == []


def test_reconciled_partitions_are_sent_immediately_and_only_once(driver):
    driver.step(SubscriptionChanged(subscription=ORDERS))
    driver.step(Polled())
    driver.answer(assignment=BOTH)
    driver.step(Reconciled(owned=BOTH))
    sent = driver.sent
    assert (sent.member_epoch, sent.is_full, sent.subscription, sent.owned) == (1, False, None, BOTH)
    driver.answer()

    assert driver.pass_time(INTERVAL_MS - 1) == []
    driver.pass_time(1)
    sent = driver.sent
    assert (sent.is_full, sent.subscription, sent.owned) == (False, None, None)


def test_a_change_during_a_heartbeat_is_sent_after_its_answer(driver):
    driver.join()
    driver.pass_time(INTERVAL_MS)
    assert driver.step(Reconciled(owned=ONE)) == []

    driver.answer()

    assert driver.sent.owned == ONE


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_failed_heartbeat_is_retried_as_a_full_heartbeat(driver, code):
    driver.join()
    driver.pass_time(INTERVAL_MS)

    effects = driver.answer(code)

    assert effects == ([ForgetCoordinator()] if code is ErrorCode.NETWORK_EXCEPTION else [])
    assert driver.pass_time(99) == []
    driver.pass_time(1)
    sent = driver.sent
    assert (sent.member_epoch, sent.is_full, sent.subscription, sent.owned) == (1, True, ORDERS, BOTH)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_or_unknown_member_joins_again_after_the_loss_was_reported(driver, code):
    driver.join()
    driver.pass_time(INTERVAL_MS)

    assert driver.answer(code) == [WakePoll()]
    assert driver.member.state is ConsumerMemberState.LOST
    assert driver.member.identity.generation_id == -1
    assert driver.step(Polled()) == []

    driver.step(LossHandled())
    sent = driver.sent
    assert (sent.member_epoch, sent.is_full, sent.owned) == (0, True, {})


def test_a_refused_heartbeat_is_raised_to_the_user_and_joining_is_retried(driver):
    driver.step(SubscriptionChanged(subscription=ORDERS))
    driver.step(Polled())

    failure, wake = driver.answer(ErrorCode.UNSUPPORTED_ASSIGNOR)

    assert isinstance(failure, Fail)
    assert wake == WakePoll()
    driver.step(LossHandled())
    assert driver.sent.member_epoch == 0


def test_a_fenced_static_member_never_joins_again(driver):
    driver.join()
    driver.pass_time(INTERVAL_MS)
    driver.answer(ErrorCode.FENCED_INSTANCE_ID)

    assert driver.member.state is ConsumerMemberState.FENCED
    assert driver.step(Polled()) == []
    assert driver.member.next_deadline_ms() is None


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_that_exceeds_max_poll_interval_leaves_the_group(instance_id, epoch):
    driver = Driver(instance_id)
    driver.join()
    assert driver.member.next_deadline_ms() == driver.now_ms + INTERVAL_MS

    assert driver.pass_time(POLLS_MS) == [SendConsumerLeave(member_epoch=epoch), WakePoll()]
    assert driver.member.state is ConsumerMemberState.LOST


@pytest.mark.parametrize(("instance_id", "static", "epoch"), [(None, False, -1), ("i", False, -2), ("i", True, -1)])
def test_a_leave_sends_the_member_epoch_of_a_dynamic_or_static_member(instance_id, static, epoch):
    driver = Driver(instance_id)
    driver.join()

    assert driver.step(LeaveRequested(reason="", static=static)) == [SendConsumerLeave(member_epoch=epoch)]
    assert driver.member.state is ConsumerMemberState.UNJOINED


def test_a_heartbeat_answer_after_leaving_is_ignored(driver):
    driver.join()
    driver.pass_time(INTERVAL_MS)
    late = driver.sent
    driver.step(LeaveRequested(reason=""))

    driver.step(ConsumerHeartbeatAnswered(token=late.token, code=ErrorCode.NONE, member_epoch=9, assignment=BOTH))

    assert driver.member.identity.generation_id == -1


def test_an_unknown_member_commit_loses_the_membership_but_a_stale_epoch_does_not(driver):
    driver.join()
    identity = driver.member.identity

    assert driver.step(CommitRefused(identity=identity, code=ErrorCode.STALE_MEMBER_EPOCH)) == []
    assert driver.step(CommitRefused(identity=Identity(0, "m"), code=ErrorCode.UNKNOWN_MEMBER_ID)) == []
    assert driver.step(CommitRefused(identity=identity, code=ErrorCode.UNKNOWN_MEMBER_ID)) == [WakePoll()]
    assert driver.member.state is ConsumerMemberState.LOST
