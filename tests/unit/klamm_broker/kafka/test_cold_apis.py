"""Tests that large requests are decoded in a thread, and their answers encoded."""

from __future__ import annotations

import asyncio
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_reader

from klamm.errors import ErrorCode
from klamm_broker.handlers.list_offsets import ListedOffset, OffsetQuery
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.schemas import response_schema
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.cold_apis import LARGE_BYTES, ColdApis
from klamm_broker.kafka.requests import Request
from klamm_server.runtime.sliced_work import SlicedWork
from klamm_server.runtime.waiting import Waiting
from tests.support.callers import called_with
from tests.support.cold_requests import ALONE, TOPIC_IDS, ScriptedCoordinators, request_of


class NoHandlers(SimpleNamespace):
    """The handlers of a broker that are not called."""

    def __getattr__(self, name: str) -> None:
        return None


def threads_of(request: Request, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, list[bool]]:
    """Answers the request of a caller without rights. Returns the answer, and whether a thread decoded and encoded."""
    in_thread = []

    def noting(work: Any) -> Any:
        def run(*arguments: Any) -> Any:
            in_thread.append(threading.current_thread() is not threading.main_thread())
            return work(*arguments)

        return run

    monkeypatch.setattr(messages, "decode", noting(messages.decode))
    monkeypatch.setattr(messages, "encode", noting(messages.encode))
    coordinators: Any = ScriptedCoordinators({})
    nothing: Any = None
    handlers: Any = NoHandlers()

    async def run() -> bytes:
        cold = ColdApis(handlers, nothing, coordinators, ALONE, TOPIC_IDS, nothing)
        with called_with():
            (answer,) = await cold.handle(request)
        assert isinstance(answer, bytes)
        return answer

    return asyncio.run(run()), in_thread


@pytest.mark.parametrize("is_large", [False, True])
def test_a_thread_decodes_and_encodes_large_requests_only(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"group-{number}" for number in range(LARGE_BYTES // 8 if is_large else 10)]
    request = request_of(ApiKey.DELETE_GROUPS, 0, {"groups_names": names})
    answer, in_thread = threads_of(request, monkeypatch)
    results = [{"group_id": name, "error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED} for name in names]
    assert answer == messages.encode(request, {"results": results})
    assert in_thread[:2] == [is_large, is_large]


def test_a_malformed_large_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of(ApiKey.DELETE_GROUPS, 0, {"groups_names": ["group"] * LARGE_BYTES})
    with pytest.raises(MalformedRequestError):
        threads_of(request._replace(frame=request.frame[:-1]), monkeypatch)


class PartitionNumbers:
    """A handler that finds the partition's number as its offset."""

    def list_offsets(self, queries: list[OffsetQuery], *, isolation_level: int) -> list[ListedOffset]:
        return [ListedOffset(query.topic, query.partition, offset=query.partition) for query in queries]

    async def finish(self, answers: list[ListedOffset]) -> list[ListedOffset]:
        return answers


def list_offsets_of(count: int) -> Request:
    """Returns a ListOffsets for the latest offsets of `count` partitions."""
    asked = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1} for number in range(count)]
    topics = [{"name": "flights", "partitions": asked}]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 1_000}
    return request_of(ApiKey.LIST_OFFSETS, 7, fields)


@pytest.mark.parametrize(("count", "clock_step_s", "turns"), [(200, 0.0, 0), (200, 1.0, 3), (20_000, 1.0, 399)])
def test_a_list_offsets_of_many_partitions_lets_the_event_loop_run(count: int, clock_step_s: float, turns: int) -> None:
    """One with few partitions, or one that takes little time, is answered in the turn in which it arrives."""
    request = list_offsets_of(count)
    clock_s = itertools.count(0, clock_step_s)
    nothing: Any = None
    coordinators: Any = ScriptedCoordinators({})
    handlers: Any = NoHandlers(list_offsets=PartitionNumbers())

    async def run() -> tuple[bytes, int]:
        slices = SlicedWork(lambda: float(next(clock_s)))
        cold = ColdApis(handlers, nothing, coordinators, ALONE, TOPIC_IDS, nothing, slices)
        answer = cold.list_offsets(request)
        assert isinstance(answer, Waiting) is (turns > 0)
        if not isinstance(answer, Waiting):
            return bytes(answer[0]), 0
        task = asyncio.create_task(answer.work)
        seen = 0
        while not task.done():
            await asyncio.sleep(0)
            seen += 1
        return bytes(task.result()[0]), seen

    body, seen = asyncio.run(run())
    assert seen >= turns
    reader = entity_reader(response_schema(ApiKey.LIST_OFFSETS, 7))
    message, _ = reader(memoryview(body), 0)
    (topic,) = message.topics
    assert [partition.offset for partition in topic.partitions] == list(range(count))
