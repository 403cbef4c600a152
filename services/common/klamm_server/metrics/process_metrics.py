"""Metrics that every service has: of its event queues, its event loop and its disks.

Names start with `klamm_` and end with their unit, times in seconds, as Prometheus wants it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final

from klamm.version import __version__
from klamm_server.metrics.instruments import gauge, gauges, histograms

_QUEUE_BUCKETS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
_QUEUE_LENGTH = gauges("klamm_event_queue_length", "Events that wait to be handled.", ["queue"])
_QUEUE_WAIT = histograms(
    "klamm_event_queue_wait_seconds",
    "Time from an event's arrival to the start of its handling.",
    ["queue"],
    _QUEUE_BUCKETS_S,
)
_QUEUE_HANDLE = histograms(
    "klamm_event_queue_handle_seconds", "How long the handling of an event took.", ["queue"], _QUEUE_BUCKETS_S
)


def event_queue_observer(queue: str) -> Callable[[int, int], None]:
    """Returns the `on_handled` callback for the event queue with that name."""
    waited, handled = _QUEUE_WAIT.labels(queue), _QUEUE_HANDLE.labels(queue)

    def observe(waited_ms: int, took_ms: int) -> None:
        waited.observe(waited_ms / 1000)
        handled.observe(took_ms / 1000)

    return observe


def watch_event_queue_length(queue: str, length: Callable[[], int]) -> None:
    """Reports `length()` when the metrics are read. It runs in the endpoint's thread, so it must not change
    anything.
    """
    _QUEUE_LENGTH.labels(queue).set_function(length)


_SERVER_INFO = gauges(
    "klamm_server_info",
    "1 for the server of this process. process_start_time_seconds has the time of its start.",
    ["version", "role", "node_id"],
)


def name_server(role: str, node_id: int) -> None:
    """Reports the version, the role and the id of the server that this process runs."""
    _SERVER_INFO.labels(__version__, role, str(node_id)).set(1)


LOOP_CHECK_S: Final = 0.02
_LOOP_LAG = histograms(
    "klamm_event_loop_lag_seconds",
    "Delay of a timer that is due every 0.02 s. A turn of the event loop that takes longer always delays it.",
    (),
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
).labels()
_LOOP_STALLED = gauge("klamm_event_loop_stalled_seconds", "How late the event loop is for that timer now.")
_DISK_SIZE = gauges("klamm_disk_size_bytes", "Size of the file system of a data directory.", ["directory"])
_DISK_FREE = gauges(
    "klamm_disk_free_bytes", "Bytes of that file system that this process may still write.", ["directory"]
)


async def measure_event_loop() -> None:
    """Measures the delay of the event loop until it is cancelled."""
    due_s = time.monotonic() + LOOP_CHECK_S
    # Another thread calls this function, so that it also runs while the loop is blocked.
    _LOOP_STALLED.set_function(lambda: max(0.0, time.monotonic() - due_s))
    while True:
        await asyncio.sleep(LOOP_CHECK_S)
        now_s = time.monotonic()
        _LOOP_LAG.observe(max(0.0, now_s - due_s))
        due_s = now_s + LOOP_CHECK_S


def watch_disk(directory: str) -> None:
    """Reports on the file system of `directory`. The value is NaN while the system cannot tell."""
    _DISK_SIZE.labels(directory).set_function(lambda: _blocks_bytes(directory, "f_blocks"))
    _DISK_FREE.labels(directory).set_function(lambda: _blocks_bytes(directory, "f_bavail"))


def _blocks_bytes(directory: str, count: str) -> float:
    try:
        stats = os.statvfs(directory)
    except OSError:
        return float("nan")
    return float(getattr(stats, count) * stats.f_frsize)
