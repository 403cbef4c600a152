"""Bounds how many sealed segments are open at the same time.

Every log keeps its active segment open. Older segments are opened when they are read. They stay open while they are
among the most recently used of the broker, and are released after that. So a broker has one descriptor per partition
plus at most `open_count_max`, and the index memory of as many segments.

Event loop only. Disk threads use descriptors of their own.
"""

from __future__ import annotations

from collections import OrderedDict

from klamm_broker.log.segment.segment import Segment


class SegmentPool:
    """A least-recently-used set of open sealed segments."""

    def __init__(self, open_count_max: int) -> None:
        assert open_count_max > 0, open_count_max
        self._open_count_max = open_count_max
        self._segments: OrderedDict[int, Segment] = OrderedDict()

    def __len__(self) -> int:
        return len(self._segments)

    def use(self, segment: Segment) -> Segment:
        """Returns the segment after opening it. Raises OSError if its files cannot be opened."""
        key = id(segment)
        if key in self._segments:
            self._segments.move_to_end(key)
            return segment
        segment.open()
        self._segments[key] = segment
        if len(self._segments) > self._open_count_max:
            self._segments.popitem(last=False)[1].release()
        return segment

    def forget(self, segment: Segment) -> None:
        """Drops a segment that became active or is being removed, so that the pool does not release it."""
        self._segments.pop(id(segment), None)
