"""Tests that members' regular expressions have a bound of memory and time."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm_coordinator.kip848.patterns import INSTRUCTIONS_MAX, check_pattern, matching
from klamm_coordinator.kip848.subscribe import REGEXES_MAX
from klamm_coordinator.records.consumer_group_schemas import MemberKey, RegexKey
from klamm_coordinator.records.schemas import GroupRecord
from tests.unit.klamm_coordinator.conftest import GROUP

NAMES = [f"team-{number}.orders" for number in range(100)]
SLOW = ("((.*)*(.*)*)*" * 900 + "!", "|".join(f".*{number}.*" for number in range(2_000)), "(?:a?){1000}" * 3)
"""Expressions that are short, but of which RE2 makes large programs. Matched with captures, the first one takes 400 ms
for a name of 30 characters."""


@pytest.mark.parametrize("expression", SLOW)
def test_an_expression_with_a_large_program_is_refused(expression):
    with pytest.raises(BrokerError, match=r"instructions|pattern too large") as refusal:
        check_pattern(expression)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(str(refusal.value)) < 500


def test_an_expression_at_the_bound_is_accepted():
    assert matching("|".join(NAMES[:90]), NAMES) == tuple(sorted(NAMES[:90]))
    assert len("|".join(NAMES[:90])) < INSTRUCTIONS_MAX


def test_groups_are_matched_though_they_are_not_captured():
    assert matching(r"(team)-(1|2)\.(?P<kind>orders)", NAMES) == ("team-1.orders", "team-2.orders")


def test_compiled_expressions_are_forgotten():
    tracemalloc.start()
    for number in range(2_000):
        check_pattern(f"{number}" * 100)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 500_000


def test_a_stored_expression_that_is_too_large_matches_what_it_matched_before(driver):
    driver.topics_are(t=1)
    member = driver.consumer("m", regex="t.*")
    driver.settle(member)
    group = driver.rules.consumers.get(GROUP)
    stored = replace(group.members["m"], subscribed_topic_regex=SLOW[0])
    for key, value in (
        (MemberKey(GROUP, "m"), stored),
        (RegexKey(GROUP, SLOW[0]), group.regexes["t.*"]),
        (RegexKey(GROUP, "t.*"), None),
    ):
        driver.rules.state.replay(GroupRecord(key, value))
    driver.topics_are(t=1, t2=1)
    assert member.heartbeat().error is ErrorCode.NONE
    assert group.subscribed_topics() == {"t"}


def test_a_group_has_a_bounded_number_of_expressions(driver):
    driver.topics_are(t=1)

    def join(number: int) -> ErrorCode:
        reply = driver.consumer_heartbeat(
            f"m{number}", 0, regex=f"t|{number}", owned=frozenset(), rebalance_timeout_ms=1_000
        )
        return driver.replies[reply].error

    assert {join(number) for number in range(REGEXES_MAX)} == {ErrorCode.NONE}
    assert join(REGEXES_MAX) is ErrorCode.INVALID_REGULAR_EXPRESSION
    same = driver.consumer_heartbeat("more", 0, regex="t|0", owned=frozenset(), rebalance_timeout_ms=1_000)
    assert driver.replies[same].error is ErrorCode.NONE
