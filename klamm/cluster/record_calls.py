"""Sends Produce and Fetch requests to brokers: over the Kafka listener beside the gRPC listener, or else by gRPC."""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from typing import Final

from klamm.rpc.cancellation import raise_if_cancelled
from klamm.rpc.kafka_listener import KafkaListener
from klamm.rpc.record_channel import Dialled, Dialler, RecordChannel
from klamm.rpc.status import CallFailed
from klamm.several_calls import until_all_ended
from klamm.wire.framed import Buffer, framed_start
from klamm.wire.record_frames import FETCH, PRODUCE, VERSION
from klamm.wire.v1.broker_pb2 import FetchRequest, ProduceHeader, ProduceResponse
from klamm.wire.v1.broker_rpc import BrokerStub

CONNECTIONS_MAX: Final = 5
"""The most connections to one broker. The broker answers the requests of one connection one after the other, so each
request that waits for other replicas needs one."""

_NAMES: Final = {PRODUCE: "Produce", FETCH: "Fetch"}


class RecordCalls:
    """The requests of one client with records. Without a `dialler`, all of them go by gRPC."""

    def __init__(self, dialler: Dialler | None, rng: random.Random, *, timeout_ms: int) -> None:
        self._dialler = dialler
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._channels: dict[KafkaListener, RecordChannel] = {}

    async def produce(
        self, broker: BrokerStub, listener: KafkaListener | None, header: ProduceHeader, records: Sequence[Buffer]
    ) -> ProduceResponse:
        """Sends records to a broker, which may have a Kafka listener for this client. Raises NetworkError,
        RequestTimedOutError, or as `broker.produce`."""
        pieces = [framed_start(header, sum(map(len, records))), *records]
        channel = self._channel(listener)
        if channel is not None:
            channel.count(sum(map(len, pieces)))
            if (found := channel.take()) is not None:
                answer = await self._call(channel, found, PRODUCE, pieces, self._timeout_ms)
                return ProduceResponse.FromString(bytes(answer))
        response: ProduceResponse = await broker.produce(b"".join(pieces))
        return response

    async def fetch(
        self, broker: BrokerStub, listener: KafkaListener | None, request: FetchRequest, *, timeout_ms: int
    ) -> Buffer:
        """Fetches from a broker, which may have a Kafka listener for this client. Returns a FetchResponse. Raises
        NetworkError, RequestTimedOutError, or as `broker.fetch`."""
        channel = self._channel(listener)
        if channel is None:
            return await broker.fetch(request, timeout_ms=timeout_ms)
        if (found := channel.take()) is not None:
            return await self._call(channel, found, FETCH, [request.SerializeToString()], timeout_ms)
        answer = await broker.fetch(request, timeout_ms=timeout_ms)
        channel.count(len(answer))
        return answer

    def keep(self, listeners: Set[KafkaListener | None]) -> list[RecordChannel]:
        """Forgets all other listeners. The caller closes the returned channels."""
        return [self._channels.pop(listener) for listener in self._channels.keys() - listeners]

    async def close(self) -> None:
        """Closes all connections. Requests under way raise NetworkError."""
        channels = self.keep(set())
        self._dialler = None
        await until_all_ended(channel.close() for channel in channels)

    async def _call(
        self, channel: RecordChannel, found: Dialled, api_key: int, pieces: Sequence[Buffer], timeout_ms: int
    ) -> Buffer:
        try:
            return await found.connection.call(api_key, VERSION, pieces, timeout_ms)
        except CallFailed as failure:
            raise_if_cancelled()
            raise failure.error(f"{_NAMES[api_key]} at {found.connection.address}") from failure
        finally:
            channel.give_back(found)

    def _channel(self, listener: KafkaListener | None) -> RecordChannel | None:
        dialler = self._dialler
        if listener is None or dialler is None:
            return None
        channel = self._channels.get(listener)
        if channel is None:
            channel = self._channels[listener] = RecordChannel(
                listener,
                dialler.dial,
                self._rng,
                connections_max=CONNECTIONS_MAX,
            )
        return channel
