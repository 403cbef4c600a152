"""Tests KLAMM_REPLICA_FETCH: a follower's session over a connection to a real Kafka listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm.records.encoder import encode_batch
from klamm.rpc.record_connection import RecordConnection
from klamm.rpc.status import CallFailed
from klamm.wire.framed import decode_framed
from klamm.wire.record_frames import REPLICA_FETCH, VERSION
from klamm.wire.v1.broker_pb2 import ReplicaFetchHeader, ReplicaFetchRequest, ReplicaPosition
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.kafka.hot.framed_replica_fetch import FramedReplicaFetch
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.replication.follower_streams import FollowerStreams
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from tests.support.kafka_listener import ServedListener
from tests.support.led_partition import OTHER, THIS, TOPIC_ID, LedPartition, led_by
from tests.support.waiting import patience, until

SMALL, LARGE = (encode_batch([(0, None, bytes(size), ())]) for size in (10, 500_000))
LONG_MS = int(patience() * 1_000)


class Follower:
    """A follower of one partition."""

    def __init__(self, connection: RecordConnection) -> None:
        self.connection = connection

    def send(self, *offsets: int, max_wait_ms: int = LONG_MS) -> asyncio.Future[Any]:
        """Sends a request that names the partition if there is an offset."""
        positions = [
            ReplicaPosition(
                topic_id=TOPIC_ID.bytes,
                current_leader_epoch=2,
                fetch_offset=offset,
                last_fetched_epoch=2 if offset else -1,
                max_bytes=10**6,
            )
            for offset in offsets
        ]
        request = ReplicaFetchRequest(
            replica_id=OTHER,
            broker_epoch=1,
            session_id=1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=10**7,
            positions=positions,
        )
        return self.connection.send(REPLICA_FETCH, VERSION, [request.SerializeToString()])


class Leader:
    """A broker that leads the partition, behind a Kafka listener."""

    def __init__(self, directory: Path) -> None:
        self.broker = LedPartition(directory)
        self.broker.replicas.apply(self.broker.partition, led_by(THIS, 2))
        self.records = RecordReader(Disk(), thread_count=1)
        self.streams = FollowerStreams(self.broker.replicas, self.broker.sessions, RequestMemory(10**9), SystemClock())
        self.handle = FramedReplicaFetch(self.streams, self.records).fetch

    def append(self, batch: bytes) -> None:
        self.broker.replicas.append(self.broker.partition.topic_partition, ClientAppend(memoryview(batch)))


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Follower]:
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: RecordConnection(f"127.0.0.1:{port}", "broker-2", -1), "127.0.0.1", port
    )
    try:
        yield Follower(connection)
    finally:
        connection.close()


def run(directory: Path, scenario: Callable[[Leader, Follower], Awaitable[None]]) -> None:
    async def whole() -> None:
        leader = Leader(directory)
        try:
            async with (
                asyncio.timeout(patience()),
                ServedListener(leader.handle) as served,
                connected(served.port) as follower,
            ):
                await scenario(leader, follower)
            assert not len(leader.streams), "the session must end with its connection"
        finally:
            leader.records.close()
            leader.broker.close()

    asyncio.run(whole())


def parts_of(message: bytes) -> tuple[list[int], bytes]:
    """Returns the sizes of the records by partition, and the records."""
    header, records = decode_framed(message, ReplicaFetchHeader)
    return [part.records_bytes for part in header.partitions], bytes(records)


def fixed_part(batch: bytes) -> bytes:
    """Returns the part of a batch that the leader does not change. The base offset, length and epoch are before it."""
    return batch[16:]


@pytest.mark.parametrize("batch", [SMALL, LARGE], ids=["copied", "sent as a file"])
def test_a_follower_gets_the_records_of_the_log(tmp_path: Path, batch: bytes) -> None:
    async def scenario(leader: Leader, follower: Follower) -> None:
        leader.append(batch)
        sizes, records = parts_of(await follower.send(0))
        assert sizes == [len(batch)]
        assert fixed_part(records) == fixed_part(batch)
        leader.append(batch)
        sizes, records = parts_of(await follower.send(1))
        assert sizes == [len(batch)]
        assert int.from_bytes(records[:8], "big") == 1

    run(tmp_path, scenario)


def test_a_request_waits_for_records(tmp_path: Path) -> None:
    async def scenario(leader: Leader, follower: Follower) -> None:
        answer = follower.send(0)
        await until(lambda: len(leader.streams) == 1)
        assert not answer.done()
        leader.append(SMALL)
        sizes, _ = parts_of(await answer)
        assert sizes == [len(SMALL)]

    run(tmp_path, scenario)


def test_a_second_request_ends_the_wait_of_the_first(tmp_path: Path) -> None:
    async def scenario(leader: Leader, follower: Follower) -> None:
        first = follower.send(0)
        await until(lambda: len(leader.streams) == 1)
        second = follower.send()
        assert parts_of(await first)[1] == b""
        assert not second.done()
        leader.append(SMALL)
        assert parts_of(await second)[0] == [len(SMALL)]

    run(tmp_path, scenario)


def test_two_requests_that_arrive_together_are_both_answered(tmp_path: Path) -> None:
    async def scenario(leader: Leader, follower: Follower) -> None:
        first, second = follower.send(0), follower.send(0, max_wait_ms=1)
        assert parts_of(await first)[1] == b""
        assert parts_of(await second)[1] == b""
        assert parts_of(await follower.send(max_wait_ms=1)) == ([], b"")

    run(tmp_path, scenario)


def test_a_session_ends_while_a_request_waits(tmp_path: Path) -> None:
    async def scenario(leader: Leader, follower: Follower) -> None:
        answer = follower.send(0)
        await until(lambda: len(leader.streams) == 1)
        follower.connection.close()
        with pytest.raises(CallFailed):
            await answer
        await until(lambda: len(leader.streams) == 0)
        leader.append(SMALL)

    run(tmp_path, scenario)


def test_a_message_that_is_no_request_closes_the_connection(tmp_path: Path) -> None:
    async def scenario(_: Leader, follower: Follower) -> None:
        with pytest.raises(CallFailed, match="closed the connection"):
            await follower.connection.send(REPLICA_FETCH, VERSION, [b"\xff\xff"])

    run(tmp_path, scenario)


def test_a_listener_that_is_not_for_followers_closes_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        records = RecordReader(Disk(), thread_count=1)
        try:
            async with (
                ServedListener(FramedReplicaFetch(None, records).fetch) as served,
                connected(served.port) as follower,
            ):
                with pytest.raises(CallFailed, match="closed the connection"):
                    await follower.send(0)
        finally:
            records.close()

    asyncio.run(scenario())
