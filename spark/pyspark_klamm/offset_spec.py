"""The start or the end of a query, as its options set it. Pure.

As in Spark's Kafka source, one timestamp for all partitions has precedence over timestamps by partition, and these over
offsets. Options without effect are still checked, so that they are valid when they take effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.errors import ConfigError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from pyspark_klamm.option_values import OptionValues

EARLIEST: Final = EARLIEST_TIMESTAMP
LATEST: Final = LATEST_TIMESTAMP
SYMBOLIC: Final = frozenset({EARLIEST, LATEST})
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpec:
    """The start or the end of a query: one position for all partitions, or one for each partition."""

    option: str
    """The name of the option that sets this position, for error messages."""
    at: int | Mapping[TopicPartition, int]
    """Offsets, EARLIEST or LATEST; with `by_time` milliseconds since the epoch."""
    by_time: bool = False
    """True if `at` is a time. The position is then the first record with this timestamp or a later one."""
    latest_if_none: bool = True
    """True if the position is the end of a partition in which `by_time` finds no record. False makes this an error."""

    def wanted(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns `at` for each of `tps`. Raises ConfigError if `at` names other partitions than these."""
        if isinstance(self.at, int):
            return dict.fromkeys(tps, self.at)
        if self.at.keys() != set(tps):
            odd = ", ".join(map(str, sorted(self.at.keys() ^ set(tps))))
            raise ConfigError(f"{self.option} must name exactly the partitions that are read; the difference is {odd}")
        return dict(self.at)


def starting_spec(given: OptionValues[Any], *, streaming: bool, latest_if_none: bool) -> OffsetSpec:
    """Returns the start of a query, from startingTimestamp, startingOffsetsByTimestamp or startingOffsets. Raises
    ConfigError."""
    spec = _spec(given, "starting", "latest" if streaming else "earliest", latest_if_none=latest_if_none)
    if not streaming and LATEST in _offsets(spec):
        raise ConfigError("startingOffsets cannot be latest (-1) in a batch query: the result would always be empty")
    return spec


def ending_spec(given: OptionValues[Any]) -> OffsetSpec:
    """Returns the end of a query, from endingTimestamp, endingOffsetsByTimestamp or endingOffsets. Raises
    ConfigError."""
    spec = _spec(given, "ending", "latest", latest_if_none=True)
    if EARLIEST in _offsets(spec):
        raise ConfigError("endingOffsets cannot be earliest (-2): the result would always be empty")
    return spec


def check_order(start: OffsetSpec, end: OffsetSpec) -> None:
    """Raises ConfigError if two specs by partition contradict each other, as far as the options alone can show it."""
    if start.by_time != end.by_time or isinstance(start.at, int) or isinstance(end.at, int):
        return
    if start.at.keys() != end.at.keys():
        odd = ", ".join(map(str, sorted(start.at.keys() ^ end.at.keys())))
        raise ConfigError(
            f"{start.option} and {end.option} must name the same partitions; only one of them names {odd}"
        )
    for tp in sorted(start.at):
        if 0 <= end.at[tp] < start.at[tp]:
            raise ConfigError(f"{start.option} ({start.at[tp]}) is behind {end.option} ({end.at[tp]}) for {tp}")


def _offsets(spec: OffsetSpec) -> list[int]:
    if spec.by_time:
        return []
    return [spec.at] if isinstance(spec.at, int) else list(spec.at.values())


def _spec(given: OptionValues[Any], which: str, default: str, *, latest_if_none: bool) -> OffsetSpec:
    by_time = {"by_time": True, "latest_if_none": latest_if_none}
    specs = []
    if (text := given.text(f"{which}Timestamp")) is not None:
        specs.append(OffsetSpec(option=f"{which}Timestamp", at=_time(f"{which}Timestamp", text), **by_time))
    if (text := given.text(option := f"{which}OffsetsByTimestamp")) is not None:
        specs.append(OffsetSpec(option=option, at=_by_partition(option, text, _timestamp, "1767225600000"), **by_time))
    specs.append(_of_offsets(f"{which}Offsets", given.text(f"{which}Offsets") or default))
    return specs[0]


def _of_offsets(option: str, text: str) -> OffsetSpec:
    if text.lower() in ("earliest", "latest"):
        return OffsetSpec(option=option, at=EARLIEST if text.lower() == "earliest" else LATEST)
    return OffsetSpec(option=option, at=_by_partition(option, text, _offset, "23", words="earliest, latest or "))


def _by_partition(
    option: str, text: str, value_of: Callable[[object], int], example: str, words: str = ""
) -> dict[TopicPartition, int]:
    try:
        return {
            TopicPartition(topic, int(partition)): value_of(value)
            for topic, values in json.loads(text).items()
            for partition, value in values.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f'{option}={text!r}: expected {words}JSON such as {{"topic": {{"0": {example}}}}} ({error})'
        ) from error


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= _INT64_MAX:
        raise ValueError(f"{value!r} is not an offset, expected 0 or more, -2 (earliest) or -1 (latest)")
    return value


def _timestamp(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _INT64_MAX:
        raise ValueError(f"{value!r} is not a time in milliseconds since the epoch")
    return value


def _time(option: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _INT64_MAX:
        raise ConfigError(f"{option}={text!r}: expected milliseconds since the epoch")
    return int(text)
