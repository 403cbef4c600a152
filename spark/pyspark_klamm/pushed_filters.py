"""Which records a batch query's filters leave to read, by topic, partition, offset and time. Pure.

Spark applies every filter again, so it is enough to be right about what is left out. Of times only lower bounds help:
brokers know the first record that is not older, and nothing before it passes. A later record may be older than one
before it, so an upper bound says nothing about where to stop.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pyspark_klamm.offsets import OffsetRange

Test = Callable[[Any], bool]

_TESTS: Final[dict[type[Filter], Callable[[Any], Test]]] = {
    EqualTo: lambda wanted: lambda value: value == wanted,
    EqualNullSafe: lambda wanted: lambda value: value == wanted,
    GreaterThan: lambda bound: lambda value: value > bound,
    GreaterThanOrEqual: lambda bound: lambda value: value >= bound,
    LessThan: lambda bound: lambda value: value < bound,
    LessThanOrEqual: lambda bound: lambda value: value <= bound,
    StringStartsWith: lambda part: lambda value: value.startswith(part),
    StringEndsWith: lambda part: lambda value: value.endswith(part),
    StringContains: lambda part: lambda value: part in value,
}


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """What all the filters together ask for."""

    topic: tuple[Test, ...] = ()
    partition: tuple[Test, ...] = ()
    offset_min: int | None = None
    offset_end: int | None = None
    """Exclusive."""
    timestamp_ms_min: int | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> PushedFilters:
        """What can be learnt from them; the rest is passed over."""
        tests: dict[str, list[Test]] = {"topic": [], "partition": []}
        lows: dict[str, list[Any]] = {"offset": [], "timestamp": []}
        ends: list[int] = []
        for each in filters:
            column = ".".join(getattr(each, "attribute", ()))
            if column in tests and (test := _test(each)) is not None:
                tests[column].append(test)
            elif column in lows:
                lows[column].extend(_low(each))
                if column == "offset":
                    ends.extend(_end(each))
        return cls(
            topic=tuple(tests["topic"]),
            partition=tuple(tests["partition"]),
            offset_min=max(lows["offset"], default=None),
            offset_end=min(ends, default=None),
            timestamp_ms_min=max(map(_milliseconds, lows["timestamp"]), default=None),
        )

    def narrowed(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What of the ranges is left to read, as far as topic, partition and offset go."""
        chosen = (
            each.within(self.offset_min, self.offset_end)
            for each in ranges
            if all(test(each.tp.topic) for test in self.topic)
            and all(test(each.tp.partition) for test in self.partition)
        )
        return [each for each in chosen if each is not None]


def _test(each: Filter) -> Test | None:
    if isinstance(each, In):
        wanted = frozenset(each.value)
        return lambda value: value in wanted
    make = _TESTS.get(type(each))
    return None if make is None else make(each.value)


def _low(each: Filter) -> list[Any]:
    """The least value that passes, or a lesser one."""
    match each:
        case EqualTo(value=value) | EqualNullSafe(value=value) | GreaterThanOrEqual(value=value):
            return [] if value is None else [value]
        case GreaterThan(value=value):
            return [value + 1] if isinstance(value, int) else [value]
        case In(value=values) if values and None not in values:
            return [min(values)]
    return []


def _end(each: Filter) -> list[int]:
    """What no offset that passes reaches."""
    match each:
        case EqualTo(value=int(value)) | EqualNullSafe(value=int(value)) | LessThanOrEqual(value=int(value)):
            return [value + 1]
        case LessThan(value=int(value)):
            return [value]
        case In(value=values) if values and None not in values:
            return [max(values) + 1]
    return []


def _milliseconds(at: datetime.datetime) -> int:
    """Rounded down: records have no finer time."""
    since = at - datetime.datetime.fromtimestamp(0, at.tzinfo)
    return since // datetime.timedelta(milliseconds=1)
