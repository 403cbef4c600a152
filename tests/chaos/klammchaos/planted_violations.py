"""Plants violations in a sound history. With them, a run proves on its own history that each check finds its anomaly.

The key in `PLANTED` is the anomaly that must then be reported, maybe with others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tests.support.log_checker import Consumption, History, Outcome, Read, Send, check
from tests.support.violation import require

EXCERPT_RECORDS: Final = 5_000


def prove(history: History, rng: random.Random) -> int:
    """Plants each violation in an excerpt of a sound history: the first records of a partition. Returns the number of
    these records.

    Raises Violation for a planted violation that is not found."""
    excerpt = _excerpt(history, rng.choice(sorted(history.final)))
    require(not check(excerpt), "the excerpt is not sound")
    for kind, plant in PLANTED.items():
        found = {anomaly.kind for anomaly in check(plant(excerpt, rng))}
        require(kind in found, f"a planted {kind} was taken for {sorted(found)}")
    return sum(map(len, excerpt.final.values()))


def _excerpt(history: History, partition: int) -> History:
    """Returns the first records of a partition with the sends and polls that belong to them.

    A client may learn that a record was written, but not its offset: when the broker answers a retry of a batch that it
    has already written."""
    log = history.final[partition][:EXCERPT_RECORDS]
    end = log[-1].offset + 1
    values = {read.value for read in log}
    return History(
        sends=[
            send
            for send in history.sends
            if send.partition == partition and (send.value in values or send.outcome is not Outcome.OK)
        ],
        consumptions=[
            Consumption(
                consumption.begin,
                [
                    [read for read in poll if read.partition == partition and read.offset < end]
                    for poll in consumption.polls
                ],
            )
            for consumption in history.consumptions
        ],
        final={partition: log},
    )


def _acknowledged(history: History, rng: random.Random) -> Send:
    return rng.choice([send for send in history.sends if send.offset is not None])


def _with_final(history: History, partition: int, records: Sequence[Read]) -> History:
    return replace(history, final={**history.final, partition: records})


def _with_send(history: History, old: Send, new: Send | None) -> History:
    sends = [send for send in history.sends if send is not old]
    return replace(history, sends=sends if new is None else [*sends, new])


def _with_first_consumer(history: History, polls: list[list[Read]]) -> History:
    """Replaces the polls of the first consumption, which reads from the beginning to the end."""
    first, *others = history.consumptions
    return replace(history, consumptions=[first._replace(polls=polls), *others])


def _records(history: History) -> list[Read]:
    return [read for poll in history.consumptions[0].polls for read in poll]


def _inconsistent_offset(history: History, rng: random.Random) -> History:
    """Changes an acknowledged value, so that it differs from the stored one."""
    one, other = (_acknowledged(history, rng) for _ in range(2))
    while one.value == other.value:
        other = _acknowledged(history, rng)
    return _with_send(history, one, one._replace(value=other.value))


def _duplicate(history: History, rng: random.Random) -> History:
    """Appends an acknowledged value once more, as if a retry was appended again."""
    send = _acknowledged(history, rng)
    log = history.final[send.partition]
    return _with_final(history, send.partition, [*log, Read(send.partition, log[-1].offset + 1, send.value)])


def _lost_write(history: History, rng: random.Random) -> History:
    """Removes an acknowledged record from the log, as if a new leader did not have it."""
    send = _acknowledged(history, rng)
    log = [read for read in history.final[send.partition] if read.value != send.value]
    return _with_final(history, send.partition, log)


def _failed_write(history: History, rng: random.Random) -> History:
    send = _acknowledged(history, rng)
    return _with_send(history, send, send._replace(outcome=Outcome.FAILED, offset=None))


def _foreign_value(history: History, rng: random.Random) -> History:
    return _with_send(history, _acknowledged(history, rng), None)


def _reordered_send(history: History, rng: random.Random) -> History:
    """Swaps two values of one producer, as if a later record had overtaken a retry."""
    send = _acknowledged(history, rng)
    log = list(history.final[send.partition])
    own = [index for index, read in enumerate(log) if read.value[0] == send.value[0]]
    first, second = own[0], own[-1]
    log[first], log[second] = (
        log[first]._replace(value=log[second].value),
        log[second]._replace(value=log[first].value),
    )
    return _with_final(history, send.partition, log)


def _realtime_order(history: History, rng: random.Random) -> History:
    """Changes the times of the first record, so that it was sent only after the last record was acknowledged."""
    partition = _acknowledged(history, rng).partition
    sends = [send for send in history.sends if send.offset is not None and send.partition == partition]
    in_order = sorted(sends, key=lambda send: -1 if send.offset is None else send.offset)
    first, last = in_order[0], in_order[-1]
    return _with_send(history, first, first._replace(began_s=last.ended_s + 1, ended_s=last.ended_s + 2))


def _vanished(history: History, rng: random.Random) -> History:
    """Shows a consumer a record after the end of the final log, as if the log was truncated later."""
    partition = rng.choice(sorted(history.final))
    shown = Read(partition, history.final[partition][-1].offset + 1, (-1, 0))
    return _with_first_consumer(history, [*history.consumptions[0].polls, [shown]])


def _unseen(history: History, rng: random.Random) -> History:
    """Removes one acknowledged record from the polls of all consumers."""
    send = _acknowledged(history, rng)
    unwanted = send.partition, send.value
    consumptions = [
        Consumption(
            consumption.begin,
            [[read for read in poll if (read.partition, read.value) != unwanted] for poll in consumption.polls],
        )
        for consumption in history.consumptions
    ]
    return replace(history, consumptions=consumptions)


def _nonmonotonic_poll(history: History, rng: random.Random) -> History:
    """Repeats a poll, so that fetched records are handed out twice."""
    polls = [poll for poll in history.consumptions[0].polls if poll]
    index = rng.randrange(len(polls))
    return _with_first_consumer(history, [*polls[: index + 1], polls[index], *polls[index + 1 :]])


def _int_nonmonotonic_poll(history: History, rng: random.Random) -> History:
    records = _records(history)
    index = rng.randrange(len(records))
    return _with_first_consumer(history, [[*records[: index + 1], records[index], *records[index + 1 :]]])


def _poll_skip(history: History, rng: random.Random) -> History:
    """Removes a record between two polls, as if a fetch was lost."""
    polls = [[read] for read in _records(history)]
    return _with_first_consumer(history, [*polls[: (index := _inner(history, rng))], *polls[index + 1 :]])


def _int_poll_skip(history: History, rng: random.Random) -> History:
    records = _records(history)
    return _with_first_consumer(history, [[*records[: (index := _inner(history, rng))], *records[index + 1 :]]])


def _inner(history: History, rng: random.Random) -> int:
    """Returns the index of a record that has records of its partition before it and after it."""
    records = _records(history)
    partition = rng.choice(records).partition
    own = [index for index, read in enumerate(records) if read.partition == partition]
    return rng.choice(own[1:-1])


PLANTED: Final[Mapping[str, Callable[[History, random.Random], History]]] = {
    "inconsistent-offset": _inconsistent_offset,
    "duplicate": _duplicate,
    "lost-write": _lost_write,
    "failed-write": _failed_write,
    "foreign-value": _foreign_value,
    "reordered-send": _reordered_send,
    "realtime-order": _realtime_order,
    "vanished": _vanished,
    "unseen": _unseen,
    "nonmonotonic-poll": _nonmonotonic_poll,
    "int-nonmonotonic-poll": _int_nonmonotonic_poll,
    "poll-skip": _poll_skip,
    "int-poll-skip": _int_poll_skip,
}
