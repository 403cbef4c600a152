"""Tests that each situation has its cause, and that nothing is wrong with groups that keep up."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.admin.types import GroupDescription, GroupLagDescription, MemberDescription, PartitionLagDescription
from klamm.model import TopicPartition
from klamm_cli.why import causes as module
from klamm_cli.why.causes import causes, hot_partition
from klamm_cli.why.facts import KeySample, KeyShare, OpenTransaction, WhyFacts, Written
from klamm_cli.why.report import advice, document, headline, lines, member_rows, partition_rows

NOW = 1_700_000_000_000
S, MINUTE, HOUR = 1_000, 60_000, 3_600_000
READING = {
    "committed_offset": 1_000,
    "committed_ms": NOW - 4 * S,
    "unchanged_since_ms": NOW - 4 * S,
    "last_stable_offset": 2_000,
    "consumed_per_s": 100.0,
    "produced_per_s": 100.0,
}
WELL = {**READING, "lag": 40, "behind_ms": 4 * S}
BEHIND = {**READING, "lag": 9_000, "behind_ms": 5 * MINUTE}
READ = {**READING, "lag": 0, "behind_ms": 0}


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def facts(
    partitions: Sequence[Mapping[str, Any]],
    *,
    members: Sequence[Sequence[int]] = ((0, 1, 2, 3),),
    state: str = "Stable",
    poll_ms: int | None = None,
    written: Mapping[int, Written] | None = None,
    lag: Mapping[str, Any] | None = None,
    **more: Any,
) -> WhyFacts:
    """Returns the facts about a group. Each member has the partitions with these numbers."""
    return WhyFacts(
        description=GroupDescription(
            group_id="billing",
            state=state,
            protocol_type="consumer",
            assignor="range",
            generation_id=3,
            leader="",
            coordinator_id=1,
            members=tuple(
                MemberDescription(
                    member_id=f"m{place}",
                    group_instance_id=None,
                    client_id=f"reader-{place}",
                    client_host=f"10.0.0.{place}",
                    topics=("orders",),
                    assignment=tuple(map(tp, numbers)),
                    rebalance_timeout_ms=poll_ms,
                )
                for place, numbers in enumerate(members)
            ),
        ),
        lag=GroupLagDescription(
            group_id="billing",
            time_ms=NOW,
            partitions=tuple(
                PartitionLagDescription(**{"tp": tp(number), **values}) for number, values in enumerate(partitions)
            ),
            **(lag or {}),
        ),
        written=written if written is not None else {},
        **more,
    )


def evenly(count: int = 4, per_s: float = 100.0, before_per_s: float | None = 100.0) -> dict[TopicPartition, Written]:
    return {tp(number): Written(60_000, per_s, before_per_s) for number in range(count)}


def kinds(found: WhyFacts) -> list[str]:
    return [cause.kind for cause in causes(found)]


@pytest.mark.parametrize(
    "well",
    [
        facts([READ] * 4, written=evenly()),
        facts([WELL] * 4, written=evenly()),
        facts([READ] * 4, members=(), state="Empty"),
        facts([READ, READ], members=((0,), (1,), ()), written=evenly(2)),
        facts([{**WELL, "lag": 20_000}] * 4, written=evenly(before_per_s=1.0), lag={"rebalances_per_hour": 2.0}),
        facts([], members=()),
        facts([{}, {}], written=evenly(2)),
    ],
    ids=["read", "reading", "empty and done", "a spare member", "busy", "nothing", "no commits"],
)
def test_nothing_is_wrong_with_a_group_that_keeps_up(well: WhyFacts) -> None:
    assert kinds(well) == []
    assert lines(well, []) == [headline(well), "nothing is wrong"]


def test_a_hot_key() -> None:
    flows = {tp(number): Written(94_000 if number == 2 else 2_000, 10.0, 10.0) for number in range(4)}
    sample = KeySample(tp(2), 500, [KeyShare("cust-6", 0.91)])
    found = facts([WELL, WELL, BEHIND, WELL], written=flows, sample=sample)
    assert hot_partition(found) == tp(2)
    (cause,) = causes(found)
    assert cause.kind == "hot-partition"
    assert cause.text == (
        "orders-2 gets 94% of the records of its topic; key cust-6 has 91% of 500 records sampled there"
    )


def test_idle_members() -> None:
    found = facts([BEHIND] * 4, members=((0,), (1,), (2,), (3,), (), ()), written=evenly())
    (cause,) = causes(found)
    assert cause.text == "2 of 6 members have no partition, because there are only 4 partitions"
    rebalancing = dataclasses.replace(
        found, description=dataclasses.replace(found.description, state="PreparingRebalance")
    )
    assert kinds(rebalancing) == ["too-slow"], "their partitions may be on their way"


def test_a_slow_member() -> None:
    slow = {**BEHIND, "consumed_per_s": 10.0}
    (cause,) = causes(facts([READ, slow, READ], members=((0,), (1,), (2,)), written=evenly(3)))
    assert cause.kind == "slow-member"
    assert cause.text == (
        "member reader-1 at 10.0.0.1 has 100% of the unread records, and reads 10 records/s; the others read 100"
    )


def test_a_burst() -> None:
    flows = {tp(number): Written(500_000, 2_700.0, 100.0) for number in range(4)}
    (cause,) = causes(facts([BEHIND] * 4, written=flows))
    assert cause.text.startswith("27 times as many records are written as in the hour before: 10,800 records/s")
    unknown = {tp(number): Written(500_000, 2_700.0, None) for number in range(4)}
    assert kinds(facts([BEHIND] * 4, written=unknown)) == ["too-slow"], "the topic is new"


HELD = {
    **READING,
    "committed_offset": 2_000,
    "lag": 3_000,
    "behind_ms": 10 * MINUTE,
    "held_by_producer_id": 7,
    "held_since_ms": NOW - 10 * MINUTE,
    "unchanged_since_ms": NOW - 10 * MINUTE,
}


def test_an_open_transaction() -> None:
    known = {7: OpenTransaction("payments-1", 10 * MINUTE, 15 * MINUTE)}
    (cause,) = causes(facts([HELD, READ, READ, READ], written=evenly(), transactions=known))
    assert cause.text.startswith(
        "transaction 'payments-1' has been open for 10 min, and holds 3,000 records back in orders-0"
    )
    assert "`klamm transactions abort payments-1`" in cause.do
    (hanging,) = causes(facts([HELD], written=evenly()))
    assert hanging.text.startswith("a transaction of producer id 7 has been open")
    assert "find-hanging" in hanging.do


@pytest.mark.parametrize(
    "changes",
    [
        {"committed_offset": 1_500},
        {"held_since_ms": NOW - 20 * S},
        {"held_by_producer_id": None, "held_since_ms": None},
    ],
)
def test_a_transaction_that_holds_nothing_back_is_no_cause(changes: dict[str, Any]) -> None:
    assert "open-transaction" not in kinds(facts([{**HELD, **changes}], written=evenly(1)))


def test_a_stopped_group_whose_records_retention_deletes() -> None:
    stopped = {**BEHIND, "committed_ms": NOW - HOUR, "next_deletion_ms": NOW + 20 * MINUTE}
    first, second = causes(facts([stopped] * 4, members=(), state="Empty", written=evenly()))
    assert first.text == "the group has no members, and has committed nothing for 60 min"
    assert second.text == "retention deletes unread records in 20 min, first in orders-0"


def test_a_program_that_commits_without_joining_is_no_stopped_group() -> None:
    assert kinds(facts([BEHIND] * 4, members=(), state="Empty", written=evenly())) == ["too-slow"]


def test_lost_records() -> None:
    lost = {**READ, "lost_count": 31_747}
    (cause,) = causes(facts([lost, READ], written=evenly(2)))
    assert cause.text == "31,747 records were deleted before the group read them: orders-0"
    assert "klamm groups forget-lost billing" in cause.do


def test_a_record_that_fails_again_and_again() -> None:
    stuck = {**BEHIND, "committed_offset": 17, "unchanged_since_ms": NOW - 4 * MINUTE}
    (cause,) = causes(facts([READ, stuck], members=((0,), (1,)), written=evenly(2)))
    assert cause.text.startswith("orders-1 stays at offset 17 for 4 min: its record fails again and again")
    assert "`klamm consume orders -p 1 --from 17 -n 1`" in cause.do
    young = {**stuck, "behind_ms": 40 * S}
    assert kinds(facts([READ, young], members=((0,), (1,)), written=evenly(2))) == ["slow-member"]


SLOW = {
    **BEHIND,
    "unchanged_since_ms": NOW - 2 * MINUTE,
    "commit_interval_ms": 4 * MINUTE,
    "behind_ms": HOUR,
    "consumed_per_s": 2.0,
}
"""A partition whose member polls every four minutes, and has polled two minutes ago."""


def test_a_member_that_hardly_polls_in_time() -> None:
    quick = {**BEHIND, "commit_interval_ms": 15 * S}
    found = facts([quick, SLOW, SLOW], members=((0,), (1, 2)), poll_ms=5 * MINUTE, written=evenly(3))
    (cause,) = causes(found)
    assert cause.kind == "slow-polls"
    assert cause.text == (
        "member reader-1 at 10.0.0.1 commits every 4 min, and is removed if it does not poll for 5 min;"
        " a record takes it 250 ms"
    )
    assert "lower max.poll.records" in cause.do


@pytest.mark.parametrize(
    ("changes", "poll_ms"),
    [
        ({}, 10 * MINUTE),
        ({}, None),
        ({"commit_interval_ms": None}, 5 * MINUTE),
        ({"behind_ms": 3 * MINUTE}, 5 * MINUTE),
        ({"unchanged_since_ms": NOW - 6 * MINUTE}, 5 * MINUTE),
    ],
    ids=["time enough", "an old server", "not known", "nothing to read before", "polls no more"],
)
def test_a_member_that_may_poll_in_time(changes: Mapping[str, Any], poll_ms: int | None) -> None:
    assert "slow-polls" not in kinds(facts([{**SLOW, **changes}] * 2, members=((0, 1),), poll_ms=poll_ms))


def test_a_member_that_commits_rarely_is_not_stuck() -> None:
    assert "stuck" not in kinds(facts([SLOW] * 2, members=((0, 1),)))
    hangs = {**SLOW, "unchanged_since_ms": NOW - 9 * MINUTE}
    assert kinds(facts([hangs] * 2, members=((0, 1),))) == ["stuck"]


def test_rebalances_without_end() -> None:
    found = facts([BEHIND] * 4, written=evenly(), lag={"rebalances_per_hour": 240.0})
    (cause,) = causes(found)
    assert cause.text.startswith("the group is rebalanced again and again, 240 times an hour")


def test_a_group_that_reads_slower_than_before() -> None:
    slower = {**BEHIND, "consumed_per_s": 40.0, "consumed_before_per_s": 100.0}
    (cause,) = causes(facts([slower] * 4, written=evenly()))
    assert cause.text == "the group reads 160 records/s, in the hour before 400"


@pytest.mark.parametrize(
    ("rates", "kind", "do"),
    [
        ({"consumed_per_s": 90.0}, "too-slow", "add consumers: 1 read 4 partitions"),
        ({"consumed_per_s": 190.0}, "catching-up", "wait"),
        ({"consumed_per_s": None}, "behind", "ask again in a minute"),
    ],
)
def test_a_group_that_is_behind_everywhere(rates: dict[str, Any], kind: str, do: str) -> None:
    (cause,) = causes(facts([{**BEHIND, **rates}] * 4, written=evenly()))
    assert (cause.kind, cause.do) == (kind, do)


def test_a_partition_is_hot_only_if_it_gets_much_more_than_the_others() -> None:
    two = {tp(0): Written(55_000, 1.0, 1.0), tp(1): Written(45_000, 1.0, 1.0)}
    assert hot_partition(facts([BEHIND, WELL], written=two)) is None
    assert hot_partition(facts([BEHIND], written={tp(0): Written(10, 1.0, 1.0)})) is None, "there is only one"


def test_the_report_has_the_causes_first_and_the_advice_last() -> None:
    found = facts([READ, {**BEHIND, "lost_count": 3}, READ], members=((0,), (1,), (2,)), written=evenly(3))
    reasons = causes(found)
    assert [reason.kind for reason in reasons] == ["lost", "slow-member"]
    first, *texts = lines(found, reasons)
    assert first.endswith("; all in orders-1")
    assert texts == [reason.text for reason in reasons]
    assert advice(reasons) == [f"do: {reason.do}" for reason in reasons]
    assert partition_rows(found) == [("orders-1", 9_000, "5 min", 100.0, 100.0, "reader-1")]
    assert member_rows(found)[0] == ("reader-1", "10.0.0.1", 1, 9_000, 100.0)
    printed = document(found, reasons)
    assert [one["kind"] for one in printed["causes"]] == ["lost", "slow-member"]
    assert (printed["lag"], printed["behind_ms"], printed["lost"]) == (9_000, 5 * MINUTE, 3)


def test_members_without_a_partition_come_first() -> None:
    found = facts([BEHIND], members=((0,), ()), written={})
    assert [row[0] for row in member_rows(found)] == ["reader-1", "reader-0"]


def test_the_guide_for_consoles_lists_the_causes_in_the_order_of_the_questions():
    asked = [module._lost, *module._QUESTIONS, module._deleted_soon]
    kinds = [kind for one in asked for kind in re.findall(r'Cause\(\s*"([a-z-]+)"', inspect.getsource(one))]
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", Path("docs/how-to/call-with-grpcurl.md").read_text(), re.M)
    listed = [kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)]
    assert [kind for kind in listed if kind in kinds] == list(dict.fromkeys(kinds))
