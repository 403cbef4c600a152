"""The end and the fork of a process with producers: `send` refuses records, and unsent records are counted.

Both events stop the thread of the event loop, perhaps while it holds the lock of the producers. So nothing here
acquires the lock."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Final

from klamm.producer.engine import ProducerEngine
from klamm.threads.loop_thread import at_end

_engines: Final[weakref.WeakSet[ProducerEngine]] = weakref.WeakSet()


def watch(engine: ProducerEngine) -> None:
    """Watches the engine of a producer that uses the shared loop thread."""
    at_end(_end)
    _engines.add(engine)


def _disable() -> None:
    """Makes every `send` fail. Without topics, `send` leaves its fast path, and the slow path refuses the call."""
    for engine in list(_engines):
        engine.topics.clear()


def _after_fork_in_child() -> None:
    _disable()
    _engines.clear()  # The parent sends their records.


def _end() -> None:
    _disable()
    for engine in sorted(_engines, key=lambda producer: producer.config.client_id):
        count = engine.accumulator.unacknowledged_count()
        if count:
            # The handlers of logging are closed already, and the loop's thread may hold their locks for ever.
            print(_report(engine.config.client_id, count), file=sys.stderr)  # noqa: T201 - for the person at the console


def _report(client_id: str, count: int) -> str:
    records = "1 record was" if count == 1 else f"{count} records were"
    return (
        f"Producer client.id={client_id} was not closed: {records} not acknowledged and may be lost."
        " Call flush() or close() before the program ends"
    )


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_after_fork_in_child)
