"""A follower's stream to its leader over the leader's Kafka listener (KLAMM_REPLICA_FETCH)."""

from __future__ import annotations

import asyncio

from klamm.rpc.record_connection import RecordConnection
from klamm.rpc.status import CallFailed, Status
from klamm.wire.record_frames import REPLICA_FETCH, VERSION
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest


class RecordStream:
    """The requests and answers of one connection, with the methods of a gRPC stream that the fetcher calls. If an
    answer takes longer than `timeout_ms`, the leader is taken for lost."""

    def __init__(self, connection: RecordConnection, *, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._answers: asyncio.Queue[asyncio.Future[bytes | bytearray]] = asyncio.Queue()
        self.has_answers = False
        """True after the first answer."""

    async def write(self, request: ReplicaFetchRequest) -> None:
        """Sends a request. Raises NetworkError if the connection was closed."""
        try:
            answer = self._connection.send(REPLICA_FETCH, VERSION, [request.SerializeToString()])
        except CallFailed as failure:
            raise failure.error(self._what) from failure
        self._answers.put_nowait(answer)

    async def read(self) -> bytes | bytearray:
        """Returns the next answer. Raises NetworkError if the connection was closed, or RequestTimedOutError."""
        answer = await self._answers.get()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                message = await answer
        except TimeoutError:
            failure = CallFailed(Status.DEADLINE_EXCEEDED, f"no answer after {self._timeout_ms} ms")
            raise failure.error(self._what) from None
        except CallFailed as failure:
            raise failure.error(self._what) from failure
        self.has_answers = True
        return message

    @property
    def _what(self) -> str:
        return f"ReplicaFetch at {self._connection.address}"
