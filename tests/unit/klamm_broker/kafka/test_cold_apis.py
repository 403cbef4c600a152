"""Tests that large requests are decoded in a thread, and their answers encoded."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm_broker.kafka import messages
from klamm_broker.kafka.cold_apis import LARGE_BYTES, ColdApis
from klamm_broker.kafka.requests import ApiKey, Request
from klamm_broker.kafka.wire import MalformedRequestError
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
