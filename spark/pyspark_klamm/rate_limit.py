"""Limits the offsets of one batch of a stream: the most, the fewest, and how long fewer may wait. Pure."""

from __future__ import annotations

from klamm.model import TopicPartition
from pyspark_klamm.offsets import Offsets


def backlog(start: Offsets, end: Offsets) -> int:
    """Returns the number of offsets between `start` and `end`."""
    return sum(max(0, end[tp] - start[tp]) for tp in end)


def limited(start: Offsets, end: Offsets, max_offsets: int) -> dict[TopicPartition, int]:
    """Returns an end that is `max_offsets` after `start`, or `end` if it is nearer. Partitions share this number in
    proportion to their backlogs.

    As in Spark's Kafka source, no partition waits for ever behind larger ones: a share of less than one offset counts
    as one offset, even if the sum is then more than `max_offsets`."""
    sizes = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(end)
    shares = {tp: max(1, size * max_offsets // total) for tp, size in sizes.items()}
    # Rounding down leaves over fewer offsets than there are large partitions. The longest backlogs get one each.
    left = max(0, max_offsets - sum(shares.values()))
    for tp in sorted(sizes, key=lambda size: (-sizes[size], size))[:left]:
        shares[tp] += 1
    return {tp: start[tp] + shares[tp] if tp in shares else end[tp] for tp in end}


class TriggerDelay:
    """minOffsetsPerTrigger and maxTriggerDelay: a batch waits until it is large enough, or has waited long enough.

    The first batch after a start does not wait, as in Spark's Kafka source."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: float | None = None

    def wait_ms(self, backlog: int, now_ms: float) -> float:
        """Returns how long a batch of `backlog` offsets has to wait, in ms. 0 means that it must run now, and the next
        wait begins."""
        if self._last_ms is not None and backlog < self._min_offsets:
            left_ms = self._last_ms + self._max_delay_ms - now_ms
            if left_ms > 0:
                return left_ms
        self._last_ms = now_ms
        return 0
