"""Checks the histories of producers and consumers of partitions, as Jepsen's Kafka workload does.

A history is what each client knows by itself: sends with their outcome, and records that polls returned. `final` is
what a new consumer reads of every partition, from its start to its end, when all faults are healed. Values are unique
within a partition. Every check costs O(n log n) at most, n being the number of records sent and read.

| anomaly                | what it means                                                                          |
|------------------------|----------------------------------------------------------------------------------------|
| `inconsistent-offset`  | one offset held two values                                                             |
| `duplicate`            | one value is at two offsets                                                            |
| `lost-write`           | an acknowledged value is not in the final log                                          |
| `failed-write`         | a value that was certainly not written is in the log                                   |
| `foreign-value`        | the log holds a value that nobody sent                                                 |
| `reordered-send`       | a producer's values are not in the order in which it sent them                         |
| `realtime-order`       | a value acknowledged before another was sent has the greater offset                    |
| `vanished`             | a polled record is not in the final log: it was shown before it was safe               |
| `unseen`               | an acknowledged value was in no poll                                                   |
| `nonmonotonic-poll`    | a consumer went back without having been told to                                       |
| `poll-skip`            | a consumer passed over a record that it should have had                                |

The last two are called `int-...` where both records are of one poll. `unseen` needs consumers that read to the end.

Source: jepsen/tests/kafka.clj, and the definitions in jepsen-io/redpanda's README.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

Partition = int
Value = tuple[int, int]
"""The number of the producer, and the number of the record among the producer's records."""


class Outcome(Enum):
    """The outcome of a send, as the producer knows it."""

    OK = "ok"
    FAILED = "failed"
    """The record was certainly not written."""
    UNKNOWN = "unknown"


class Send(NamedTuple):
    """One record that was sent. All times are of one clock. `offset` is None unless the record was acknowledged."""

    partition: Partition
    value: Value
    outcome: Outcome
    offset: int | None
    began_s: float
    ended_s: float
    may_repeat: bool = False
    """True if the producer may have sent the record again as a new one, so that it may be in the log twice."""


class Read(NamedTuple):
    """One record that was read."""

    partition: Partition
    offset: int
    value: Value


class Anomaly(NamedTuple):
    """A violation in a history, of a kind in the table of the module's docstring."""

    kind: str
    partition: Partition
    detail: str


class Consumption(NamedTuple):
    """The records of one consumer since it last got its start offsets: an offset per partition, 0 for others."""

    begin: Mapping[Partition, int]
    polls: list[list[Read]]
    """The records of each poll, in the order in which the consumer got them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of a run, as the module's docstring describes it."""

    sends: Sequence[Send]
    consumptions: Sequence[Consumption]
    final: Mapping[Partition, Sequence[Read]]

    def polled(self) -> Iterator[Read]:
        """Yields every record that a consumer received, once for each time."""
        for consumption in self.consumptions:
            for poll in consumption.polls:
                yield from poll


def check(history: History) -> list[Anomaly]:
    """Returns every anomaly of a history. None is expected."""
    return [
        *_offsets_and_values(history),
        *_lost_and_failed(history),
        *_sends_in_order(history),
        *_real_time_order(history),
        *_shown_and_seen(history),
        *_consumers(history),
    ]


def _offsets_and_values(history: History) -> Iterator[Anomaly]:
    values: dict[tuple[Partition, int], Value] = {}
    offsets: dict[tuple[Partition, Value], int] = {}
    repeatable = _repeatable(history)
    for partition, offset, value in _seen(history):
        other_value = values.setdefault((partition, offset), value)
        if other_value != value:
            yield Anomaly("inconsistent-offset", partition, f"offset {offset} held {other_value} and {value}")
        other_offset = offsets.setdefault((partition, value), offset)
        if other_offset != offset and value not in repeatable:
            yield Anomaly("duplicate", partition, f"{value} is at offsets {other_offset} and {offset}")


def _seen(history: History) -> Iterator[Read]:
    """Yields every pair of record and offset that any client learned."""
    for records in history.final.values():
        yield from records
    yield from history.polled()
    for send in history.sends:
        if send.offset is not None:
            yield Read(send.partition, send.offset, send.value)


def _repeatable(history: History) -> set[Value]:
    return {send.value for send in history.sends if send.may_repeat}


def _lost_and_failed(history: History) -> Iterator[Anomaly]:
    final = {(read.partition, read.value) for records in history.final.values() for read in records}
    sent = set()
    for send in history.sends:
        name = (send.partition, send.value)
        sent.add(name)
        if send.outcome is Outcome.OK and name not in final:
            yield Anomaly("lost-write", send.partition, f"{send.value} was acknowledged at offset {send.offset}")
        if send.outcome is Outcome.FAILED and name in final:
            yield Anomaly("failed-write", send.partition, f"{send.value} was reported as not written")
    for partition, value in final - sent:
        yield Anomaly("foreign-value", partition, f"nobody sent {value}")


def _sends_in_order(history: History) -> Iterator[Anomaly]:
    repeatable = _repeatable(history)
    for partition, records in history.final.items():
        last: dict[int, int] = {}
        for read in records:
            if read.value in repeatable:
                continue
            producer, number = read.value
            if number < last.get(producer, -1):
                yield Anomaly(
                    "reordered-send", partition, f"{read.value} comes after number {last[producer]}, at {read.offset}"
                )
            last[producer] = number


def _real_time_order(history: History) -> Iterator[Anomaly]:
    """Walks backwards through the log. Yields an anomaly if a record was acknowledged before a record with a smaller
    offset was sent."""
    by_partition: dict[Partition, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.offset is not None:
            by_partition[send.partition].append(send)
    for partition, sends in by_partition.items():
        sends.sort(key=lambda send: send.offset if send.offset is not None else -1)
        first_end: Send | None = None
        for send in reversed(sends):
            if first_end is not None and first_end.ended_s < send.began_s:
                yield Anomaly(
                    "realtime-order",
                    partition,
                    f"{send.value} at {send.offset} was sent after {first_end.value} at {first_end.offset} was"
                    " acknowledged",
                )
            if first_end is None or send.ended_s < first_end.ended_s:
                first_end = send


def _shown_and_seen(history: History) -> Iterator[Anomaly]:
    final = {read for records in history.final.values() for read in records}
    seen = set()
    for read in history.polled():
        seen.add((read.partition, read.value))
        if read not in final:
            yield Anomaly("vanished", read.partition, f"{read.value} was polled at offset {read.offset}")
    for send in history.sends if history.consumptions else ():
        if send.outcome is Outcome.OK and (send.partition, send.value) not in seen:
            yield Anomaly("unseen", send.partition, f"nobody polled {send.value}, acknowledged at offset {send.offset}")


def _consumers(history: History) -> Iterator[Anomaly]:
    offsets = {partition: [read.offset for read in records] for partition, records in history.final.items()}
    for consumption in history.consumptions:
        yield from _one_consumer(consumption, offsets)


def _one_consumer(consumption: Consumption, offsets: Mapping[Partition, Sequence[int]]) -> Iterator[Anomaly]:
    last: dict[Partition, tuple[int, int]] = {}
    for number, poll in enumerate(consumption.polls):
        for partition, offset, _ in poll:
            before, before_poll = last.get(partition) or (consumption.begin.get(partition, 0) - 1, -1)
            last[partition] = offset, number
            prefix = "int-" if before_poll == number else ""
            if offset <= before:
                yield Anomaly(f"{prefix}nonmonotonic-poll", partition, f"offset {offset} was polled after {before}")
            known = offsets.get(partition, [])
            skipped = bisect_left(known, offset) - bisect_right(known, before)
            if skipped > 0:
                detail = f"{skipped} records lie between {before} and {offset}, polled one after the other"
                yield Anomaly(f"{prefix}poll-skip", partition, detail)


def summary(anomalies: Iterable[Anomaly], *, examples_max: int = 3) -> str:
    """Returns the number of anomalies of each kind, with examples, or "no anomalies"."""
    by_kind: dict[str, list[Anomaly]] = defaultdict(list)
    for anomaly in anomalies:
        by_kind[anomaly.kind].append(anomaly)
    if not by_kind:
        return "no anomalies"
    counts = Counter({kind: len(found) for kind, found in by_kind.items()})
    lines = []
    for kind, count in counts.most_common():
        lines.append(f"{kind}: {count}")
        lines += [f"    partition {one.partition}: {one.detail}" for one in by_kind[kind][:examples_max]]
    return "\n".join(lines)
