"""Tests KLAMM_FETCH: the fetches of Klamm's own client at a Kafka listener."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records.encoder import encode_batch
from klamm.rpc.status import CallFailed
from klamm.wire.framed import decode_framed
from klamm.wire.record_frames import FETCH, VERSION, request_start
from klamm.wire.v1.broker_pb2 import FetchHeader, FetchPartition, FetchRequest
from klamm_broker.handlers.fetch import FetchHandler
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX
from klamm_broker.io.record_file import RecordFile
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.hot.framed_fetch import FramedFetch
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_server.net.listeners import DEFAULT_NAME
from klamm_server.rpc.item_limits import ITEMS_MAX
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from klamm_server.runtime.waiting import Waiting
from tests.support.led_partition import NAME, THIS, LedPartition, led_by

BATCH = encode_batch([(0, b"k", b"v", ())])
LARGE = encode_batch([(0, b"k", bytes(1_000_000), ())])
MISSING = TopicPartition("missing", 0)


def request_of(body: bytes) -> Request:
    return parse_request(memoryview(request_start(FETCH, VERSION, 5, "me", len(body)) + body)[4:], "here")


def fetch_of(*names: TopicPartition, offset: int = 0, **options: Any) -> FetchRequest:
    parts = [FetchPartition(topic=name.topic, partition=name.partition, fetch_offset=offset) for name in names]
    return FetchRequest(replica_id=-1, partitions=parts, **options)


class Api:
    """A broker with one partition that it leads."""

    def __init__(self, directory: Path) -> None:
        self.broker = LedPartition(directory)
        self.broker.replicas.apply(self.broker.partition, led_by(THIS, 2)._replace(isr=(THIS,)))
        self.fetches = PurgatoryDriver(max_parked=10, clock=SystemClock())
        self.reader = RecordReader(Disk(), thread_count=1)
        handler = FetchHandler(
            self.broker.replicas, self.fetches, self.reader, RequestMemory(10**9), fetch_max_bytes=10**9
        )
        self.api = FramedFetch(handler, BrokerNodes(self.broker.replicas.brokers, {}), DEFAULT_NAME)

    async def ask(self, message: FetchRequest) -> tuple[FetchHeader, bytes]:
        answer = self.api.fetch(request_of(message.SerializeToString()))
        parts: Sequence[Any] = await answer if isinstance(answer, Waiting) else answer
        whole = b"".join(_read(part) if isinstance(part, RecordFile) else bytes(part) for part in parts)
        header, records = decode_framed(whole, FetchHeader)
        return header, bytes(records)

    async def close(self) -> None:
        self.broker.close()
        self.fetches.close()
        self.reader.close()


def _read(file: RecordFile) -> bytes:
    found = bytearray(len(file))
    assert file.read(memoryview(found), 0) == len(file)
    file.close()
    return bytes(found)


def run(directory: Path, scenario: Callable[[Api], Awaitable[None]]) -> None:
    async def whole() -> None:
        api = Api(directory)
        try:
            await scenario(api)
        finally:
            await api.close()

    asyncio.run(whole())


async def produce(api: Api, *batches: bytes) -> None:
    for batch in batches:
        answers = api.broker.produce(batch, acks=1)
        assert [answer.error_code for answer in (await answers if isinstance(answers, Waiting) else answers)] == [0]


def test_records_arrive_with_their_header(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        await produce(api, BATCH, LARGE)
        header, records = await api.ask(fetch_of(NAME, MISSING))
        found, missing = header.partitions
        assert (found.topic, found.records_bytes) == (NAME.topic, len(records))
        assert len(records) == len(BATCH) + len(LARGE)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_a_fetch_waits_for_records(tmp_path: Path) -> None:
    async def scenario(api: Api) -> None:
        asking = asyncio.ensure_future(api.ask(fetch_of(NAME, min_bytes=1, max_wait_ms=60_000)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not asking.done()
        await produce(api, BATCH)
        api.fetches.check_and_complete(NAME)
        _, records = await asking
        assert len(records) == len(BATCH)

    run(tmp_path, scenario)


def test_many_partitions_are_answered_in_order(tmp_path: Path) -> None:
    names = [TopicPartition("missing", number) for number in range(TURN_PARTITIONS_MAX + 1)]

    async def scenario(api: Api) -> None:
        await produce(api, BATCH)
        header, records = await api.ask(fetch_of(*names, NAME))
        assert [partition.partition for partition in header.partitions] == [*range(len(names)), NAME.partition]
        assert len(records) == len(BATCH)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"\xff\xff", MalformedRequestError),
        (FetchRequest(replica_id=7).SerializeToString(), BrokerError),
        (fetch_of(*[NAME] * (ITEMS_MAX + 1)).SerializeToString(), CallFailed),
    ],
)
def test_wrong_requests_are_refused(tmp_path: Path, body: bytes, error: type[Exception]) -> None:
    async def scenario(api: Api) -> None:
        with pytest.raises(error):
            api.api.fetch(request_of(body))

    run(tmp_path, scenario)
