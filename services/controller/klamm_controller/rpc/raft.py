"""Raft: what the other controllers of the quorum send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from klamm.errors import ErrorCode
from klamm.wire.v1.raft_pb2 import RaftEnvelope, RaftExchangeResponse
from klamm_controller.io.raft_codec import decode
from klamm_controller.raft.messages import Message


class RaftRpcs:
    """Exchange. `receive` gets every message, in the order of each sender."""

    def __init__(self, cluster_id: str, receive: Callable[[Message], None]) -> None:
        self._cluster_id = cluster_id
        self._receive = receive
        self._streams: set[asyncio.Task[Any]] = set()
        self._stopped = False

    async def exchange(self, envelopes: AsyncIterator[RaftEnvelope], context: Any) -> RaftExchangeResponse:
        """Raises InconsistentClusterIdError, MalformedMessageError."""
        if self._stopped:
            return RaftExchangeResponse()
        stream = asyncio.current_task()
        assert stream is not None
        self._streams.add(stream)
        try:
            async for envelope in envelopes:
                self._take(envelope)
        finally:
            self._streams.discard(stream)
        return RaftExchangeResponse()

    def stop(self) -> None:
        """Ends the streams under way, and those that come: their senders would keep them open for ever."""
        self._stopped = True
        for stream in self._streams:
            stream.cancel()

    def _take(self, envelope: RaftEnvelope) -> None:
        if envelope.cluster_id != self._cluster_id:
            raise ErrorCode.INCONSISTENT_CLUSTER_ID.exception(
                f"this is cluster {self._cluster_id}, the sender's is {envelope.cluster_id}"
            )
        for message in envelope.messages:
            self._receive(decode(message))
