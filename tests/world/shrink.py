"""Finds the few faults of a schedule that are enough for a failure.

A fault that is left out changes all that follows it. So the shortest prefix that fails is searched first, whose story
stays the same up to its end. Then whole kinds of faults are left out, and then single ones, the last one first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def shrink(
    kinds: Sequence[str], fails: Callable[[Sequence[int]], bool], may_go_on: Callable[[], bool] = lambda: True
) -> list[int]:
    """Returns the numbers of the faults that are left. `kinds` are those of all faults, with which the run fails.

    `fails` runs the faults of these numbers. Stops early when `may_go_on` returns False."""
    kept = _prefix(len(kinds), fails, may_go_on)
    for kind in sorted({kinds[number] for number in kept}):
        kept = _without(kept, [number for number in kept if kinds[number] == kind], fails, may_go_on)
    for number in reversed(kept):
        kept = _without(kept, [number], fails, may_go_on)
    return kept


def _prefix(count: int, fails: Callable[[Sequence[int]], bool], may_go_on: Callable[[], bool]) -> list[int]:
    low, high = 0, count
    while low < high and may_go_on():
        middle = (low + high) // 2
        if fails(range(middle)):
            high = middle
        else:
            low = middle + 1
    return list(range(high))


def _without(
    kept: list[int], dropped: Sequence[int], fails: Callable[[Sequence[int]], bool], may_go_on: Callable[[], bool]
) -> list[int]:
    """Returns what is kept, without some faults if the rest still fails."""
    rest = [number for number in kept if number not in dropped]
    return rest if may_go_on() and len(rest) < len(kept) and fails(rest) else kept
