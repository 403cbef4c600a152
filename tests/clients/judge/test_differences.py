"""Tests the search for differences between two answers, and the page of known differences."""

from __future__ import annotations

import pytest

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge import differences_page
from tests.clients.judge.differ import Found, differences
from tests.clients.judge.known_differences import EVERY, KNOWN, Difference, check
from tests.clients.judge.sweep import CASES

NONE, UNKNOWN = "none", "unknown_member_id"


def topic(name: str, *codes: str) -> dict[str, object]:
    return {"name": name, "partitions": [{"index": number, "error_code": code} for number, code in enumerate(codes)]}


@pytest.mark.parametrize(
    ("ours", "kafka", "found"),
    [
        ([topic("a", NONE), topic("b")], [topic("b"), topic("a", NONE)], []),
        ([topic("a", NONE)], [topic("a", UNKNOWN)], [Found("t.partitions.error_code", NONE, UNKNOWN)]),
        ([topic("a", NONE, UNKNOWN)], [topic("a", NONE)], [Found("t.partitions", f"1 {UNKNOWN}", "nothing")]),
        ([topic("a"), topic("a")], [topic("a")], [Found("t", "a", "nothing")]),
        ([], None, [Found("t", "[]", "null")]),
    ],
)
def test_list_items_are_compared_with_items_of_the_same_name(ours: object, kafka: object, found: list[Found]) -> None:
    assert list(differences({"t": ours}, {"t": kafka})) == found


def test_a_closed_connection_differs_from_an_answer() -> None:
    (found,) = differences("closes the connection", {"topics": [topic("a", UNKNOWN)]})
    assert found == Found("", "closes the connection", f"answers {UNKNOWN}")


HEARTBEAT = ApiKey.HEARTBEAT
CODE = Found("error_code", NONE, UNKNOWN)
MEMBER = Found("member_id", "m", "null")


def known(cases: tuple[str, ...] = ("a case",), **settings: bool) -> Difference:
    return Difference(HEARTBEAT, cases, "error_*", NONE, "unknown*", "because", **settings)


def test_a_known_difference_is_expected_only_in_its_own_field_and_case() -> None:
    assert check(HEARTBEAT, {("a case", CODE): [0, 1]}, [known()]) == ([], [])
    unexpected, vanished = check(HEARTBEAT, {("a case", CODE): [0], ("a case", MEMBER): [0, 1]}, [known()])
    assert (len(unexpected), vanished) == (1, [])
    assert "version 0 to 1: member_id: ours m, Kafka's null" in unexpected[0]
    assert len(check(HEARTBEAT, {("a case", CODE): [0], ("other", CODE): [0]}, [known()])[0]) == 1


def test_a_difference_that_is_marked_as_intermittent_may_be_absent() -> None:
    assert check(HEARTBEAT, {}, [known(comes_and_goes=True)]) == ([], [])
    assert check(HEARTBEAT, {("a case", CODE): [0]}, [known(comes_and_goes=True)]) == ([], [])
    assert len(check(HEARTBEAT, {}, [known()])[1]) == 1


def test_other_fields_may_differ_too_where_the_table_says_so() -> None:
    both = {("a case", CODE): [0], ("a case", MEMBER): [0]}
    assert check(HEARTBEAT, both, [known(with_others=True)]) == ([], [])
    unexpected, vanished = check(HEARTBEAT, {("a case", MEMBER): [0]}, [known(with_others=True)])
    assert (len(unexpected), len(vanished)) == (1, 1)


def test_a_known_difference_that_has_vanished_is_reported() -> None:
    assert len(check(HEARTBEAT, {}, [known()])[1]) == 1
    assert len(check(HEARTBEAT, {("a case", CODE): [0]}, [known(("a case", "other"))])[1]) == 1
    assert check(HEARTBEAT, {("a case", CODE): [0]}, [known(EVERY)]) == ([], [])
    assert len(check(HEARTBEAT, {}, [known(EVERY)])[1]) == 1


def test_the_table_of_differences_names_only_existing_cases() -> None:
    wrong = [
        (one.api_key.name, case)
        for one in KNOWN
        for case in one.cases
        if case not in CASES[one.api_key] and case != "*"
    ]
    assert wrong == []


def test_the_differences_page_is_what_its_generator_writes() -> None:
    assert differences_page.PAGE.read_text() == differences_page.page(), "differences_page.py writes it"
