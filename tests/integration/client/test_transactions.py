"""Tests transactions end to end on real servers: read-process-write, aborts, zombies, coordinators that die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from klamm import AsyncConsumer, AsyncProducer, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from klamm.errors import (
    AbortableTransactionError,
    BrokerError,
    ErrorCode,
    FatalProducerError,
    KlammError,
    ProducerFencedError,
)
from tests.support.coordinator_cluster import HOST, Cluster, cluster
from tests.support.violation import verdict

IN, OUT = "in", "out"
PARTITIONS = 2
Scenario = Callable[[Cluster], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario, **settings: str) -> None:
    async def main() -> None:
        async with cluster(tmp_path, **settings) as running:
            await running.create_topic(IN, PARTITIONS)
            await running.create_topic(OUT, PARTITIONS)
            await scenario(running)

    asyncio.run(main())


def producer_of(running: Cluster, transactional_id: str | None = None, **settings: Any) -> AsyncProducer:
    """Returns a producer. The caller must still initialize a producer with a transactional id."""
    name = {} if transactional_id is None else {"transactional_id": transactional_id}
    return AsyncProducer(bootstrap_servers=f"{HOST}:{running.broker.port}", **name, **settings)


def consumer_of(running: Cluster, *, group_id: str | None = None, **settings: Any) -> AsyncConsumer:
    defaults = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "enable_auto_commit": False}
    return AsyncConsumer(
        bootstrap_servers=f"{HOST}:{running.broker.port}", group_id=group_id, **{**defaults, **settings}
    )


async def read_all(running: Cluster, topic: str, **settings: Any) -> list[bytes]:
    """Reads all partitions with a new consumer and returns the values, in the order of each partition."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    values: list[bytes] = []
    async with consumer_of(running, **settings) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for records in (await consumer.poll(200)).values():
                values += [record.value for record in records]
    return values


async def fill(running: Cluster, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    async with producer_of(running) as producer:
        for number, value in enumerate(values):
            await producer.send(IN, value, partition=number % PARTITIONS)
    return values


class Worker:
    """A worker that copies IN to OUT, with the offsets in the same transaction."""

    def __init__(self, running: Cluster, name: str) -> None:
        self.consumer = consumer_of(running, group_id="workers", max_poll_records=7)
        self.producer = producer_of(running, name)

    async def begin(self) -> None:
        self.consumer.subscribe([IN])
        await self.producer.init_transactions()

    async def take(self, prefix: bytes = b"") -> int:
        """Polls once and copies the records in a transaction, which stays open. Returns the number of records."""
        await self.producer.begin_transaction()
        polled = await self.consumer.poll(500)
        for records in polled.values():
            for record in records:
                await self.producer.send(OUT, prefix + (record.value or b""), partition=record.partition)
        offsets = {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in polled.items()}
        await self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        return sum(map(len, polled.values()))

    async def go_back(self) -> None:
        """Sets the positions back to the committed offsets."""
        for tp, committed in (await self.consumer.committed(self.consumer.assignment())).items():
            self.consumer.seek(tp, 0 if committed is None else committed.offset)

    async def close(self) -> None:
        await self.producer.close()
        await self.consumer.close()


def test_each_input_record_is_processed_once_despite_aborted_transactions(tmp_path: Path) -> None:
    async def scenario(running: Cluster) -> None:
        values = await fill(running, 60)
        worker = Worker(running, "copy")
        await worker.begin()
        done = turns_with_records = 0
        while done < len(values):
            is_aborted = turns_with_records % 3 == 2
            count = await worker.take(b"aborted " if is_aborted else b"")
            turns_with_records += bool(count)
            if is_aborted:
                await worker.producer.flush()
                await worker.producer.abort_transaction()
                await worker.go_back()
            else:
                await worker.producer.commit_transaction()
                done += count
        await worker.close()

        found = await read_all(running, OUT)
        with verdict():
            assert sorted(found) == sorted(values)
        everything = await read_all(running, OUT, isolation_level="read_uncommitted")
        assert any(value.startswith(b"aborted ") for value in everything)

    play(tmp_path, scenario)


def test_records_of_an_open_transaction_are_not_read_and_its_offsets_are_unstable(tmp_path: Path) -> None:
    async def scenario(running: Cluster) -> None:
        await fill(running, 4)
        worker = Worker(running, "copy")
        await worker.begin()
        while not await worker.take():
            await worker.producer.abort_transaction()
        await worker.producer.flush()

        assert await read_all(running, OUT) == []
        async with consumer_of(running, group_id="workers") as other:
            partitions = sorted(worker.consumer.assignment())
            with pytest.raises(BrokerError) as raised:
                await other.committed(partitions, timeout_ms=2_000)
            assert raised.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
            await worker.producer.commit_transaction()
            assert any((await other.committed(partitions)).values())
        assert await read_all(running, OUT)
        await worker.close()

    play(tmp_path, scenario)


def test_a_zombie_producer_is_fenced_and_its_open_transaction_is_aborted(tmp_path: Path) -> None:
    async def scenario(running: Cluster) -> None:
        async with producer_of(running, "payments") as zombie, producer_of(running, "payments") as heir:
            await zombie.init_transactions()
            await zombie.begin_transaction()
            await zombie.send_and_wait(OUT, b"left open", partition=0)
            await heir.init_transactions()
            async with heir.transaction():
                await heir.send(OUT, b"heir", partition=0)

            with pytest.raises(KlammError):
                await zombie.send_and_wait(OUT, b"late", partition=1)
            with pytest.raises((AbortableTransactionError, FatalProducerError)):
                await zombie.commit_transaction()
            with pytest.raises(FatalProducerError) as raised:
                await zombie.abort_transaction()
            assert isinstance(raised.value.__cause__, ProducerFencedError)
            with pytest.raises(FatalProducerError):
                await zombie.begin_transaction()
            async with heir.transaction():
                await heir.send(OUT, b"again", partition=0)

        assert await read_all(running, OUT) == [b"heir", b"again"]

    play(tmp_path, scenario)


def test_a_transaction_cannot_commit_offsets_for_a_stale_group_member(tmp_path: Path) -> None:
    async def scenario(running: Cluster) -> None:
        await fill(running, 4)
        async with consumer_of(running, group_id="workers") as consumer, producer_of(running, "copy") as producer:
            consumer.subscribe([IN])
            while not await consumer.poll(500):
                pass
            member = consumer.group_metadata()
            await producer.init_transactions()
            for stale in (
                member._replace(generation_id=member.generation_id - 1),
                member._replace(member_id="somebody else"),
            ):
                with pytest.raises(AbortableTransactionError):
                    await commit_offset(producer, stale)
            await commit_offset(producer, member)
            committed = await consumer.committed([TopicPartition(IN, 0)])
            assert committed[TopicPartition(IN, 0)] == OffsetAndMetadata(2)

    play(tmp_path, scenario)


async def commit_offset(producer: AsyncProducer, group: ConsumerGroupMetadata) -> None:
    async with producer.transaction():
        await producer.send(OUT, b"x", partition=0)
        await producer.send_offsets_to_transaction({TopicPartition(IN, 0): OffsetAndMetadata(2)}, group)


def test_an_aborted_transaction_whose_records_were_never_sent_writes_nothing(tmp_path: Path) -> None:
    async def scenario(running: Cluster) -> None:
        async with producer_of(running, "p", linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
            await producer.init_transactions()
            for _ in range(2):
                await producer.begin_transaction()
                await producer.send(OUT, b"aborted", partition=0)
                await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(OUT, b"committed", partition=0)

        assert await read_all(running, OUT, isolation_level="read_uncommitted") == [b"committed"]

    play(tmp_path, scenario)


def test_no_record_is_lost_or_duplicated_if_a_coordinator_dies_during_a_transaction(tmp_path: Path) -> None:
    """The other coordinator loads the groups and transactions."""

    async def scenario(running: Cluster) -> None:
        values = await fill(running, 28)
        worker = Worker(running, "copy")
        await worker.begin()
        deaths = 0

        async def die() -> None:
            nonlocal deaths
            deaths += 1
            if deaths <= 3:
                heir = deaths + 1
                await running.start_coordinator(heir)
                await running.coordinators.pop(deaths).crash()

        done = turn = 0
        while done < len(values):
            turn += 1
            if turn == 2:
                await die()  # one transaction's offsets are decided, and no transaction is open
            count = await worker.take()
            if turn == 3:
                await die()  # offsets are pending
            if turn == 4:
                dying = asyncio.create_task(die())  # the coordinator is deciding
                await worker.producer.commit_transaction()
                await dying
            else:
                await worker.producer.commit_transaction()
            done += count
        assert deaths == 3
        await worker.close()

        assert sorted(await read_all(running, OUT)) == sorted(values)

    play(tmp_path, scenario)


def test_a_transaction_that_is_open_for_too_long_is_aborted(tmp_path: Path) -> None:
    async def scenario(running: Cluster) -> None:
        async with producer_of(running, "slow", transaction_timeout_ms=2_000) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait(OUT, b"too late", partition=0)
            async with producer_of(running) as another:
                await another.send_and_wait(OUT, b"behind it", partition=0)

            while await read_all(running, OUT) != [b"behind it"]:
                pass
            with pytest.raises((AbortableTransactionError, FatalProducerError)):
                await producer.commit_transaction()

        assert await read_all(running, OUT) == [b"behind it"]

    play(tmp_path, scenario, **{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
