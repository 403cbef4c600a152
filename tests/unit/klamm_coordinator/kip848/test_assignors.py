"""Tests the assignors on the server: what any result must satisfy, and the purpose of each assignor."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_coordinator.kip848.assignors import ASSIGNORS, AssignedMember, assign_ranges, assign_uniformly
from klamm_coordinator.records.consumer_group_schemas import TopicIdPartition, TopicMetadata
from tests.support import seeds

NAMES = ("a", "b", "c", "d")


def topic(name: str, count: int) -> TopicMetadata:
    return TopicMetadata(name.encode() * 16, name, count)


def member(*topics: str, before=(), instance_id=None) -> AssignedMember:
    return AssignedMember(instance_id=instance_id, topics=frozenset(topics), before=frozenset(before))


def after(members, targets):
    """Returns the same members after they own their targets."""
    return {
        member_id: AssignedMember(
            instance_id=member.instance_id, topics=member.topics, before=frozenset(targets.get(member_id, ()))
        )
        for member_id, member in members.items()
    }


def numbers(targets, name):
    return {
        member_id: sorted(one.partition for one in target if one.topic_id == name.encode() * 16)
        for member_id, target in targets.items()
    }


topics_of = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)).map(
    lambda counts: tuple(topic(name, count) for name, count in sorted(counts.items()))
)
members_of = st.dictionaries(
    st.integers(0, 9).map(lambda number: f"m{number}"),
    st.sets(st.sampled_from((*NAMES, "gone")), min_size=1),
    min_size=1,
).map(lambda subscriptions: {name: member(*topics) for name, topics in sorted(subscriptions.items())})


@given(topics_of, members_of, st.sampled_from(sorted(ASSIGNORS)), topics_of, members_of)
@settings(max_examples=seeds.examples(150))
def test_each_subscribed_partition_is_assigned_to_exactly_one_subscribed_member(
    topics, members, name, former_topics, former
):
    """This also holds after members and topics have changed."""
    former_targets = ASSIGNORS[name](former_topics, former)
    now = {
        member_id: AssignedMember(
            instance_id=None, topics=member.topics, before=frozenset(former_targets.get(member_id, ()))
        )
        for member_id, member in members.items()
    }

    targets = ASSIGNORS[name](topics, now)

    given_out = [partition for target in targets.values() for partition in target]
    wanted = {
        TopicIdPartition(topic.topic_id, number)
        for topic in topics
        if any(topic.name in each.topics for each in now.values())
        for number in range(topic.partition_count)
    }
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted
    names = {topic.topic_id: topic.name for topic in topics}
    assert all(names[one.topic_id] in now[reader].topics for reader, target in targets.items() for one in target)


@given(topics_of, members_of, members_of)
@settings(max_examples=seeds.examples(150))
def test_uniform_assignment_counts_differ_by_at_most_one_if_a_partition_could_move(topics, former, members):
    targets = assign_uniformly(topics, after(former, assign_uniformly(topics, former)))
    targets = assign_uniformly(
        topics,
        {name: member(*one.topics, before=targets.get(name, ())) for name, one in members.items()},
    )

    names = {topic.topic_id: topic.name for topic in topics}
    for giver, target in targets.items():
        for to, other in targets.items():
            could_give = any(names[one.topic_id] in members[to].topics for one in target)
            assert not could_give or len(target) - len(other) <= 1, (giver, to)


@given(topics_of, members_of)
def test_an_assignment_is_stable_if_nothing_changed(topics, members):
    """Ranges are stable only if all members read the same topics.

    Otherwise the ranges of a topic differ between members.
    """
    alike = dict.fromkeys(members, member(*NAMES))
    for assign, readers in ((assign_uniformly, members), (assign_uniformly, alike), (assign_ranges, alike)):
        targets = assign(topics, readers)
        assert assign(topics, after(readers, targets)) == targets, assign


def test_a_new_member_gets_its_share_and_no_other_partition_moves():
    topics = (topic("a", 6), topic("b", 6))
    two = {"m1": member("a", "b"), "m2": member("a", "b")}
    before = assign_uniformly(topics, two)

    targets = assign_uniformly(topics, {**after(two, before), "m3": member("a", "b")})

    assert {name: len(target) for name, target in targets.items()} == {"m1": 4, "m2": 4, "m3": 4}
    assert targets["m1"] < before["m1"]
    assert targets["m2"] < before["m2"]


def test_ranges_of_topics_with_equal_partition_counts_are_co_partitioned():
    topics = (topic("a", 5), topic("b", 5))
    targets = assign_ranges(topics, {name: member("a", "b") for name in ("m1", "m2", "m3")})

    assert numbers(targets, "a") == numbers(targets, "b") == {"m1": [0, 1], "m2": [2, 3], "m3": [4]}


def test_range_assignments_keep_the_member_order_when_a_member_joins():
    topics = (topic("a", 6),)
    two = {"m5": member("a"), "m7": member("a")}
    before = assign_ranges(topics, two)

    targets = assign_ranges(topics, {"m1": member("a"), **after(two, before)})

    assert numbers(targets, "a") == {"m5": [0, 1], "m7": [2, 3], "m1": [4, 5]}


@given(topics_of, members_of)
def test_range_assignments_are_contiguous(topics, members):
    targets = assign_ranges(topics, members)

    for topic in topics:
        for held in numbers(targets, topic.name).values():
            assert all(second == first + 1 for first, second in pairwise(held))
