"""Tests what every assignor promises, and what each one adds, against naive definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.consumer.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    Member,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    common_protocol,
    resolve_assignors,
)
from klamm.consumer.assignors.consumer_protocol import Subscription
from klamm.errors import ConfigError
from klamm.model import TopicPartition

TOPICS = ("apple", "berry", "cherry")
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), min_size=1)
member_counts = st.integers(1, 6)


def member(name: str, topics=TOPICS, owned=(), generation_id=-1, **more) -> Member:
    subscription = Subscription(topics=tuple(topics), owned=tuple(owned), generation_id=generation_id)
    return Member(member_id=name, subscription=subscription, **more)


@st.composite
def groups(draw) -> list[Member]:
    topics = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
    return [member(f"m{number}", draw(topics)) for number in range(draw(member_counts))]


def everything(counts, members) -> set[TopicPartition]:
    subscribed = {topic for member in members for topic in member.subscription.topics}
    return {TopicPartition(topic, n) for topic in subscribed for n in range(counts.get(topic, 0))}


def check_complete_and_disjoint(counts, members, assignments) -> None:
    flat = [tp for assigned in assignments.values() for tp in assigned]
    assert len(flat) == len(set(flat))
    assert set(flat) == everything(counts, members)
    assert set(assignments) == {member.member_id for member in members}
    for member in members:
        assert {tp.topic for tp in assignments[member.member_id]} <= set(member.subscription.topics)


def sizes(assignments) -> list[int]:
    return sorted(len(assigned) for assigned in assignments.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts=counts_of_topics, members=groups())
def test_each_partition_is_assigned_to_exactly_one_subscribed_member(name, counts, members):
    check_complete_and_disjoint(counts, members, ASSIGNORS[name]().assign(counts, members))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts=counts_of_topics, members=groups(), data=st.data())
def test_the_order_of_members_does_not_matter(name, counts, members, data):
    shuffled = data.draw(st.permutations(members))
    assert ASSIGNORS[name]().assign(counts, members) == ASSIGNORS[name]().assign(counts, shuffled)


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
@given(counts=counts_of_topics, count=member_counts)
def test_equal_subscriptions_are_balanced_within_one(name, counts, count):
    loads = sizes(ASSIGNORS[name]().assign(counts, [member(f"m{n}") for n in range(count)]))
    assert loads[-1] - loads[0] <= 1


@given(counts=counts_of_topics, count=member_counts)
def test_range_is_contiguous_and_balanced_by_topic(counts, count):
    assignments = RangeAssignor().assign(counts, [member(f"m{n}") for n in range(count)])
    for topic in counts:
        shares = [[tp.partition for tp in assigned if tp.topic == topic] for assigned in assignments.values()]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        for share in shares:
            assert not share or share == list(range(share[0], share[0] + len(share)))


def test_range_assigns_as_in_kafkas_documentation():
    assignments = RangeAssignor().assign({"t0": 3, "t1": 3}, [member("C1", ("t0", "t1")), member("C0", ("t0", "t1"))])
    assert assignments["C0"] == [TopicPartition("t0", 0), TopicPartition("t0", 1), *[("t1", 0), ("t1", 1)]]
    assert assignments["C1"] == [("t0", 2), ("t1", 2)]


def test_roundrobin_assigns_as_in_kafkas_documentation():
    counts = {"t0": 1, "t1": 2, "t2": 3}
    members = [member("C0", ("t0",)), member("C1", ("t0", "t1")), member("C2", ("t0", "t1", "t2"))]
    assignments = RoundRobinAssignor().assign(counts, members)
    assert assignments == {
        "C0": [("t0", 0)],
        "C1": [("t1", 0)],
        "C2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)],
    }


def test_static_members_keep_their_partitions_with_a_new_member_id():
    old = [member("z", group_instance_id="one"), member("y", group_instance_id="two"), member("a")]
    new = [replace(old[0], member_id="b"), *old[1:]]
    before = RangeAssignor().assign({"apple": 5}, old)
    after = RangeAssignor().assign({"apple": 5}, new)
    assert after["b"] == before["z"]
    assert after["y"] == before["y"]


# --- sticky: rebalances one after the other


def next_generation(assignments, topics_of, generation_id: int, cooperative: bool) -> list[Member]:
    """Returns the members as they join the next generation, with the partitions that they were assigned."""
    assignor = StickyAssignor()
    members = []
    for name, topics in topics_of.items():
        owned = assignments.get(name, [])
        if cooperative:
            members.append(member(name, topics, owned, generation_id))
        else:
            data = assignor.user_data(owned, generation_id)
            members.append(Member(member_id=name, subscription=Subscription(topics=tuple(topics), user_data=data)))
    return members


def settle(counts, assignments, topics_of, generation_id: int):
    """Runs cooperative rebalances until no member must revoke a partition, at most the two of KIP-429."""
    for round_number in range(3):
        members = next_generation(assignments, topics_of, generation_id + round_number, cooperative=True)
        held = {name: set(assignments.get(name, ())) for name in topics_of}
        assigned = CooperativeStickyAssignor().assign(counts, members)
        for name in topics_of:
            for other in topics_of:
                if name != other:
                    assert not set(assigned[name]) & held[other], "given before its owner gave it up"
        revoked = any(held[name] - set(assigned[name]) for name in topics_of)
        assignments = {name: list(partitions) for name, partitions in assigned.items()}
        if not revoked:
            return assignments, round_number + 1
    raise AssertionError("cooperative rebalances do not end")


memberships = st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=2, max_size=5)


def minimal_moves(before, names, total: int) -> int:
    """Returns the number of partitions that must move.

    These are the leavers' partitions, and those that a survivor owns above a balanced share.
    """
    kept = sorted((len(before.get(name, ())) for name in names), reverse=True)
    each, extra = divmod(total, len(names))
    return total - sum(min(have, each + (rank < extra)) for rank, have in enumerate(kept))


@given(counts=counts_of_topics, history=memberships)
def test_sticky_moves_the_minimum_of_partitions(counts, history):
    total = sum(counts.values())
    before = StickyAssignor().assign(counts, [member(name) for name in history[0]])
    for generation_id, names in enumerate(history[1:], start=1):
        topics_of = dict.fromkeys(sorted(names), TOPICS)
        after = StickyAssignor().assign(counts, next_generation(before, topics_of, generation_id, cooperative=False))
        moved = sum(len(set(after[name]) - set(before.get(name, ()))) for name in names)
        assert moved == minimal_moves(before, names, total)
        loads = sizes(after)
        assert loads[-1] - loads[0] <= 1
        before = after


@given(counts=counts_of_topics, history=memberships)
def test_cooperative_sticky_settles_in_two_rounds(counts, history):
    assignments = {}
    for generation_id, names in enumerate(history):
        topics_of = dict.fromkeys(sorted(names), TOPICS)
        before = {name: assignments.get(name, []) for name in names}
        assignments, rounds = settle(counts, before, topics_of, 10 * generation_id)
        assert rounds <= 2
        assert {tp for owned in assignments.values() for tp in owned} == {
            TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)
        }
        loads = sizes(assignments)
        assert loads[-1] - loads[0] <= 1


def improvable(assignments, topics_of) -> bool:
    """Returns True if a naive search finds a partition that could move to a member with at least two fewer."""
    return any(
        tp.topic in topics_of[poor] and len(assignments[poor]) + 2 <= len(owned)
        for owned in assignments.values()
        for tp in owned
        for poor in topics_of
    )


@given(counts=counts_of_topics, members=groups())
def test_sticky_balances_unequal_subscriptions_as_far_as_possible(counts, members):
    topics_of = {member.member_id: member.subscription.topics for member in members}
    assert not improvable(StickyAssignor().assign(counts, members), topics_of)


@given(counts=counts_of_topics, members=groups())
def test_sticky_changes_nothing_when_nothing_changed(counts, members):
    topics_of = {member.member_id: member.subscription.topics for member in members}
    first = StickyAssignor().assign(counts, members)
    again = StickyAssignor().assign(counts, next_generation(first, topics_of, 1, cooperative=False))
    assert again == first


def test_the_claim_of_the_newer_generation_wins_and_equal_claims_withhold_the_partition():
    tp = TopicPartition("apple", 0)
    stale = member("a", ("apple",), [tp], generation_id=3)
    fresh = member("b", ("apple",), [tp], generation_id=4)
    assert CooperativeStickyAssignor().assign({"apple": 1}, [stale, fresh])["a"] == []
    twins = [member("a", ("apple",), [tp], 4), member("b", ("apple",), [tp], 4)]
    assert sizes(CooperativeStickyAssignor().assign({"apple": 1}, twins)) == [0, 0], "both hold it: withheld"


@pytest.mark.parametrize("data", [b"\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_user_data_that_does_not_parse_claims_no_partition(data):
    members = [Member(member_id="a", subscription=Subscription(topics=("apple",), user_data=data))]
    assert StickyAssignor().assign({"apple": 2}, members) == {"a": [("apple", 0), ("apple", 1)]}


# --- choosing assignors


def test_a_list_with_one_eager_assignor_uses_the_eager_protocol():
    both = resolve_assignors(("range", "cooperative-sticky"))
    assert common_protocol(both) is RebalanceProtocol.EAGER
    assert common_protocol(resolve_assignors(("cooperative-sticky",))) is RebalanceProtocol.COOPERATIVE


@pytest.mark.parametrize("strategies", [(), ("range", "range"), ("unheard-of",)])
def test_an_empty_duplicate_or_unknown_assignor_list_is_refused(strategies):
    with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy"):
        resolve_assignors(strategies)
