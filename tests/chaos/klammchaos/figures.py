"""The summary of a run, for people."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.chaos.klammchaos.nemesis import Struck


def quantile(values: Sequence[float], percent: int) -> float:
    """Returns the quantile, by linear interpolation. If there is a single value, returns this value."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def describe_outages(outages_s: Sequence[float]) -> str:
    """Describes outages: p50, p99, the longest, and their number."""
    if not outages_s:
        return "none"
    return (
        f"p50 {quantile(outages_s, 50):.3f} s, p99 {quantile(outages_s, 99):.3f} s,"
        f" max {max(outages_s):.3f} s of {len(outages_s)}"
    )


def describe_faults(struck: Sequence[Struck]) -> Iterator[str]:
    """Yields a line for each kind of fault."""
    by_name: dict[str, list[Struck]] = defaultdict(list)
    for each in struck:
        by_name[each.fault.name].append(each)
    for name, strikes in sorted(by_name.items()):
        outages = describe_outages([strike.outage_s for strike in strikes])
        recovered_s = max(strike.recovery_s for strike in strikes)
        yield f"  {name:27} outages {outages}; first answer after healing within {recovered_s:.3f} s"
