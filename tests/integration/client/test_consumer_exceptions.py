"""Tests what a consumer commits automatically after an exception. It commits processed records, and no others."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import chain

import pytest

from klamm import Admin, AsyncConsumer, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from klamm.errors import ClosedError
from klamm.offsets import OffsetAndMetadata
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience

RECORDS = 100
FAILS_AT = 3
"""The offset of the record whose processing fails."""


class FailedError(Exception):
    """The application could not process a record."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin, Producer(bootstrap_servers=cluster.bootstrap) as to:
            admin.create_topics([NewTopic("t", partition_count=1)])
            for number in range(RECORDS):
                to.send("t", b"%d" % number)
        yield cluster.bootstrap


@pytest.fixture(params=["classic", "consumer"])
def settings(bootstrap: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Returns the settings of a consumer in a group of its own."""
    return {
        "bootstrap_servers": bootstrap,
        "group_id": request.node.name,
        "auto_offset_reset": "earliest",
        "group_protocol": request.param,
    }


def committed(settings: dict[str, str]) -> int | None:
    with Admin(bootstrap_servers=settings["bootstrap_servers"]) as admin:
        offsets = admin.list_group_offsets(settings["group_id"])
    found = offsets.get(TopicPartition("t", 0))
    return None if found is None else found.offset


def process(record: ConsumerRecord) -> None:
    if record.offset == FAILS_AT:
        raise FailedError


def polled(consumer: Consumer) -> Iterator[ConsumerRecord]:
    """Yields all records of the first poll that returns some."""
    while not (records := consumer.poll(patience() * 1000)):
        pass
    assert sum(map(len, records.values())) > FAILS_AT + 1
    yield from chain.from_iterable(records.values())


def poll_once(consumer: Consumer) -> None:
    for record in polled(consumer):
        process(record)


def poll_in_steps(consumer: Consumer) -> None:
    while True:
        for record in chain.from_iterable(consumer.poll(1_000, max_records=2).values()):
            process(record)


def poll_and_commit(consumer: Consumer) -> None:
    for record in polled(consumer):
        process(record)
        consumer.commit({record.topic_partition: OffsetAndMetadata(record.offset + 1)})


def iterate(consumer: Consumer) -> None:
    for record in consumer:
        process(record)


def iterate_and_commit(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == FAILS_AT - 1:
            consumer.commit()
            raise FailedError


def seek_and_fail(consumer: Consumer) -> None:
    for record in polled(consumer):
        consumer.seek(record.topic_partition, 50)
        raise FailedError


@pytest.mark.parametrize(
    ("handle", "offset"),
    [
        (poll_once, 0),
        (poll_in_steps, 2),
        (poll_and_commit, FAILS_AT),
        (iterate, FAILS_AT),
        (iterate_and_commit, FAILS_AT),
        (seek_and_fail, 50),
    ],
)
def test_an_exception_commits_only_what_was_processed(
    settings: dict[str, str], handle: Callable[[Consumer], None], offset: int
) -> None:
    def run() -> None:
        with Consumer(**settings) as consumer:
            consumer.subscribe(["t"])
            handle(consumer)

    with pytest.raises(FailedError):
        run()
    assert committed(settings) == offset


def test_a_loop_that_ends_commits_all_that_it_got(settings: dict[str, str]) -> None:
    with Consumer(**settings) as consumer:
        consumer.subscribe(["t"])
        for record in consumer:
            if record.offset == FAILS_AT:
                break
    assert committed(settings) == FAILS_AT + 1


async def poll_async(consumer: AsyncConsumer) -> None:
    while True:
        for record in chain.from_iterable((await consumer.poll(1_000)).values()):
            process(record)


async def iterate_async(consumer: AsyncIterator[ConsumerRecord]) -> None:
    async for record in consumer:
        process(record)


async def cancel_in_hand(consumer: AsyncConsumer) -> None:
    async for record in consumer:
        if record.offset == FAILS_AT:
            raise asyncio.CancelledError


@pytest.mark.parametrize(("handle", "offset"), [(poll_async, 0), (iterate_async, FAILS_AT), (cancel_in_hand, FAILS_AT)])
def test_an_exception_commits_only_what_a_coroutine_has_processed(
    settings: dict[str, str], handle: Callable[[AsyncConsumer], Awaitable[None]], offset: int
) -> None:
    async def run() -> None:
        async with AsyncConsumer(**settings) as consumer:
            consumer.subscribe(["t"])
            await handle(consumer)

    with pytest.raises((FailedError, asyncio.CancelledError)):
        asyncio.run(run())
    assert committed(settings) == offset


@pytest.mark.parametrize("polls", [True, False])
def test_a_signal_handler_may_close_the_consumer_that_waits(settings: dict[str, str], polls: bool) -> None:
    consumer = Consumer(**settings)
    consumer.subscribe(["t"])
    seen = 0
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close())
    try:
        if polls:
            with pytest.raises(ClosedError):
                poll_on(consumer)
        else:
            for _ in consumer:
                seen += 1
                if seen == RECORDS:
                    threading.Thread(target=signal_self).start()
            assert seen == RECORDS
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert committed(settings) == RECORDS


def poll_on(consumer: Consumer) -> None:
    seen = 0
    while True:
        seen += sum(map(len, consumer.poll(patience() * 1000).values()))
        if seen == RECORDS:
            threading.Thread(target=signal_self).start()


def signal_self() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
