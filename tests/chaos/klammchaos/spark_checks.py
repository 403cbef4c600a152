"""Checks that the output of both queries is exactly what follows from their input. The functions are pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pandas as pd

_SHOWN: Final = 10


def copy_violations(copies: Iterable[int], count: int) -> Iterator[str]:
    """Yields the errors in the copies, which must have each number below `count` once."""
    seen = Counter(copies)
    yield from _counted("number", seen, range(count))


def delay_violations(values: Sequence[bytes], expected: pd.DataFrame) -> Iterator[str]:
    """Yields the errors in the output of flight_delays. `values` are its JSON objects. `expected` has the right
    figures, indexed by origin and hour (UTC)."""
    hours = [json.loads(value) for value in values]
    seen = Counter((hour["origin"], pd.Timestamp(hour["hour"])) for hour in hours)
    yield from _counted("hour", seen, expected.index)
    for hour in hours:
        key = (hour["origin"], pd.Timestamp(hour["hour"]))
        if key in expected.index:
            wanted = expected.loc[key]
            for column in expected.columns:
                got, want = hour.get(column), wanted[column]
                if not (got == want or (got is None and pd.isna(want))):
                    yield f"{column} of {key} is {got}, not {want}"


def _counted(what: str, seen: Counter[Any], expected: Iterable[object]) -> Iterator[str]:
    wanted = list(expected)
    missing = [each for each in wanted if each not in seen]
    doubled = [f"{each} ({times} times)" for each, times in seen.items() if times > 1]
    odd = seen.keys() - set(wanted)
    for story, those in (("lost", missing), ("written more than once", doubled), ("never asked for", sorted(odd))):
        if those:
            yield f"{len(those)} {what}(s) {story}: {', '.join(map(str, those[:_SHOWN]))}"
