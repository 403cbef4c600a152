"""One access per cluster and settings for a whole process: Spark forks its workers once and gives them many tasks.

Connections are kept between micro-batches. What was not used for `IDLE_S` is closed when another is asked for, and the
least used when there are more than `CAPACITY`; a worker without tasks Spark ends by itself after a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from pyspark_klamm.cluster_access import ClusterAccess

CAPACITY: Final = 8
IDLE_S: Final = 300.0

Settings = frozenset[tuple[str, str]]


class Closable(Protocol):
    """What the cache holds."""

    def close(self) -> None:
        """Called once, when it leaves the cache."""


T = TypeVar("T", bound=Closable)


class AccessCache(Generic[T]):
    """The values used last, at most `capacity` of them, by settings. For one thread: a worker's tasks take turns."""

    def __init__(self, make: Callable[[Mapping[str, str]], T], *, capacity: int, idle_s: float) -> None:
        self._make = make
        self._capacity = capacity
        self._idle_s = idle_s
        self._held: dict[Settings, tuple[T, float]] = {}
        """With the time of the last use, the longest ago first."""

    def get(self, settings: Mapping[str, str], now_s: float) -> T:
        """The one with these settings, made if there is none."""
        key = frozenset(settings.items())
        held = self._held.pop(key, None)
        self._close_idle(now_s)
        value = self._make(settings) if held is None else held[0]
        self._held[key] = value, now_s
        return value

    def _close_idle(self, now_s: float) -> None:
        for key, (value, used_s) in list(self._held.items()):
            if len(self._held) >= self._capacity or now_s - used_s > self._idle_s:
                del self._held[key]
                value.close()


_cache = AccessCache(ClusterAccess, capacity=CAPACITY, idle_s=IDLE_S)


def access(settings: Mapping[str, str]) -> ClusterAccess:
    """The process's access with these settings, made on first use."""
    return _cache.get(settings, time.monotonic())
