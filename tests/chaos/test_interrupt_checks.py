"""The checks of the workload "interrupts" find what they are for."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.klammchaos.interrupt_load import RECORDS_PER_TRANSACTION, Known
from tests.chaos.klammchaos.interrupt_workload import check_handled, check_sent, check_transactions
from tests.support.violation import Violation


def records(run: str, *numbers: int) -> Counter[str]:
    return Counter(f"{run}:{number}" for number in numbers)


def test_the_record_of_an_interrupted_send_may_be_there_or_not() -> None:
    known = Known(returned=Counter({"a": 2}))
    check_sent(records("a", 0, 1), known)
    check_sent(records("a", 0, 1, 2) + records("first-send-interrupted", 0), known)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (records("a", 0), "lost: 1"),
        (records("a", 0, 1, 3), "there, too: 3"),
        (records("a", 0, 1, 1), "more than once: 1"),
        (records("a", 0, 1) + records("b", 0, 1), "more than the record that was interrupted: b"),
    ],
)
def test_lost_doubled_and_unknown_records_are_found(found: Counter[str], message: str) -> None:
    with pytest.raises(Violation, match=message):
        check_sent(found, Known(returned=Counter({"a": 2})))


def test_a_transaction_is_whole_or_absent_and_whole_if_it_committed() -> None:
    whole = records("a", *range(RECORDS_PER_TRANSACTION))
    check_transactions(whole, Known(committed={"a": True}))
    check_transactions(whole, Known(committed={"a": None}))
    check_transactions(Counter(), Known(committed={"a": None}))
    for found, is_committed in ((records("a", 0), None), (Counter[str](), True), (whole + records("a", 0), None)):
        with pytest.raises(Violation):
            check_transactions(found, Known(committed={"a": is_committed}))


def test_a_record_is_handled_and_twice_only_after_an_interrupt() -> None:
    check_handled({"1", "2"}, Known(handled=Counter(["1", "2", "2"]), interrupted_readers={"2"}))
    with pytest.raises(Violation, match="no consumer handled these records: 2"):
        check_handled({"1", "2"}, Known(handled=Counter(["1"])))
    with pytest.raises(Violation, match="handled twice, although nothing was interrupted: 1"):
        check_handled({"1", "2"}, Known(handled=Counter(["1", "1", "2"]), interrupted_readers={"2"}))
