"""Tests produce and fetch over gRPC against real log dirs."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterable, Sequence

import grpc
import pytest

from klamm.errors import ErrorCode
from klamm.records.decoder import decode_batch
from klamm.records.header import iter_headers
from klamm.wire.v1 import broker_pb2 as b
from klamm_server.runtime.disk import Disk
from tests.support.broker_harness import StartBroker, batch, fetch_request, produce_request, split_fetch


class ColdDisk(Disk):
    """A disk that has nothing in the page cache once it `is_cold`."""

    is_cold = False
    probes = 0

    def preadv(self, fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:  # type: ignore[override]
        if self.is_cold:
            self.probes += 1
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return os.preadv(fd, buffers, position, flags)


def test_produced_records_can_be_fetched_with_their_offsets(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            produced = await broker.produce("flights", batch(3), partition=1)
            assert (produced.error_code, produced.base_offset, produced.log_start_offset) == (0, 0, 0)
            assert produced.log_append_time_ms == -1
            again = await broker.produce("flights", batch(2), partition=1, acks=1)
            assert again.base_offset == 3
            answer, records = await broker.fetch("flights", 0, partition=1)
            assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 5, 5)
            headers = [header for _, header in iter_headers(records)]
            assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 0), (3, 0)]
            assert [record.offset for record in decode_batch(records)] == [0, 1, 2]

    asyncio.run(scenario())


def test_a_produce_with_acks_0_is_answered_only_for_partitions_that_failed(
    start_broker: StartBroker,
) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            parts = [("flights", 0, batch(2)), ("nowhere", 0, batch(1))]
            response = await broker.stub.produce(produce_request(parts, acks=0))
            assert [(partition.topic, partition.error_code) for partition in response.partitions] == [
                ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            ]
            answer, _ = await broker.fetch("flights")
            assert answer.high_watermark == 2
            parts = [("flights", 0, batch(1))]
            assert await broker.stub.produce(produce_request(parts, acks=0)) == b.ProduceResponse()

    asyncio.run(scenario())


def test_all_partitions_of_a_request_are_answered_in_its_order(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 3)
            await broker.wait_for_topic("flights", 3)
            parts = [("flights", 2, batch(1)), ("flights", 0, batch(2) + batch(3))]
            response = await broker.stub.produce(produce_request(parts))
            assert [(partition.partition, partition.base_offset) for partition in response.partitions] == [
                (2, 0),
                (0, 0),
            ]
            wanted = [("flights", 1, 0), ("flights", 0, 2), ("flights", 2, 0), ("flights", 9, 0)]
            answers = await broker.fetch_many(wanted)
            assert [(answer.partition, answer.error_code, bool(records)) for answer, records in answers] == [
                (1, 0, False),
                (0, 0, True),
                (2, 0, True),
                (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
            ]
            [(_, first)] = iter_headers(answers[1][1])
            assert first.base_offset == 2

    asyncio.run(scenario())


def test_a_fetch_returns_whole_batches_within_its_byte_limits(start_broker: StartBroker) -> None:
    """A fetch returns whole batches within both bounds, but at least one batch if there is any (KIP-74)."""

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            size = len(batch(1))
            for partition in (0, 1):
                for _ in range(4):
                    await broker.produce("flights", batch(1), partition=partition)

            async def sizes(**bounds: int) -> list[int]:
                answers = await broker.fetch_many([("flights", 0, 0), ("flights", 1, 0)], **bounds)
                return [answer.records_bytes for answer, _ in answers]

            assert await sizes() == [4 * size, 4 * size]
            assert await sizes(partition_max_bytes=2 * size + 5) == [2 * size, 2 * size]
            assert await sizes(max_bytes=6 * size) == [4 * size, 2 * size]
            assert await sizes(max_bytes=5 * size - 1) == [4 * size, 0]
            assert await sizes(max_bytes=1) == [size, 0]
            assert await sizes(partition_max_bytes=0, max_bytes=0) == [size, 0]

    asyncio.run(scenario())


def test_a_client_that_uses_only_generated_protobuf_code_can_produce_and_fetch(start_broker: StartBroker) -> None:
    """Our own client writes some messages by hand. They must equal the bytes that protobuf writes and reads."""

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            produce = broker.channel.unary_unary(
                "/klamm.v1.Broker/Produce",
                request_serializer=b.ProduceRequest.SerializeToString,
                response_deserializer=b.ProduceResponse.FromString,
            )
            fetch = broker.channel.unary_unary(
                "/klamm.v1.Broker/Fetch",
                request_serializer=b.FetchRequest.SerializeToString,
                response_deserializer=b.FetchResponse.FromString,
            )
            records = batch(3)
            part = b.ProducePartition(topic="flights", partition=0, records_bytes=len(records))
            header = b.ProduceHeader(acks=-1, timeout_ms=1_000, partitions=[part])
            produced = await produce(b.ProduceRequest(header=header, records=records))
            assert produced.partitions[0].error_code == 0
            fetched = await fetch(fetch_request([("flights", 0, 0)]))
            assert fetched.header.partitions[0].high_watermark == 3
            assert [record.value for record in decode_batch(fetched.records)] == [b"value"] * 3

    asyncio.run(scenario())


def test_with_log_append_time_the_broker_sets_the_timestamps(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", configs={"message.timestamp.type": "LogAppendTime"})
            await broker.wait_for_topic("flights")
            produced = await broker.produce("flights", batch(2, timestamp_ms=1_000))
            assert produced.log_append_time_ms > 1_700_000_000_000
            _, records = await broker.fetch("flights")
            assert {record.timestamp_ms for record in decode_batch(records)} == {produced.log_append_time_ms}

    asyncio.run(scenario())


def test_list_offsets_finds_offsets_by_time_and_delete_records_moves_the_log_start(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")

            async def list_offset(timestamp_ms: int) -> tuple[int, int, int]:
                partition = b.ListOffsetsPartition(
                    topic="flights", partition=0, timestamp_ms=timestamp_ms, current_leader_epoch=-1
                )
                response = await broker.stub.list_offsets(b.ListOffsetsRequest(partitions=[partition]))
                [found] = response.partitions
                return found.error_code, found.offset, found.timestamp_ms

            assert await list_offset(-1) == (0, 0, -1)
            assert await list_offset(-3) == (0, -1, -1)
            for start_ms in (5_000, 9_000, 7_000):
                await broker.produce("flights", batch(2, timestamp_ms=start_ms))
            assert await list_offset(-2) == (0, 0, -1)
            assert await list_offset(-1) == (0, 6, -1)
            assert await list_offset(-3) == (0, 3, 9_001)
            assert await list_offset(5_001) == (0, 1, 5_001)
            assert await list_offset(5_002) == (0, 2, 9_000)
            assert await list_offset(9_002) == (0, -1, -1)
            assert (await list_offset(-9))[0] == ErrorCode.INVALID_REQUEST

            async def delete_before(offset: int, topic: str = "flights") -> tuple[int, int]:
                partition = b.DeleteRecordsPartition(topic=topic, partition=0, before_offset=offset)
                response = await broker.stub.delete_records(b.DeleteRecordsRequest(partitions=[partition]))
                return response.partitions[0].error_code, response.partitions[0].low_watermark

            assert await delete_before(3) == (0, 3)
            assert await list_offset(-2) == (0, 3, -1)
            refused = (await broker.fetch("flights", 2))[0]
            assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (refused.log_start_offset, refused.high_watermark, refused.last_stable_offset) == (3, 6, 6)
            assert (await delete_before(7))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await delete_before(-2))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await delete_before(1, "nowhere"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await delete_before(-1) == (0, 6)
            await controller.create_topic("compacted", configs={"cleanup.policy": "compact"})
            await broker.wait_for_topic("compacted")
            assert await delete_before(0, "compacted") == (ErrorCode.POLICY_VIOLATION, -1)
            assert (await broker.fetch("flights", 6))[0].error_code == 0

    asyncio.run(scenario())


def test_produce_stream_answers_in_order(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            requests = [produce_request([("flights", 0, batch(count))]) for count in (1, 2, 3)]
            requests.insert(1, produce_request([("nowhere", 0, batch(1))]))
            answers = [response.partitions[0] async for response in broker.stub.produce_stream(iter_async(requests))]
            assert [(answer.error_code, answer.base_offset) for answer in answers] == [
                (0, 0),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
                (0, 1),
                (0, 3),
            ]

    asyncio.run(scenario())


async def iter_async(items: Iterable[bytes]) -> AsyncIterator[bytes]:
    for item in items:
        yield item


def test_a_fetch_stream_takes_turns_between_partitions_and_delivers_new_records(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            large = batch(1, value=b"x" * 700_000)
            for partition in (0, 0, 0, 1):
                await broker.produce("flights", large, partition=partition)
            request = fetch_request([("flights", 0, 0), ("flights", 1, 0)], max_wait_ms=10)
            stream = broker.stub.fetch_stream(request)
            seen = [split_fetch(await stream.read()) for _ in range(4)]
            # One batch fits a message; partition 1 has its turn before the rest of partition 0.
            assert [[answer.partition for answer, _ in message] for message in seen] == [[0], [1], [0], [0]]
            await broker.produce("flights", batch(5), partition=1)
            [(answer, records)] = split_fetch(await stream.read())
            assert (answer.partition, answer.high_watermark) == (1, 6)
            assert [record.offset for record in decode_batch(records)] == [1, 2, 3, 4, 5]
            stream.cancel()

    asyncio.run(scenario())


def test_a_fetch_stream_ends_with_its_last_partition(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            await broker.produce("flights", batch(1))
            stream = broker.stub.fetch_stream(fetch_request([("flights", 0, 0), ("nowhere", 0, 0)]))
            first = split_fetch(await stream.read())
            assert {answer.topic: answer.error_code for answer, _ in first} == {
                "flights": 0,
                "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            await controller.delete_topic("flights")
            [(answer, _)] = split_fetch(await stream.read())
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await stream.read() is grpc.aio.EOF

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_records_that_are_not_in_memory_are_read_correctly_in_a_thread(start_broker: StartBroker, size: int) -> None:
    """The disk's probe reports that nothing is resident. A thread reads the same bytes."""
    cold = ColdDisk()

    async def scenario() -> None:
        async with start_broker(disk=cold) as (broker, controller):
            await controller.create_topic("flights", configs={"max.message.bytes": "4000000"})
            await broker.wait_for_topic("flights")
            await broker.produce("flights", batch(1, value=bytes(size)))
            _, warm = await broker.fetch("flights")
            cold.is_cold = True
            _, records = await broker.fetch("flights")
            assert records == warm
            assert cold.probes > 0
            assert len(decode_batch(records)[0].value or b"") == size

    asyncio.run(scenario())
