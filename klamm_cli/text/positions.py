"""Parses `--from` and `--to`: places in a topic. Refuses a text that has two meanings, and names both."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.errors import ConfigError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm_cli.text.times import parse_time_ms

POSITION_HELP: Final = (
    "beginning, end, now, today, an offset (42), the last records of each partition (-5),"
    " a time (2026-01-31T12:00, @2026-01-31, @1767225600000) or an age (90s, 15m, 2h, 7d)."
)
_BEGINNING: Final = frozenset({"beginning", "earliest"})
_END: Final = frozenset({"end", "latest"})
_DIGITS: Final = re.compile(r"\d{1,40}", re.ASCII)
_LAST: Final = re.compile(r"-(\d{1,18})", re.ASCII)
_TIMES_DIGITS: Final = range(10, 20)
"""The numbers of digits that a time since the epoch may have, in any unit from seconds to nanoseconds."""
_MILLISECONDS_DIGITS: Final = (*range(1, 9), *range(12, 15))
"""The numbers of digits that a time in milliseconds may have. A number with 9 to 11 digits may be in seconds. A number
with more than 14 digits is in micro- or nanoseconds."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of each partition."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of each partition."""


@dataclass(frozen=True, slots=True)
class ExactOffset:
    """The same offset in each partition. If a partition's log does not contain it, the nearer end of the log
    applies."""

    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """The position `count` offsets before the end of each partition."""

    count: int


@dataclass(frozen=True, slots=True)
class Time:
    """The first record of each partition at or after this time, or the partition's end if there is none."""

    timestamp_ms: int


Position = Beginning | End | ExactOffset | Last | Time


def parse_position(text: str, option: str, *, now_ms: int) -> Position:
    """Returns the position that `text` names at the time `now_ms`. Raises ConfigError."""
    if text in _BEGINNING:
        return Beginning()
    if text in _END:
        return End()
    if match := _LAST.fullmatch(text):
        return Last(int(match[1]))
    number = text.removeprefix("offset:")
    if _DIGITS.fullmatch(number):
        if number == text and len(text) in _TIMES_DIGITS:
            raise ConfigError(f"{option} {text} may be an offset or a time: expected offset:{text} or @{text}")
        return ExactOffset(int(number))
    after = text.removeprefix("@")
    if after != text and _DIGITS.fullmatch(after):
        return Time(_milliseconds(after, option))
    timestamp_ms = parse_time_ms(after, now_ms=now_ms)
    if timestamp_ms is None:
        raise ConfigError(f"{option} {text!r} is not a position: expected {POSITION_HELP.rstrip('.')}")
    return Time(timestamp_ms)


def _milliseconds(digits: str, option: str) -> int:
    number = int(digits)
    if len(digits) > max(_MILLISECONDS_DIGITS):
        raise ConfigError(f"{option} @{digits}: expected milliseconds since the epoch, which have 13 digits")
    if len(digits) not in _MILLISECONDS_DIGITS:
        early = datetime.datetime.fromtimestamp(number / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise ConfigError(f"{option} @{digits} may be in seconds or in milliseconds: expected @{digits}000 or @{early}")
    return number


def offsets_at(
    position: Position,
    partitions: list[TopicPartition],
    list_offsets: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    """Returns the offset of `position` in each partition. `list_offsets` returns offsets for timestamps (-1: no record
    is that late)."""

    def ask(timestamp_ms: int) -> dict[TopicPartition, int]:
        return dict(list_offsets(dict.fromkeys(partitions, timestamp_ms)))

    match position:
        case Beginning():
            return ask(EARLIEST_TIMESTAMP)
        case End():
            return ask(LATEST_TIMESTAMP)
        case ExactOffset(offset):
            starts, ends = ask(EARLIEST_TIMESTAMP), ask(LATEST_TIMESTAMP)
            return {tp: min(max(offset, starts[tp]), ends[tp]) for tp in partitions}
        case Last(count):
            starts, ends = ask(EARLIEST_TIMESTAMP), ask(LATEST_TIMESTAMP)
            return {tp: max(ends[tp] - count, starts[tp]) for tp in partitions}
        case Time(timestamp_ms):
            found = ask(timestamp_ms)
            late = [tp for tp in partitions if found[tp] < 0]
            # No record is that late yet, so the position is the end, where the next record will be.
            return {**found, **(list_offsets(dict.fromkeys(late, LATEST_TIMESTAMP)) if late else {})}
