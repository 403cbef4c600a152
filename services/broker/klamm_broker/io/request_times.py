"""Measures how long requests take, by API and phase.

Kafka's RequestMetrics, but for one event loop instead of two thread pools.

| phase    | Kafka's name       | time                                                                   |
|----------|--------------------|------------------------------------------------------------------------|
| `queue`  | RequestQueueTimeMs | waiting for memory (`queued.max.request.bytes`), if it waited          |
| `local`  | LocalTimeMs        | until the request was answered or first had to wait                    |
| `remote` | RemoteTimeMs       | waiting in the purgatory, for other servers or the disk, if it waited  |
| `send`   | ResponseSendTimeMs | until the client received the answer, if the request waited before     |
| `total`  | TotalTimeMs        | the whole request                                                      |

Before `queue`, a request waits until the event loop runs it (`klamm_event_loop_lag_seconds`). There is no response
queue. The count of `total` is the number of answered requests.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from functools import cached_property
from time import perf_counter
from typing import Any, Final, TypeVar

from klamm_server.metrics.instruments import Histogram, histograms

T = TypeVar("T")

_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_SECONDS = histograms(
    "klamm_broker_request_seconds", "How long requests took, by phase.", ["listener", "api", "phase"], _BUCKETS_S
)


class RequestTimes:
    """The durations of the requests of one API at one listener. `api` is Kafka's name, such as "ListOffsets";
    `listener` is "GRPC" or "KAFKA".

    The first request with a phase creates the phase's metric, because most APIs are never used and few use all
    phases."""

    def __init__(self, listener: str, api: str) -> None:
        self._labels = (listener, api)

    @cached_property
    def queue(self) -> Histogram:
        return _SECONDS.labels(*self._labels, "queue")

    @cached_property
    def local(self) -> Histogram:
        return _SECONDS.labels(*self._labels, "local")

    @cached_property
    def remote(self) -> Histogram:
        return _SECONDS.labels(*self._labels, "remote")

    @cached_property
    def send(self) -> Histogram:
        return _SECONDS.labels(*self._labels, "send")

    @cached_property
    def total(self) -> Histogram:
        return _SECONDS.labels(*self._labels, "total")


async def waiting(work: Coroutine[Any, Any, T], times: RequestTimes) -> T:
    """Awaits work of a request, and counts the time as its phase `remote`."""
    began_s = perf_counter()
    try:
        return await work
    finally:
        times.remote.observe(perf_counter() - began_s)


@types.coroutine
def timed(work: Coroutine[Any, Any, T], times: RequestTimes) -> Generator[Any, Any, T]:
    """Awaits a coroutine that serves a request. The time until its first wait is phase `local`, and the rest is
    `remote`."""
    began_s = perf_counter()
    waits_s = 0.0
    try:
        waited = work.send(None)
        waits_s = perf_counter()
        times.local.observe(waits_s - began_s)
        while True:
            try:
                sent = yield waited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - every exception is passed to the coroutine
                waited = work.throw(error)
            else:
                waited = work.send(sent)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        ended_s = perf_counter()
        (times.remote if waits_s else times.local).observe(ended_s - (waits_s or began_s))
        times.total.observe(ended_s - began_s)
