"""Tests fetches of incremental sessions: their waits, and rights that change while the session lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from klamm.acls import AclBinding, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.records.encoder import encode_batch
from klamm_broker.handlers.fetch import FetchHandler, FetchQuery
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.fetch_reader import FetchCursor, LocatedFetch, PartitionAnswer, ReaderTerms
from klamm_broker.replica.reader_watch import ReaderContext, WatchedReader
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.session import CALLER, Session
from tests.support.callers import ALICE, HOST, allow, index_of
from tests.support.led_partition import NAME, THIS, LedPartition, led_by
from tests.support.waiting import patience, until

BATCH = bytes(encode_batch([(0, None, b"v", ())]))
READ = allow(AclOperation.READ, ResourceType.TOPIC, NAME.topic)
ROOM = 10**6
LONG_MS = 600_000


class Reader:
    """A consumer with an incremental session at a broker that leads one partition. The consumer has READ rights."""

    def __init__(self, directory: Path) -> None:
        self.led = LedPartition(directory)
        self.led.replicas.apply(self.led.partition, led_by(THIS, 2)._replace(isr=(THIS,)))
        self.fetches = PurgatoryDriver(max_parked=10, clock=SystemClock())
        self.records = RecordReader(Disk(), thread_count=1)
        self.handler = FetchHandler(
            self.led.replicas, self.fetches, self.records, RequestMemory(ROOM), fetch_max_bytes=ROOM
        )
        self.session = WatchedReader(self.led.readers)
        self.session.take((NAME.topic, NAME.partition), FetchCursor(NAME, 0, ROOM))
        self._index = AclIndex()
        self.grant(READ)

    def grant(self, *acls: AclBinding) -> None:
        """Gives the consumer these rights only."""
        self._index = index_of(acls)

    def caller(self) -> Session:
        authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
        return Session(authorizer, lambda: self._index, ALICE, HOST)

    async def fetch(self, wait_ms: int = 0) -> list[PartitionAnswer]:
        context = ReaderContext(self.session)
        query = FetchQuery((), wait_ms, 1, ROOM, ReaderTerms(read_committed=False), context=context)
        found: LocatedFetch
        found, records = self.handler.begin(query)
        if records is None:
            found, _ = await self.handler.finish(query, found)
        return context.select(found.answers)

    def append(self) -> None:
        self.led.replicas.append(NAME, ClientAppend(memoryview(BATCH)), acks=1)

    def close(self) -> None:
        self.fetches.close()
        self.records.close()
        self.led.close()


@pytest.fixture
def make_reader(tmp_path: Path) -> Iterator[Callable[[], Reader]]:
    """Returns a function that makes a reader within the running event loop, whose partition rests."""
    made: list[Reader] = []

    def make() -> Reader:
        made.append(Reader(tmp_path))
        CALLER.set(made[0].caller())
        return made[0]

    yield make
    for one in made:
        one.close()


def codes(answers: Sequence[PartitionAnswer]) -> list[ErrorCode]:
    return [answer.error_code for answer in answers]


def test_a_partition_that_rests_is_refused_once_the_client_has_lost_its_right(
    make_reader: Callable[[], Reader],
) -> None:
    async def scenario() -> None:
        reader = make_reader()
        assert codes(await reader.fetch()) == [ErrorCode.NONE]
        assert await reader.fetch() == []
        reader.grant()
        assert codes(await reader.fetch()) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert codes(await reader.fetch()) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        reader.grant(READ)
        assert codes(await reader.fetch()) == [ErrorCode.NONE]
        assert await reader.fetch() == []

    asyncio.run(scenario())


def test_a_fetch_waits_for_records_of_a_partition_that_rests(make_reader: Callable[[], Reader]) -> None:
    async def scenario() -> None:
        reader = make_reader()
        await reader.fetch()
        waiting = asyncio.create_task(reader.fetch(LONG_MS))
        await until(lambda: len(reader.fetches) == 1)
        reader.append()
        (answer,) = await asyncio.wait_for(waiting, patience())
        assert answer.records_bytes == len(BATCH)
        assert len(reader.fetches) == 0

    asyncio.run(scenario())


def test_a_client_that_loses_its_right_during_a_wait_gets_no_records_after_it(
    make_reader: Callable[[], Reader],
) -> None:
    async def scenario() -> None:
        reader = make_reader()
        await reader.fetch()
        waiting = asyncio.create_task(reader.fetch(LONG_MS))
        await until(lambda: len(reader.fetches) == 1)
        reader.grant()
        reader.append()
        assert codes(await asyncio.wait_for(waiting, patience())) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    asyncio.run(scenario())


def test_a_lost_leadership_ends_the_wait_of_a_session(make_reader: Callable[[], Reader]) -> None:
    async def scenario() -> None:
        reader = make_reader()
        await reader.fetch()
        waiting = asyncio.create_task(reader.fetch(LONG_MS))
        await until(lambda: len(reader.fetches) == 1)
        reader.led.replicas.apply(reader.led.partition, led_by(2, 3))
        assert codes(await asyncio.wait_for(waiting, patience())) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    asyncio.run(scenario())


def test_a_session_of_partitions_that_rest_waits_until_its_time_is_over(make_reader: Callable[[], Reader]) -> None:
    async def scenario() -> None:
        reader = make_reader()
        await reader.fetch()
        assert await asyncio.wait_for(reader.fetch(1), patience()) == []
        assert len(reader.fetches) == 0

    asyncio.run(scenario())
