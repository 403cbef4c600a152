"""Tests that each check of the log checker finds the violation that it is for, and no other one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.chaos.klammchaos import planted_violations
from tests.chaos.klammchaos.planted_violations import PLANTED, prove
from tests.support.log_checker import Consumption, History, Outcome, Read, Send, check, summary

PRODUCERS, COUNT = 3, 20
SKIPS = "nonmonotonic-poll", "poll-skip"
"""Two kinds of anomalies. A consumer that leaps back and forth has both."""


def sound() -> History:
    """Returns a sound history. Producers take turns, and each waits for its acknowledgement. One value is in the log
    although it was never acknowledged."""
    sends, log = [], []
    for number in range(COUNT):
        for producer in range(PRODUCERS):
            offset = len(log)
            value = (producer, number)
            log.append(Read(0, offset, value))
            sends.append(Send(0, value, Outcome.OK, offset, began_s=offset, ended_s=offset + 0.5))
    unsure = sends[10]
    sends[10] = unsure._replace(outcome=Outcome.UNKNOWN, offset=None)
    sends.append(Send(0, (PRODUCERS, 0), Outcome.UNKNOWN, None, began_s=0, ended_s=100))
    sends.append(Send(0, (PRODUCERS, 1), Outcome.FAILED, None, began_s=0, ended_s=100))
    return History(
        sends=sends, consumptions=[consumption([log[:30], log[30:]]), consumption([log[5:15]], begin=5)], final={0: log}
    )


def consumption(polls: list[list[Read]], begin: int = 0, partition: int = 0) -> Consumption:
    return Consumption({partition: begin}, polls)


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


def with_final(history: History, log: list[Read]) -> History:
    return replace(history, final={0: log})


def test_a_sound_history_has_no_anomalies():
    assert check(sound()) == []
    assert summary([]) == "no anomalies"


def test_a_history_of_two_partitions_has_no_anomalies():
    history = sound()
    second = [read._replace(partition=1) for read in history.final[0]]
    sends = [*history.sends, *(send._replace(partition=1) for send in history.sends)]
    assert (
        check(
            History(
                sends=sends,
                consumptions=[*history.consumptions, consumption([second], partition=1)],
                final={**history.final, 1: second},
            )
        )
        == []
    )


def test_a_lost_tail_is_a_lost_write_and_vanished():
    history = sound()
    assert kinds(with_final(history, list(history.final[0][:-1]))) == {"lost-write", "vanished"}


def test_an_acknowledged_record_missing_in_the_log_is_a_lost_write():
    history = replace(sound(), consumptions=[])
    log = [read for read in history.final[0] if read.offset != 30]
    assert kinds(with_final(history, log)) == {"lost-write"}


def test_another_value_at_an_acknowledged_offset_is_inconsistent():
    history = replace(sound(), consumptions=[])
    log = list(history.final[0])
    log[-1] = log[-1]._replace(value=(PRODUCERS, 0))
    assert kinds(with_final(history, log)) == {"inconsistent-offset", "lost-write"}


def test_a_retry_that_was_written_twice_is_a_duplicate():
    history = sound()
    again = Read(0, len(history.final[0]), history.final[0][-1].value)
    assert kinds(with_final(history, [*history.final[0], again])) == {"duplicate"}


def test_a_record_that_its_producer_may_have_sent_again_as_a_new_one_may_be_there_twice():
    history = sound()
    log = [*history.final[0], Read(0, len(history.final[0]), history.sends[0].value)]
    assert kinds(with_final(history, log)) == {"duplicate", "reordered-send"}
    again, *others = history.sends
    history = replace(history, sends=[again._replace(may_repeat=True), *others])
    assert kinds(with_final(history, log)) == set()
    another = Read(0, len(log), others[0].value)
    assert kinds(with_final(history, [*log, another])) == {"duplicate", "reordered-send"}


def test_a_failed_write_in_the_log_is_an_anomaly():
    history = sound()
    ghost = Read(0, len(history.final[0]), (PRODUCERS, 1))
    assert kinds(with_final(history, [*history.final[0], ghost])) == {"failed-write"}


def test_a_value_that_no_producer_sent_is_foreign():
    history = sound()
    alien = Read(0, len(history.final[0]), (99, 0))
    assert kinds(with_final(history, [*history.final[0], alien])) == {"foreign-value"}


def test_a_retry_that_overtook_an_earlier_send_is_reordered():
    history = replace(sound(), consumptions=[])
    log = list(history.final[0])
    first, second = log[6].value, log[9].value
    log[6], log[9] = log[6]._replace(value=second), log[9]._replace(value=first)
    sends = [
        send._replace(offset=None, outcome=Outcome.UNKNOWN) if send.value in (first, second) else send
        for send in history.sends
    ]
    assert kinds(History(sends=sends, consumptions=[], final={0: log})) == {"reordered-send"}


def test_an_acknowledged_value_behind_a_later_send_breaks_realtime_order():
    history = replace(sound(), consumptions=[])
    sends = list(history.sends)
    sends[7] = sends[7]._replace(began_s=50, ended_s=51)
    assert kinds(replace(history, sends=sends)) == {"realtime-order"}


def test_a_record_that_was_consumed_and_then_truncated_has_vanished():
    history = sound()
    shown = Read(0, len(history.final[0]), (PRODUCERS, 0))
    assert kinds(
        replace(history, consumptions=[*history.consumptions, consumption([[shown]], begin=shown.offset)])
    ) == {"vanished"}


@pytest.mark.parametrize(
    ("polls", "kind"),
    [
        (((3,), (4,), (4, 5)), "nonmonotonic-poll"),
        (((3, 4), (2, 3)), "nonmonotonic-poll"),
        (((2,), (3,)), "nonmonotonic-poll"),
        (((3,), (4, 4)), "int-nonmonotonic-poll"),
        (((3, 5, 4),), "int-nonmonotonic-poll"),
        (((3,), (4,), (6,)), "poll-skip"),
        (((4,), (5,)), "poll-skip"),
        (((3, 4, 6),), "int-poll-skip"),
    ],
)
def test_a_consumer_that_skips_or_repeats_records_is_found(polls, kind):
    """The check finds a consumer that began at 3 and then skipped or repeated records."""
    history = sound()
    leaping = consumption([[history.final[0][offset] for offset in poll] for poll in polls], begin=3)
    assert kind in kinds(replace(history, consumptions=[*history.consumptions, leaping]))
    assert kinds(replace(history, consumptions=[*history.consumptions, leaping])) <= {kind, kind.replace(*SKIPS)}


def test_an_acknowledged_record_that_no_consumer_received_is_unseen():
    history = sound()
    early = consumption([history.final[0][:-1]])
    assert kinds(replace(history, consumptions=[early])) == {"unseen"}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_violation_is_found(kind):
    assert kind in kinds(PLANTED[kind](sound(), random.Random(1)))


def test_prove_plants_every_violation_and_counts_the_records():
    assert prove(sound(), random.Random(1)) == PRODUCERS * COUNT


def test_prove_accepts_an_acknowledged_record_of_unknown_offset_after_the_excerpt(monkeypatch: pytest.MonkeyPatch):
    """A client does not learn the offset when the broker answers a retry of a batch that it has written already."""
    monkeypatch.setattr(planted_violations, "EXCERPT_RECORDS", 30)
    history = sound()
    sends = list(history.sends)
    sends[40] = sends[40]._replace(offset=None)
    assert prove(replace(history, sends=sends), random.Random(1)) == 30


def test_a_gap_of_offsets_is_no_skip():
    """A log may lack some offsets, because consumers never get control batches, and compaction removes records."""
    history = sound()
    log = [read._replace(offset=2 * read.offset) for read in history.final[0]]
    sends = [send if send.offset is None else send._replace(offset=2 * send.offset) for send in history.sends]
    assert check(History(sends=sends, consumptions=[consumption([log])], final={0: log})) == []


def test_the_summary_counts_anomalies_and_names_records():
    history = sound()
    text = summary(check(with_final(history, list(history.final[0][:-1]))))
    assert "lost-write: 1" in text
    assert "(2, 19) was acknowledged at offset 59" in text
