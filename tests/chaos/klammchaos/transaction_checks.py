"""Checks the output of a read-process-write loop. Each input must count once, and no aborted output may be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.chaos.klammchaos.transaction_load import Fate, Output

SHOWN_MAX = 10


def violations(
    output: Mapping[int, Sequence[Output]],
    observed: Mapping[int, Sequence[Output]],
    fates: Mapping[str, Fate],
    count: int,
) -> list[str]:
    """Returns the faults of the `output` of `count` inputs, and of the records that an observer saw during the run."""
    found = []
    times = Counter(record.input for records in output.values() for record in records)
    missing = [number for number in range(count) if not times[number]]
    doubled = [number for number, seen in times.items() if seen > 1]
    invented = sorted(times.keys() - set(range(count)))
    written = [record for side in (output, observed) for records in side.values() for record in records]
    aborted = sorted({one.transaction for one in written if fates.get(one.transaction) is Fate.ABORTED})
    nobodys = sorted({one.transaction for one in written if one.transaction not in fates})
    committed = {name for name, fate in fates.items() if fate is Fate.COMMITTED}
    lost = sorted(committed - {one.transaction for one in written})
    for story, which in (
        ("inputs that do not count", missing),
        ("inputs that count more than once", doubled),
        ("outputs of no input", invented),
        ("aborted transactions that were read", aborted),
        ("transactions of nobody", nobodys),
        ("committed transactions that are not there", lost),
    ):
        if which:
            found.append(f"{len(which)} {story}: {which[:SHOWN_MAX]}")
    found += [
        f"partition {number}: who read on saw {len(observed[number])} records, who read in the end"
        f" {len(output[number])}, and not the same"
        for number in output
        if list(observed[number]) != list(output[number])
    ]
    return found
