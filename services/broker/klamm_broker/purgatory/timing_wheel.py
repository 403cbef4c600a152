"""A hierarchical timing wheel: it schedules thousands of timers at O(1) each, and returns the next deadline.

Kafka's `org.apache.kafka.server.util.timer.TimingWheel`, after Varghese and Lauck. A wheel is a ring of
buckets one tick wide. Timers beyond its span go to an overflow wheel. One tick of an overflow wheel is the
whole span of the wheel below. When such a bucket expires, its timers move down. A heap orders the buckets
that have timers, and empty buckets are not in it, so advancing costs nothing for an empty tick.

    level 0   tick 1 ms     span 20 ms
    level 1   tick 20 ms    span 400 ms
    level 2   tick 400 ms   span 8 s      ... levels are created when a deadline needs them

Pure: time is an argument. Invariants: a timer fires at its deadline rounded up to a whole tick, never early;
every bucket with a timer is queued, and expires after the clock.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class Timer(Generic[ItemT]):
    """A handle of one pending item, for `cancel`."""

    __slots__ = ("_bucket", "deadline_ms", "item")

    def __init__(self, deadline_ms: int, item: ItemT) -> None:
        self.deadline_ms = deadline_ms
        self.item = item
        self._bucket: _Bucket[ItemT] | None = None


class _Bucket(Generic[ItemT]):
    """The timers of one tick of one wheel, in the order of arrival."""

    __slots__ = ("expires_ms", "queued", "timers")

    def __init__(self) -> None:
        self.expires_ms = 0
        self.queued = False
        self.timers: dict[Timer[ItemT], None] = {}


class _Wheel(Generic[ItemT]):
    """One ring of buckets. It finds the bucket of a deadline within its span."""

    __slots__ = ("_buckets", "span_ms", "tick_ms")

    def __init__(self, tick_ms: int, bucket_count: int) -> None:
        self.tick_ms = tick_ms
        self.span_ms = tick_ms * bucket_count
        self._buckets: list[_Bucket[ItemT]] = [_Bucket() for _ in range(bucket_count)]

    def reaches(self, deadline_ms: int, now_ms: int) -> bool:
        return deadline_ms < now_ms - now_ms % self.tick_ms + self.span_ms

    def bucket(self, deadline_ms: int) -> _Bucket[ItemT]:
        tick = deadline_ms // self.tick_ms
        bucket = self._buckets[tick % len(self._buckets)]
        expires_ms = tick * self.tick_ms
        # A slot is used again only after the clock has passed its last turn, so it must be empty.
        assert not bucket.timers or bucket.expires_ms == expires_ms, (bucket.expires_ms, expires_ms)
        bucket.expires_ms = expires_ms
        return bucket


class TimingWheel(Generic[ItemT]):
    """Items that become due at deadlines in milliseconds. The clock starts at `start_ms`."""

    def __init__(self, *, start_ms: int, tick_ms: int = 1, bucket_count: int = 20) -> None:
        assert tick_ms > 0, tick_ms
        assert bucket_count > 1, bucket_count
        self._now_ms = start_ms - start_ms % tick_ms
        self._tick_ms = tick_ms
        self._bucket_count = bucket_count
        self._wheels: list[_Wheel[ItemT]] = [_Wheel(tick_ms, bucket_count)]
        self._due: _Bucket[ItemT] = _Bucket()
        self._queue: list[tuple[int, int, _Bucket[ItemT]]] = []
        self._queued_count = 0
        self._count = 0

    def __len__(self) -> int:
        """Returns the number of pending timers."""
        return self._count

    def schedule(self, deadline_ms: int, item: ItemT) -> Timer[ItemT]:
        """Adds `item`. If its deadline has passed, it fires at the next `advance`."""
        timer = Timer(deadline_ms, item)
        self._count += 1
        self._place(timer)
        return timer

    def cancel(self, timer: Timer[ItemT]) -> bool:
        """Removes a timer. Returns False if it has fired or was cancelled already."""
        bucket = timer._bucket
        if bucket is None:
            return False
        del bucket.timers[timer]
        timer._bucket = None
        self._count -= 1
        return True

    def next_deadline_ms(self) -> int | None:
        """Returns the time when `advance` must be called next, or None. It is never later than the first deadline.

        It may be earlier, because timers of an overflow wheel must move down in time."""
        if self._due.timers:
            return self._now_ms
        while self._queue and not self._queue[0][2].timers:
            heapq.heappop(self._queue)[2].queued = False
        return self._queue[0][0] if self._queue else None

    def advance(self, now_ms: int) -> list[ItemT]:
        """Moves the clock forward. Returns the items that became due, in the order of their deadlines up to a tick."""
        expired = self._drain(self._due)
        while self._queue and self._queue[0][0] <= now_ms:
            expires_ms, _, bucket = heapq.heappop(self._queue)
            assert expires_ms >= self._now_ms, (expires_ms, self._now_ms)
            bucket.queued = False
            self._now_ms = expires_ms
            timers, bucket.timers = bucket.timers, {}
            for timer in timers:
                self._place(timer)
            expired += self._drain(self._due)
        self._now_ms = max(self._now_ms, now_ms - now_ms % self._tick_ms)
        return expired

    def _place(self, timer: Timer[ItemT]) -> None:
        deadline_ms = -(-timer.deadline_ms // self._tick_ms) * self._tick_ms
        bucket = self._due if deadline_ms <= self._now_ms else self._wheel(deadline_ms).bucket(deadline_ms)
        bucket.timers[timer] = None
        timer._bucket = bucket
        if not bucket.queued and bucket is not self._due:
            bucket.queued = True
            self._queued_count += 1
            heapq.heappush(self._queue, (bucket.expires_ms, self._queued_count, bucket))

    def _wheel(self, deadline_ms: int) -> _Wheel[ItemT]:
        for wheel in self._wheels:
            if wheel.reaches(deadline_ms, self._now_ms):
                return wheel
        while not self._wheels[-1].reaches(deadline_ms, self._now_ms):
            self._wheels.append(_Wheel(self._wheels[-1].span_ms, self._bucket_count))
        return self._wheels[-1]

    def _drain(self, bucket: _Bucket[ItemT]) -> list[ItemT]:
        timers, bucket.timers = bucket.timers, {}
        for timer in timers:
            timer._bucket = None
        self._count -= len(timers)
        return [timer.item for timer in timers]

    def check_invariants(self) -> None:
        """Asserts the invariants, for tests."""
        queued = {id(bucket) for _, _, bucket in self._queue}
        buckets = [bucket for wheel in self._wheels for bucket in wheel._buckets]
        assert sum(len(bucket.timers) for bucket in [*buckets, self._due]) == self._count
        for bucket in buckets:
            assert bucket.queued == (id(bucket) in queued), bucket.expires_ms
            assert not bucket.timers or bucket.queued, bucket.expires_ms
            assert not bucket.timers or bucket.expires_ms > self._now_ms, (bucket.expires_ms, self._now_ms)
