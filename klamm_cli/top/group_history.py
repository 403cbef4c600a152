"""The rates of groups over some commits. Pure.

A consumer commits every few seconds, so its lag rises and falls even if it keeps up. Two samples that are closer
together than two commits tell nothing. These rates compare the moments right after commits, at least three commit
intervals apart. A change of the lag that is smaller than what was written between two samples counts as none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from klamm_cli.top.sample import Sample

INTERVALS: Final = 3
"""How many commit intervals a rate covers at least."""
WINDOW_S: Final = 60.0
"""How far back a rate goes, if that is enough for INTERVALS."""
SILENT_S: Final = 15.0
"""A group that has committed nothing for this long has stopped, unless its commits were further apart before."""
_POINTS_MAX: Final = 1_000


class GroupRates(NamedTuple):
    """The rates of a group, per second."""

    committed_s: float
    lag_s: float


class _Point(NamedTuple):
    at_s: float
    committed: int
    """The records that the group has committed since the first sample."""
    lag: int


class GroupHistory:
    """The positions of the groups in the last samples."""

    def __init__(self) -> None:
        self._points: dict[str, deque[_Point]] = {}
        self._last: Sample | None = None

    def add(self, sample: Sample, lags: Mapping[str, int]) -> None:
        """Adds a sample, with the lag of each group. Forgets the groups that it does not have."""
        for gone in self._points.keys() - sample.groups.keys():
            del self._points[gone]
        for name in sample.groups:
            points = self._points.setdefault(name, deque(maxlen=_POINTS_MAX))
            committed = points[-1].committed + self._grown(name, sample) if points else 0
            points.append(_Point(sample.at_s, committed, lags[name]))
        self._last = sample

    def rates(self, group: str) -> GroupRates | None:
        """Returns the rates of a group, or None until they are known."""
        points = list(self._points.get(group, ()))
        if not points:
            return None
        commits = [now for was, now in pairwise(points) if now.committed > was.committed]
        last = commits[-1] if commits else points[0]
        if points[-1].at_s - last.at_s >= _silence_s(commits):
            return _between(last, points[-1], gap_s=0)
        if len(commits) <= INTERVALS:
            return None
        earlier = commits[:-INTERVALS]
        first = next((commit for commit in earlier if last.at_s - commit.at_s <= WINDOW_S), earlier[-1])
        return _between(first, last, gap_s=max(now.at_s - was.at_s for was, now in pairwise(points)))

    def _grown(self, name: str, sample: Sample) -> int:
        was = None if self._last is None else self._last.groups.get(name)
        if was is None:
            return 0
        committed = sample.groups[name].committed
        return sum(max(0, offset - was.committed.get(tp, offset)) for tp, offset in committed.items())


def _silence_s(commits: list[_Point]) -> float:
    """Returns after how many seconds without a commit a group has stopped."""
    intervals = [now.at_s - was.at_s for was, now in pairwise(commits)]
    return max(SILENT_S, 3 * max(intervals, default=0))


def _between(first: _Point, last: _Point, *, gap_s: float) -> GroupRates:
    elapsed_s = max(last.at_s - first.at_s, 1e-9)
    committed, grown = last.committed - first.committed, last.lag - first.lag
    written_in_gap = max(0, committed + grown) / elapsed_s * gap_s
    return GroupRates(committed / elapsed_s, 0.0 if abs(grown) <= written_in_gap else grown / elapsed_s)
