"""Tests calls on a connection: failures, cancelled callers, and a connection that ends during a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.rpc.connection import Connection
from klamm.rpc.options import SERVERS, ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method
from klamm.wire.v1.broker_pb2 import FetchRequest, MetadataRequest, MetadataResponse
from klamm.wire.v1.broker_rpc import BROKER, REPLICATION, BrokerStub
from klamm.wire.v1.raft_pb2 import RaftEnvelope
from klamm.wire.v1.raft_rpc import RAFT
from tests.support.slipping_transport import SlippingTransport, end_by_one_cancellation

ADDRESS = "there:9"
TIMEOUT_MS = 1_234


class ScriptedTransport:
    """A transport with one channel.

    Unary calls are tasks of `answer(request, timeout_ms)`, and streams read `answers`.
    """

    def __init__(self, answer: Callable[[Any, int], Any], answers: list[Any] | None = None) -> None:
        self._answer = answer
        self.answers = answers or []
        self.cancelled = 0

    def channel(self, address: str, options: ChannelOptions) -> ScriptedTransport:
        assert address == ADDRESS
        return self

    def unary(self, method: Method) -> Callable[[Any, int], asyncio.Task[Any]]:
        return lambda request, timeout_ms: asyncio.ensure_future(self._answer(request, timeout_ms))

    def stream(self, method: Method) -> Callable[[Any, int | None], ScriptedTransport]:
        return lambda request, timeout_ms: self

    async def read(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def cancel(self) -> None:
        self.cancelled += 1

    async def close(self) -> None:
        pass


def connected(transport: Any) -> Connection:
    return Connection(transport, ADDRESS, SERVERS, timeout_ms=TIMEOUT_MS)


async def failing(failure: CallFailed) -> BrokerError:
    async def answer(request: Any, timeout_ms: int) -> Any:
        raise failure

    with pytest.raises(BrokerError) as raised:
        await connected(ScriptedTransport(answer)).stub(BROKER).metadata(MetadataRequest())
    return raised.value


@pytest.mark.parametrize(
    ("status", "details", "code"),
    [
        (Status.DEADLINE_EXCEEDED, "", ErrorCode.REQUEST_TIMED_OUT),
        (Status.UNAVAILABLE, "gone", ErrorCode.NETWORK_EXCEPTION),
        (Status.CANCELLED, "", ErrorCode.NETWORK_EXCEPTION),
        (Status.RESOURCE_EXHAUSTED, "too many calls", ErrorCode.NETWORK_EXCEPTION),
        (Status.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (9 vs. 4)", ErrorCode.MESSAGE_TOO_LARGE),
        (Status.INVALID_ARGUMENT, "no topic", ErrorCode.INVALID_REQUEST),
        (Status.UNIMPLEMENTED, "", ErrorCode.UNSUPPORTED_VERSION),
        (Status.INTERNAL, "boom", ErrorCode.UNKNOWN_SERVER_ERROR),
        (Status.UNAUTHENTICATED, "who?", ErrorCode.SASL_AUTHENTICATION_FAILED),
    ],
)
def test_a_grpc_status_becomes_an_error_that_names_the_call(status, details, code):
    error = asyncio.run(failing(CallFailed(status, details)))
    assert error.code is code
    assert error.message == f"metadata at {ADDRESS}: {details or status.name}"


def test_a_call_without_a_timeout_uses_the_timeout_of_the_connection():
    async def answer(request: Any, timeout_ms: int) -> Any:
        return MetadataResponse(cluster_id=str(timeout_ms))

    async def scenario() -> list[str]:
        stub = connected(ScriptedTransport(answer)).stub(BROKER)
        answers = [await stub.metadata(MetadataRequest()), await stub.metadata(MetadataRequest(), timeout_ms=7)]
        answers.append(await BrokerStub.metadata(stub, MetadataRequest(), timeout_ms=8))
        return [answer.cluster_id for answer in answers]

    assert asyncio.run(scenario()) == [str(TIMEOUT_MS), "7", "8"]


def test_end_calls_fails_pending_calls_with_a_network_error_and_allows_new_calls():
    async def scenario() -> None:
        hanging = True

        async def answer(request: Any, timeout_ms: int) -> Any:
            if hanging:
                await asyncio.get_running_loop().create_future()
            return MetadataResponse()

        connection = connected(ScriptedTransport(answer))
        stub = connection.stub(BROKER)
        calls = [asyncio.ensure_future(stub.metadata(MetadataRequest())) for _ in range(3)]
        await asyncio.sleep(0)
        connection.end_calls()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(outcome, "code", None) for outcome in outcomes] == [ErrorCode.NETWORK_EXCEPTION] * 3
        hanging = False
        assert await stub.metadata(MetadataRequest()) == MetadataResponse()

    asyncio.run(scenario())


def test_a_stream_that_ends_with_a_status_delivers_earlier_answers_and_is_cancelled():
    async def scenario() -> None:
        transport = ScriptedTransport(answer=NotImplemented, answers=[b"1", b"2", CallFailed(Status.UNAVAILABLE, "x")])
        heard: list[bytes] = []
        with pytest.raises(BrokerError, match="fetch_stream at there:9: x"):
            await read_all(connected(transport), heard)
        assert heard == [b"1", b"2"]
        assert transport.cancelled == 1

    asyncio.run(scenario())


async def read_all(connection: Connection, heard: list[bytes]) -> None:
    async for answer in connection.stub(BROKER).fetch_stream(FetchRequest()):
        heard.append(answer)


@pytest.mark.parametrize(
    "call",
    [
        lambda connection: connection.stub(BROKER).metadata(MetadataRequest()),
        lambda connection: read_all(connection, []),
        lambda connection: connection.stub(REPLICATION).replica_fetch().read(),
        lambda connection: connection.stub(RAFT).exchange().write(RaftEnvelope()),
    ],
    ids=["unary", "answers", "read", "write"],
)
def test_a_cancellation_that_grpc_reports_as_a_status_still_ends_the_caller(call):
    async def scenario() -> None:
        transport = SlippingTransport()

        async def calling() -> None:
            while True:
                try:
                    await call(connected(transport))
                except BrokerError:
                    continue

        await end_by_one_cancellation(transport, calling())

    asyncio.run(scenario())
