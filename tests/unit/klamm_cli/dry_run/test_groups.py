"""Tests the refusals of a coordinator that a dry run foresees."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.admin import GroupDescription, MemberDescription
from klamm.model import TopicPartition
from klamm_cli.dry_run.groups import deletion_errors, offset_deletion_errors, removal_errors

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)


def member(*assignment: TopicPartition, **changes: Any) -> MemberDescription:
    values: dict[str, Any] = {"group_instance_id": None, "topics": (), **changes}
    return MemberDescription(member_id="m", client_id="c", client_host="h", assignment=assignment, **values)


def group(*members: MemberDescription, state: str = "Stable", protocol_type: str = "consumer") -> GroupDescription:
    return GroupDescription(
        group_id="billing",
        state=state,
        protocol_type=protocol_type,
        assignor="",
        generation_id=1,
        leader="",
        coordinator_id=1,
        members=members,
    )


@pytest.mark.parametrize(
    ("described", "codes"),
    [
        (group(), []),
        (group(member(ORDERS)), ["GROUP_SUBSCRIBED_TO_TOPIC"]),
        (group(member(topics=("orders",))), ["GROUP_SUBSCRIBED_TO_TOPIC"]),
        (group(member(target=(ORDERS,))), ["GROUP_SUBSCRIBED_TO_TOPIC"]),
        (group(member(), state="PreparingRebalance"), ["GROUP_SUBSCRIBED_TO_TOPIC"] * 2),
        (group(member(ORDERS), protocol_type="connect"), ["NON_EMPTY_GROUP"]),
    ],
)
def test_offsets_of_topics_in_use_are_not_deleted(described, codes) -> None:
    assert [error.code.name for error in offset_deletion_errors(described, [ORDERS, BILLS])] == codes


def test_only_groups_without_members_are_deleted() -> None:
    assert [error.code.name for error in deletion_errors([group(), group(member())])] == ["NON_EMPTY_GROUP"]


def test_only_members_are_removed() -> None:
    described = group(member(group_instance_id="a"))
    assert [str(error) for error in removal_errors(described, ["a", "b"])] == [
        "UNKNOWN_MEMBER_ID: b: group 'billing' has no such member"
    ]
