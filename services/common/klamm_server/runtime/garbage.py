"""Controls when Python's garbage collector runs, in processes with millions of small objects without cycles.

A collection stops the process for some 0.3 us per object that it visits. A controller that is stopped for an election
timeout loses its leadership. All controllers of a quorum have the same objects, so they collect at the same moment.

So the collector visits each object twice while it is young, at most 100,000 objects together. After a long collection,
all objects that exist then are frozen (`gc.freeze`), and the collector never visits them again. Python still frees a
frozen object when its last reference goes. Only cycles among frozen objects stay in memory, and 100,000 objects of one
moment have few cycles. The objects that a process loads when it starts are frozen too.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 10_000
"""The number of new objects at which a young collection begins."""
YOUNG_COLLECTIONS = 10
"""The number of young collections before the objects that survived them are collected."""
MIDDLE_COLLECTIONS = 1_000
"""The number of middle collections before all objects are collected."""
LONG_S = 0.02
"""The duration in seconds from which a collection should not visit the same objects again."""


@contextmanager
def loading() -> Iterator[None]:
    """Turns collections off while a starting process loads its modules. Modules are never freed, and collections would
    take a tenth of the start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_seldom() -> None:
    """Makes collections rare for the rest of this process's life."""
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, MIDDLE_COLLECTIONS)
    gc.callbacks.append(LongCollections(time.perf_counter, gc.freeze))


class LongCollections:
    """A callback for gc.callbacks: calls `set_aside` after a collection that took LONG_S."""

    def __init__(self, now_s: Callable[[], float], set_aside: Callable[[], None]) -> None:
        self._now_s = now_s
        self._set_aside = set_aside
        self._began_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Notes the begin (phase "start") or the end of a collection."""
        if phase == "start":
            self._began_s = self._now_s()
        elif self._now_s() - self._began_s >= LONG_S:
            self._set_aside()
