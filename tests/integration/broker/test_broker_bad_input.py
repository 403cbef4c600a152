"""Tests that bad input gets its error code and harms nothing else on its connection, in its request or on disk."""

from __future__ import annotations

import asyncio
import struct

import grpc
import pytest
from crc32c import crc32c

from klamm.errors import ErrorCode
from klamm.wire.framed import encode_framed
from klamm.wire.v1 import broker_pb2 as b
from tests.support.broker_harness import StartBroker, batch, fetch_request, produce_request

ATTRIBUTES_POSITION = 21
"""Where what the checksum covers begins."""


def flipped(position: int) -> bytes:
    """Returns a batch with one damaged byte and the checksum of the undamaged batch."""
    damaged = bytearray(batch(3))
    damaged[position] ^= 0xFF
    return bytes(damaged)


def resealed(position: int, replacement: bytes, whole: bytes | None = None) -> bytes:
    """Returns a batch with other bytes at `position` and a checksum that fits them."""
    damaged = bytearray(whole or batch(3))
    damaged[position : position + len(replacement)] = replacement
    damaged[17:21] = struct.pack(">I", crc32c(damaged[ATTRIBUTES_POSITION:]))
    return bytes(damaged)


BAD_RECORDS: dict[str, tuple[bytes, ErrorCode]] = {
    "bad checksum": (flipped(-1), ErrorCode.CORRUPT_MESSAGE),
    "bad magic": (flipped(16), ErrorCode.INVALID_RECORD),
    "old magic": (resealed(16, b"\x01"), ErrorCode.INVALID_RECORD),
    "batch cut short": (batch(3)[:-1], ErrorCode.CORRUPT_MESSAGE),
    "header cut short": (batch(3)[:60], ErrorCode.CORRUPT_MESSAGE),
    "rubbish after the batch": (batch(3) + b"rubbish", ErrorCode.CORRUPT_MESSAGE),
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "negative length": (resealed(8, struct.pack(">i", -1)), ErrorCode.INVALID_RECORD),
    "count and offsets disagree": (resealed(57, struct.pack(">i", 7)), ErrorCode.INVALID_RECORD),
    "more records than fit": (
        resealed(23, struct.pack(">i", 2**31 - 2), resealed(57, struct.pack(">i", 2**31 - 1))),
        ErrorCode.INVALID_RECORD,
    ),
    "unknown compression": (
        resealed(ATTRIBUTES_POSITION, struct.pack(">h", 7)),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "control batch": (resealed(ATTRIBUTES_POSITION, struct.pack(">h", 0x20)), ErrorCode.INVALID_RECORD),
    "producer without a sequence": (resealed(43, struct.pack(">qhi", 4, 0, -1)), ErrorCode.INVALID_RECORD),
    "larger than max.message.bytes": (batch(1, value=bytes(5_000)), ErrorCode.MESSAGE_TOO_LARGE),
    "from the far future": (batch(1, timestamp_ms=2**62), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_records_are_refused_and_other_partitions_of_the_request_are_written(
    start_broker: StartBroker, name: str
) -> None:
    """The same request has good records for another partition.

    The partition itself accepts good records before and after.
    """
    records, code = BAD_RECORDS[name]

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2, configs={"max.message.bytes": "4000"})
            await broker.wait_for_topic("flights", 2)
            await broker.produce("flights", batch(1))
            parts = [("flights", 0, records), ("flights", 1, batch(2))]
            bad, good = (await broker.stub.produce(produce_request(parts))).partitions
            assert (bad.error_code, bad.base_offset) == (code, -1)
            assert bad.error_message
            assert (good.error_code, good.base_offset) == (0, 0)
            assert (await broker.produce("flights", batch(1))).base_offset == 1
            answer, stored = await broker.fetch("flights")
            assert answer.high_watermark == 2
            assert len(stored) == 2 * len(batch(1))

    asyncio.run(scenario())


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "rubbish": b"\xff" * 100,
    "length beyond the end": b"\x0a\x7f\x00",
    "length without end": b"\x0a" + b"\xff" * 10,
    "header that does not parse": b"\x0a\x02\xff\xff",
    "fields after the records": produce_request([("flights", 0, batch(1))]) + b"\x1a\x00",
    "sizes larger than the records": encode_framed(
        b.ProduceHeader(acks=1, partitions=[b.ProducePartition(topic="flights", records_bytes=1_000)]), [batch(1)]
    ),
    "sizes smaller than the records": encode_framed(
        b.ProduceHeader(acks=1, partitions=[b.ProducePartition(topic="flights", records_bytes=10)]), [batch(1)]
    ),
    "a partition twice": produce_request([("flights", 0, batch(1)), ("flights", 0, batch(1))]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_produce_request_is_refused_and_the_connection_stays_open(
    start_broker: StartBroker, name: str
) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            polling = asyncio.ensure_future(broker.fetch("flights", max_wait_ms=10_000))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await broker.stub.produce(MALFORMED[name])
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (await broker.produce("flights", batch(1))).base_offset == 0
            answer, _ = await polling
            assert answer.high_watermark == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [7, -2, 2])
def test_invalid_acks_are_refused(start_broker: StartBroker, acks: int) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            assert (await broker.produce("flights", batch(1), acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert (await broker.fetch("flights"))[0].high_watermark == 0

    asyncio.run(scenario())


def test_requests_for_unknown_partitions_are_refused(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            for topic, partition in (("nowhere", 0), ("flights", 1), ("flights", -1), ("", 0)):
                produced = await broker.produce(topic, batch(1), partition=partition)
                assert produced.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer, _ = await broker.fetch(topic, partition=partition, max_wait_ms=10_000)
                assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


@pytest.mark.parametrize("offset", [4, 100, -1, -(2**40)])
def test_a_fetch_at_an_offset_out_of_range_is_refused(start_broker: StartBroker, offset: int) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            await broker.produce("flights", batch(3))
            answer, records = await broker.fetch("flights", offset, max_wait_ms=10_000)
            assert (answer.error_code, records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
            assert answer.log_start_offset == 0

    asyncio.run(scenario())


def test_requests_with_another_leader_epoch_or_to_a_follower_are_refused(start_broker: StartBroker) -> None:
    """Covers the fencing of KIP-320 and the leader hints of KIP-951."""

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2, replicas=(1, 2))
            await controller.change_leader("flights", 0, 2)
            await controller.change_leader("flights", 0, 1)
            await controller.change_leader("flights", 1, 2)
            await broker.wait_for_topic("flights", 2)

            async def fetch_at(epoch: int) -> int:
                answer, _ = await broker.fetch("flights", current_leader_epoch=epoch)
                return answer.error_code

            await controller.create_topic("later")
            await broker.wait_for_topic("later")
            assert await fetch_at(2) == 0
            assert await fetch_at(1) == ErrorCode.FENCED_LEADER_EPOCH
            assert await fetch_at(3) == ErrorCode.UNKNOWN_LEADER_EPOCH
            produced = await broker.produce("flights", batch(1), partition=1)
            assert produced.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (produced.current_leader, produced.current_leader_epoch) == (2, 1)
            fetched, _ = await broker.fetch("flights", partition=1)
            assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (fetched.current_leader, fetched.current_leader_epoch) == (2, 1)

    asyncio.run(scenario())


def test_contradictory_fetch_and_metadata_requests_are_refused(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            requests = [
                fetch_request([("flights", 0, 0)], isolation_level=2),
                fetch_request([("flights", 0, 0)], replica_id=3),
            ]
            for request in requests:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await broker.stub.fetch(request)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await broker.stub.metadata(b.MetadataRequest(all_topics=True, topics=["flights"]))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(scenario())


def test_a_request_above_the_maximum_size_is_refused(start_broker: StartBroker) -> None:
    """The bound is socket.request.max.bytes. The connection still works after the refusal."""

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await broker.produce("flights", bytes(9 * 1024**2))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await broker.produce("flights", batch(1))).base_offset == 0

    asyncio.run(scenario())


def test_acks_all_is_refused_below_min_insync_replicas_and_acks_1_is_not(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", replicas=(1, 2, 3), isr=(1,), configs={"min.insync.replicas": "2"})
            await broker.wait_for_topic("flights")
            assert (await broker.produce("flights", batch(1))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await broker.produce("flights", batch(1), acks=1)).base_offset == 0

    asyncio.run(scenario())


def test_a_client_cannot_produce_to_an_internal_topic(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("__consumer_offsets")
            await broker.wait_for_topic("__consumer_offsets")
            refused = await broker.produce("__consumer_offsets", batch(1))
            assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert (await broker.fetch("__consumer_offsets"))[0].high_watermark == 0

    asyncio.run(scenario())
