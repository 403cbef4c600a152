"""Tests the bound of the memory of groups (group.metadata.max.bytes): refusals, the work of members, the counting.

`ShardDriver` checks after every step that the accounts have what a walk over all groups finds.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.errors import ErrorCode
from klamm_coordinator.runtime.log_write import TxnProducer
from klamm_server.runtime.byte_shares import ByteShares
from tests.unit.klamm_coordinator.conftest import GROUP, REBALANCE_MS, ShardDriver, subscription

MAX_BYTES = 400_000
LARGE = (("range", bytes(30_000)),)
REFUSED = ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.fixture
def small() -> ShardDriver:
    """A driver whose groups may take `MAX_BYTES`."""
    return ShardDriver(shares=ByteShares(MAX_BYTES, "group.metadata.max.bytes"), initial_rebalance_delay_ms=0)


def fill(driver: ShardDriver) -> list[str]:
    """Joins groups with large metadata until one is refused. Returns the groups."""
    group_ids: list[str] = []
    while True:
        group_id = f"large-{len(group_ids)}"
        join = driver.join(group_id=group_id, joins_without_id=True, protocols=LARGE, session_timeout_ms=10**6)
        driver.advance(1)
        if driver.replies[join].error is REFUSED:
            return group_ids
        assert driver.replies[join].error is ErrorCode.NONE
        group_ids.append(group_id)


class TestClassicGroups:
    def test_a_user_that_holds_two_thirds_is_refused_and_another_user_joins(self, small):
        group_ids = fill(small)
        assert MAX_BYTES / 2 < small.shares.held_bytes <= MAX_BYTES * 2 / 3
        assert small.rules.list_groups()[-1].group_id == group_ids[-1], "a refused join leaves no group"
        assert any("group.metadata.max.bytes" in note and "user=User:alice" in note for note in small.notes)
        small.user = "User:bob"
        (member_id,) = small.stable()
        assert small.heartbeat(1, member_id) is ErrorCode.NONE
        assert small.replies[small.commit(7, generation_id=1, member_id=member_id)].errors == (ErrorCode.NONE,)

    def test_a_member_of_a_refused_user_works_as_before(self, small):
        (member_id,) = small.stable()
        fill(small)
        assert small.heartbeat(1, member_id) is ErrorCode.NONE
        assert small.replies[small.commit(7, generation_id=1, member_id=member_id)].errors == (ErrorCode.NONE,)
        rejoin = small.join(member_id)
        small.sync(small.joined(rejoin).generation_id, member_id, {member_id: b"assigned"})
        assert small.leave((member_id, None)) == (ErrorCode.NONE,)

    def test_a_member_that_leaves_makes_room(self, small):
        group_ids = fill(small)
        for group_id in group_ids[:2]:
            (member_id,) = small.rules.classic.groups[group_id].members
            small.leave((member_id, None), group_id=group_id)
        small.joined(small.join(group_id="again", joins_without_id=True, protocols=LARGE))

    def test_a_refused_rejoin_leaves_the_member_as_it_was(self, small):
        (member_id,) = small.stable()
        held_bytes = small.shares.held_bytes
        rejoin = small.join(member_id, protocols=(("range", bytes(MAX_BYTES)),))
        assert small.replies[rejoin].error is REFUSED
        assert small.shares.held_bytes == held_bytes
        assert small.state() == "Stable"
        assert small.heartbeat(1, member_id) is ErrorCode.NONE

    def test_one_group_has_at_most_an_eighth_of_the_memory_in_metadata(self, small):
        small.stable()
        for number in range(10):
            small.join(joins_without_id=True, client_id=f"c{number}", protocols=(("range", bytes(9_000)),))
        assert small.rules.classic.groups[GROUP].size_bytes <= MAX_BYTES / 8
        assert small.shares.refused_count

    def test_a_member_is_refused_before_it_gets_an_id(self, small):
        fill(small)
        assert small.replies[small.join(group_id="new", protocols=LARGE)].error is REFUSED

    def test_ids_without_a_member_take_memory_too(self, small):
        codes = {small.replies[small.join(client_id=f"{number:020000}")].error for number in range(30)}
        assert codes == {ErrorCode.MEMBER_ID_REQUIRED, REFUSED}

    def test_assignments_without_room_make_all_members_join_again(self, small):
        (member_id,) = small.stable()
        rejoin = small.join(member_id)
        generation_id = small.joined(rejoin).generation_id
        sync = small.sync(generation_id, member_id, {member_id: bytes(MAX_BYTES)})
        assert small.replies[sync].error is REFUSED
        assert small.state() == "PreparingRebalance"

    def test_the_topics_in_metadata_count_more_than_their_names(self, small):
        topics = subscription(*(f"{number}" for number in range(3_000)))
        assert len(topics) < MAX_BYTES / 8
        assert small.replies[small.join(joins_without_id=True, protocols=(("range", topics),))].error is REFUSED


class TestOffsets:
    def test_commits_that_add_memory_are_refused_and_others_are_not(self, small):
        partition = 0
        while True:
            (error,) = small.replies[small.commit(1, partition=partition, metadata="m" * 4_000)].errors
            if error is not ErrorCode.NONE:
                break
            partition += 1
        assert error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert MAX_BYTES * 2 / 3 < small.shares.held_bytes <= MAX_BYTES * 4 / 5
        assert small.replies[small.commit(2, partition=0, metadata="n" * 4_000)].errors == (ErrorCode.NONE,)
        assert small.offset(partition=0) == 2
        small.user = "User:bob"
        assert small.replies[small.commit(1, group_id="other")].errors == (ErrorCode.NONE,)

    def test_a_new_group_that_only_stores_offsets_is_refused_and_leaves_nothing(self, small):
        fill(small)
        while True:
            before = small.shares.held_bytes
            (error,) = small.replies[small.commit(1, group_id=f"simple-{before}", metadata="m" * 4_000)].errors
            if error is not ErrorCode.NONE:
                break
        assert error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert small.shares.held_bytes == before

    def test_offsets_of_an_open_transaction_count_until_it_ends(self, small):
        producer = TxnProducer(9, 0)
        small.txn_commit(5, producer, metadata="m" * 1_000)
        pending_bytes = small.shares.held_bytes
        small.end_transaction(producer, committed=False)
        assert (pending_bytes > 2_000, small.shares.held_bytes) == (True, 0)


class TestConsumerGroups:
    def test_members_are_refused_with_a_message_and_another_user_joins(self, small):
        small.topics_are(t=4)
        replies = []
        for number in range(60):
            reply_id = small.consumer_heartbeat(
                f"m{number}",
                0,
                group_id=f"g{number}",
                topics=tuple(f"unknown-{number}-{one}" for one in range(100)),
                owned=frozenset(),
                rebalance_timeout_ms=1_000,
            )
            replies.append(small.replies[reply_id])
        assert {reply.error for reply in replies} == {ErrorCode.NONE, REFUSED}
        assert "group.metadata.max.bytes" in replies[-1].message
        assert small.shares.held_bytes <= MAX_BYTES * 2 / 3
        small.user = "User:bob"
        member = small.consumer("bob", topics=("t",))
        small.settle(member)
        assert len(member.owned) == 4

    @pytest.mark.parametrize("subscribed", [{"topics": ("t",)}, {"regex": "t.*"}])
    def test_partitions_of_the_subscribed_topics_count_before_they_are_assigned(self, small, subscribed):
        small.topics_are(t=10_000)
        reply = small.consumer_heartbeat("m", 0, owned=frozenset(), rebalance_timeout_ms=1_000, **subscribed)
        assert small.replies[reply].error is REFUSED
        assert small.shares.held_bytes == 0

    def test_a_static_member_that_comes_back_too_large_stays_as_it_was(self, small):
        member = small.consumer("m1", topics=("t",), instance_id="i")
        small.topics_are(t=2)
        small.settle(member)
        member.leave(-2)
        held_bytes = small.shares.held_bytes
        reply = small.consumer_heartbeat(
            "m2",
            0,
            instance_id="i",
            topics=tuple(f"unknown-{number:0200}" for number in range(2_000)),
            owned=frozenset(),
            rebalance_timeout_ms=1_000,
        )
        assert small.replies[reply].error is REFUSED
        assert small.rules.consumers.get(GROUP).static_members == {"i": "m1"}
        assert small.shares.held_bytes == held_bytes


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 3), st.integers(0, 4), st.integers(0, 20_000)),
        st.tuples(st.just("static"), st.integers(0, 3), st.integers(0, 2), st.integers(0, 20_000)),
        st.tuples(st.just("consumer"), st.integers(2, 5), st.integers(0, 4), st.integers(0, 60)),
        st.tuples(st.just("leave"), st.integers(0, 5), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("commit"), st.integers(0, 6), st.integers(0, 3), st.integers(0, 4_000)),
        st.tuples(st.just("transaction"), st.integers(0, 6), st.integers(0, 3), st.integers(0, 4_000)),
        st.tuples(st.just("delete"), st.integers(0, 6), st.just(0), st.just(0)),
        st.tuples(st.just("time"), st.just(0), st.just(0), st.sampled_from([1, 5_000, REBALANCE_MS, 10**9])),
        st.tuples(st.just("fail"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=30,
)


class Operator:
    """Carries out steps on a driver, for groups that classic members, consumers and commits share."""

    def __init__(self) -> None:
        shares = ByteShares(MAX_BYTES, "group.metadata.max.bytes")
        self.driver = ShardDriver(shares=shares, initial_rebalance_delay_ms=0, offsets_retention_minutes=60)
        self.driver.topics_are(t=3, u=20)

    def step(self, name: str, group: int, number: int, size: int) -> None:
        driver, group_id = self.driver, f"g{group}"
        driver.user = f"user-{number}"
        match name:
            case "join":
                self._join(group_id, joins_without_id=True, protocols=(("range", bytes(size)),))
            case "static":
                protocols = (("range", subscription("t", "x" * size)),)
                self._join(group_id, instance_id=f"i{number}", protocols=protocols)
            case "consumer":
                topics = ("t", *(f"unknown-{one}" for one in range(size)))
                regex = None if number % 2 else "u.*|t"
                driver.consumer_heartbeat(
                    f"m{number}",
                    0,
                    group_id=group_id,
                    topics=topics,
                    regex=regex,
                    owned=frozenset(),
                    rebalance_timeout_ms=5_000,
                )
            case "leave":
                self._leave(group_id, number)
            case "commit":
                driver.commit(size, partition=number, metadata="m" * size, group_id=group_id)
            case "transaction":
                producer = TxnProducer(number, 0)
                driver.txn_commit(size, producer, partition=number, metadata="m" * size, group_id=group_id)
                if size % 2:
                    driver.end_transaction(producer, committed=size % 4 == 1)
            case "delete":
                driver.delete_groups(group_id)
            case "time":
                driver.advance(size)
            case "fail":
                self._fail(group_id)
            case "crash":
                driver.crash()

    def _fail(self, group_id: str) -> None:
        """Lets all writes of two requests fail."""
        driver = self.driver
        driver.auto_ack = False
        driver.commit(1, group_id=group_id, metadata="x" * 100)
        driver.consumer_heartbeat(
            "late", 0, group_id="g5", topics=("t",), owned=frozenset(), rebalance_timeout_ms=5_000
        )
        while driver.unsent:
            driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
        driver.auto_ack = True

    def _join(self, group_id: str, **kwargs: Any) -> None:
        join = self.driver.join(group_id=group_id, **kwargs)
        self.driver.advance(1)
        reply = self.driver.replies.get(join)
        if reply is not None and reply.error is ErrorCode.NONE:
            assignments = {member.member_id: bytes(100) for member in reply.members}
            self.driver.sync(reply.generation_id, reply.member_id, assignments, group_id=group_id)

    def _leave(self, group_id: str, number: int) -> None:
        classic = self.driver.rules.classic.groups.get(group_id)
        if classic is not None and classic.members:
            member = list(classic.members.values())[number % len(classic.members)]
            self.driver.leave((member.member_id, member.instance_id), group_id=group_id)
        else:
            self.driver.consumer_heartbeat(f"m{number}", -1, group_id=group_id)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_accounts_have_what_a_walk_over_all_groups_finds(steps):
    operator = Operator()
    for step in steps:
        operator.step(*step)
        assert operator.driver.shares.held_bytes <= MAX_BYTES
    operator.driver.rules.close()
    operator.driver.shares.check_invariants()
    assert operator.driver.shares.held_bytes == 0
