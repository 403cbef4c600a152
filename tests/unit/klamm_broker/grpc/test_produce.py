"""Tests how Produce messages reach the handler, and how its answers reach the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, RecordError
from klamm.model import TopicPartition
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import ProducedPartition, ProduceHeader, ProducePartition, WriterFence
from klamm_broker.grpc.produce import ProduceRpc
from klamm_broker.handlers.produce import Produce, Produced
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.log.partition.partition_log import ShardWriter
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.replica.broker_directory import BrokerDirectory
from klamm_server.rpc.call_throttle import CallThrottle
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.rate_window import WindowSpan

FLIGHTS, WEATHER = TopicPartition("flights", 0), TopicPartition("weather", 3)


class ScriptedHandler:
    """A handler that records its calls and answers at once, or later."""

    def __init__(self, answers: list[Produced], *, waits: bool = False) -> None:
        self.given: list[Produce] = []
        self._answers = answers
        self._waits = waits

    def serve(self, produce: Produce) -> list[Produced] | Waiting[list[Produced]]:
        self.given.append(produce)
        return Waiting(self._answer_async()) if self._waits else self._answers

    async def _answer_async(self) -> list[Produced]:
        await asyncio.sleep(0)
        return self._answers

    def refuse(self, produce: Produce, error: BrokerError) -> list[Produced]:
        return [Produced(partition.topic_partition, error.code, error.message) for partition in produce.partitions]


def message(parts: Iterable[tuple[TopicPartition, bytes]], client_id: str = "", **fields: Any) -> bytes:
    parts = list(parts)
    header = ProduceHeader(
        client_id=client_id,
        acks=-1,
        timeout_ms=1_500,
        partitions=[
            ProducePartition(topic=name.topic, partition=name.partition, records_bytes=len(records), **fields)
            for name, records in parts
        ],
    )
    return encode_framed(header, [records for _, records in parts])


def rpc(handler: Any, memory: RequestMemory | None = None, **quotas: float) -> ProduceRpc:
    """Returns the RPC. `quotas` are those of the client id `slow`."""
    limits = ClientQuotas(WindowSpan())
    limits.apply({(("client-id", "slow"),): quotas} if quotas else {})
    throttle = CallThrottle(limits, SystemClock(), knows_callers=False)
    return ProduceRpc(
        handler, BrokerNodes(BrokerDirectory(), {}), memory or RequestMemory(10**6), throttle, request_timeout_ms=30_000
    )


@pytest.mark.parametrize("waits", [False, True])
def test_a_produce_request_reaches_the_handler_and_its_results_reach_the_client(waits: bool) -> None:
    refused = Produced(
        WEATHER,
        ErrorCode.INVALID_RECORD,
        "no",
        log_start_offset=4,
        current_leader=2,
        current_leader_epoch=9,
        record_errors=[RecordError(1, "bad")],
    )
    handler = ScriptedHandler([Produced(FLIGHTS, base_offset=7, log_start_offset=1), refused], waits=waits)
    memory = RequestMemory(10**6)
    request = message([(FLIGHTS, b"abc"), (WEATHER, b"de")], current_leader_epoch=5)
    response = asyncio.run(rpc(handler, memory).produce(request, None))
    (produce,) = handler.given
    assert produce[:3] == (-1, 1_500, "")
    assert [(name, bytes(records), epoch, writer) for name, records, epoch, writer in produce.partitions] == [
        (FLIGHTS, b"abc", 5, None),
        (WEATHER, b"de", 5, None),
    ]
    good, bad = response.partitions
    assert good == ProducedPartition(topic="flights", base_offset=7, log_append_time_ms=-1, log_start_offset=1)
    assert (bad.error_code, bad.error_message, bad.base_offset) == (ErrorCode.INVALID_RECORD, "no", -1)
    assert (bad.current_leader, bad.current_leader_epoch) == (2, 9)
    assert [(record_error.index, record_error.message) for record_error in bad.record_errors] == [(1, "bad")]
    assert memory.held_bytes == 0


@pytest.mark.parametrize("base_offset", [None, 12])
def test_the_writer_fence_of_a_shard_owner_reaches_the_handler(base_offset: int | None) -> None:
    handler = ScriptedHandler([])
    fence = WriterFence(producer_id=3, producer_epoch=4, transaction_version=2, base_offset=base_offset)
    asyncio.run(rpc(handler).produce(message([(FLIGHTS, b"a")], writer=fence), None))
    assert handler.given[0].partitions[0].writer == ShardWriter(3, 4, 2, base_offset)


def test_a_partition_named_twice_is_refused_as_a_whole() -> None:
    handler = ScriptedHandler([])
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST], match="names a partition twice"):
        asyncio.run(rpc(handler).produce(message([(FLIGHTS, b"a"), (FLIGHTS, b"b")]), None))
    assert not handler.given


def test_without_request_memory_a_unary_produce_is_refused_and_a_stream_waits() -> None:
    handler = ScriptedHandler([Produced(FLIGHTS)])
    request = message([(FLIGHTS, bytes(600))])

    async def requests() -> AsyncIterator[bytes]:
        yield request

    async def scenario() -> None:
        memory = RequestMemory(1_000)
        memory.take(700)
        calls = rpc(handler, memory)
        (refused,) = (await calls.produce(request, None)).partitions
        assert refused.error_code
        assert not handler.given
        stream = asyncio.ensure_future(anext(aiter(calls.produce_stream(requests(), None))))
        await asyncio.sleep(0)
        assert not handler.given
        memory.give_back(700)
        (answered,) = (await stream).partitions
        assert not answered.error_code

    asyncio.run(scenario())


def test_a_produce_over_quota_gets_a_throttle_time_and_a_call_before_its_end_is_refused() -> None:
    """The throttle time is longer than a server keeps a call waiting."""

    async def scenario() -> None:
        handler = ScriptedHandler([Produced(FLIGHTS)])
        calls = rpc(handler, producer_byte_rate=1.0)
        request = message([(FLIGHTS, bytes(600))], client_id="slow")
        first = await calls.produce(request, None)
        assert first.throttle_time_ms > 500_000
        (refused,) = (await calls.produce(request, None)).partitions
        assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert len(handler.given) == 1, "nothing was done"
        other = await calls.produce(message([(FLIGHTS, bytes(600))], client_id="other"), None)
        assert (other.throttle_time_ms, other.partitions[0].error_code) == (0, 0)

    asyncio.run(scenario())


def test_a_throttled_produce_stream_waits_before_it_handles_its_next_message() -> None:
    async def scenario() -> None:
        handler = ScriptedHandler([Produced(FLIGHTS)])
        request = message([(FLIGHTS, bytes(600))], client_id="slow")

        async def requests() -> AsyncIterator[bytes]:
            yield request
            yield request

        stream = aiter(rpc(handler, producer_byte_rate=1.0).produce_stream(requests(), None))
        assert (await anext(stream)).throttle_time_ms > 500_000
        following = asyncio.ensure_future(anext(stream))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not following.done()
        assert len(handler.given) == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(scenario())
