"""Sends Produce requests to brokers: over the Kafka listener beside the broker's gRPC listener, or else by gRPC."""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from typing import Final

from klamm.errors import KlammError
from klamm.rpc.cancellation import raise_if_cancelled
from klamm.rpc.kafka_listener import KafkaListener
from klamm.rpc.record_channel import Dialled, Dialler, RecordChannel
from klamm.rpc.status import CallFailed
from klamm.several_calls import until_all_ended
from klamm.wire.framed import Buffer, framed_pieces
from klamm.wire.record_frames import PRODUCE, VERSION
from klamm.wire.v1.broker_pb2 import ProduceHeader, ProduceResponse
from klamm.wire.v1.broker_rpc import BrokerStub

CONNECTIONS_MAX: Final = 5
"""The most connections to one broker. The broker answers the requests of one connection one after the other, so each
request that waits for other replicas needs one."""


class RecordCalls:
    """The Produce requests of one client. Without a `dialler`, all of them go by gRPC."""

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
        pieces = framed_pieces(header, records)
        channel = self._channel(listener)
        found = None
        if channel is not None:
            found = channel.take(sum(map(len, pieces)))
        if channel is None or found is None:
            response: ProduceResponse = await broker.produce(b"".join(pieces))
            return response
        try:
            return ProduceResponse.FromString(await self._call(found, pieces))
        finally:
            channel.give_back(found)

    def keep(self, listeners: Set[KafkaListener | None]) -> list[RecordChannel]:
        """Forgets all other listeners. The caller closes the returned channels."""
        return [self._channels.pop(listener) for listener in self._channels.keys() - listeners]

    async def close(self) -> None:
        """Closes all connections. Requests under way raise NetworkError."""
        channels = self.keep(set())
        self._dialler = None
        await until_all_ended(channel.close() for channel in channels)

    async def _call(self, found: Dialled, pieces: Sequence[Buffer]) -> bytes:
        try:
            return bytes(await found.connection.call(PRODUCE, VERSION, pieces, self._timeout_ms))
        except CallFailed as failure:
            raise_if_cancelled()
            raise self._error(failure, found) from failure

    @staticmethod
    def _error(failure: CallFailed, found: Dialled) -> KlammError:
        return failure.error(f"Produce at {found.connection.address}")

    def _channel(self, listener: KafkaListener | None) -> RecordChannel | None:
        dialler = self._dialler
        if listener is None or dialler is None:
            return None
        channel = self._channels.get(listener)
        if channel is None:
            channel = self._channels[listener] = RecordChannel(
                listener,
                lambda: dialler.version,
                dialler.dial,
                self._rng,
                connections_max=CONNECTIONS_MAX,
            )
        return channel
