"""Tests the time of each phase of a request, by its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from klamm_broker.io import request_times
from klamm_broker.io.request_times import RequestTimes, timed
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.requests import Request
from klamm_server.metrics.prometheus import registry
from klamm_server.runtime.waiting import Waiting
from tests.support.kafka_listener import ServedListener, answer_to, echo, echo_in_time, frame
from tests.support.processes import clocks
from tests.support.waiting import until

PHASES = ("queue", "local", "remote", "send", "total")


def shown(kind: str, api: str = "Heartbeat", listener: str = "KAFKA") -> dict[str, float]:
    """Returns the metric of each phase, or 0 if nothing was observed. `kind` is "count" or "sum"."""
    found = registry().get_sample_value
    labels = {"listener": listener, "api": api}
    return {phase: found(f"klamm_broker_request_seconds_{kind}", {**labels, "phase": phase}) or 0.0 for phase in PHASES}


async def answered_one(served: ServedListener) -> None:
    reader, writer = await served.connect()
    writer.write(frame(1, b"body"))
    assert await answer_to(reader) == (1, b"body")
    writer.close()


@pytest.mark.parametrize(
    ("handle", "phases"),
    [(echo, {"local", "total"}), (echo_in_time, {"local", "remote", "send", "total"})],
    ids=["at once", "in time"],
)
def test_a_kafka_request_is_counted_in_each_of_its_phases(
    handle: Callable[[Request], Answer | Waiting[Answer]], phases: set[str]
) -> None:
    before = shown("count")

    async def scenario() -> None:
        async with ServedListener(handle) as served:
            await answered_one(served)

    asyncio.run(scenario())
    assert {phase: count - before[phase] for phase, count in shown("count").items()} == {
        phase: phase in phases for phase in PHASES
    }


def test_a_requests_wait_for_memory_counts_as_queue_time() -> None:
    now_s = 100.0
    counts, sums = shown("count"), shown("sum")

    async def scenario() -> None:
        nonlocal now_s
        async with ServedListener(echo) as served:
            served.memory.take_anyway(10_000_000)
            answered = asyncio.create_task(answered_one(served))
            await until(lambda: served.memory.is_waited_for)
            now_s += 5
            served.memory.give_back(10_000_000)
            await answered

    with clocks(elapsed_s=lambda: now_s):
        asyncio.run(scenario())
    added = {phase: count - counts[phase] for phase, count in shown("count").items()}
    assert added == {"queue": 1, "local": 1, "remote": 0, "send": 1, "total": 1}
    took = {phase: seconds - sums[phase] for phase, seconds in shown("sum").items()}
    assert took["queue"] == took["total"] == pytest.approx(5)


class TestCoroutines:
    """Tests requests that are coroutines, as those of gRPC are."""

    def test_the_time_up_to_the_first_wait_is_local_and_the_rest_is_remote(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = 100.0
        monkeypatch.setattr(request_times, "perf_counter", lambda: now_s)

        async def work() -> str:
            nonlocal now_s
            now_s += 2
            await asyncio.sleep(0)
            now_s += 4
            return "answer"

        async def scenario() -> None:
            assert await timed(work(), RequestTimes("GRPC", "Wait")) == "answer"

        asyncio.run(scenario())
        took = shown("sum", "Wait", "GRPC")
        assert (took["local"], took["remote"], took["total"]) == (2, 4, 6)
        assert shown("count", "Wait", "GRPC") == {"queue": 0, "local": 1, "remote": 1, "send": 0, "total": 1}

    def test_a_call_that_never_waits_has_only_local_time(self) -> None:
        async def work() -> int:
            return 1

        async def scenario() -> None:
            assert await timed(work(), RequestTimes("GRPC", "AtOnce")) == 1

        asyncio.run(scenario())
        assert shown("count", "AtOnce", "GRPC") == {"queue": 0, "local": 1, "remote": 0, "send": 0, "total": 1}

    @pytest.mark.parametrize("waits", [False, True])
    def test_a_failing_call_is_counted_and_its_exception_is_raised(self, waits: bool) -> None:
        api = f"Fails{waits}"

        async def work() -> None:
            if waits:
                await asyncio.sleep(0)
            raise ValueError("mine")

        async def scenario() -> None:
            with pytest.raises(ValueError, match="mine"):
                await timed(work(), RequestTimes("GRPC", api))

        asyncio.run(scenario())
        assert shown("count", api, "GRPC")["total"] == 1

    def test_a_cancelled_call_receives_the_cancellation_and_is_counted(self) -> None:
        heard: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                heard.append("cancelled")

        async def scenario() -> None:
            task = asyncio.ensure_future(timed(work(), RequestTimes("GRPC", "Cancelled")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(scenario())
        assert heard == ["cancelled"]
        assert shown("count", "Cancelled", "GRPC")["remote"] == 1
