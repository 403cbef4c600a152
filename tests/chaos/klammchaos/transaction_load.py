"""Workers that read, process and write in transactions, and the outcome of each transaction.

Every record that a worker writes names its transaction, so that a reader can tell which one it belongs to. Some
transactions are aborted on purpose, and some producers become zombies. For this, another producer with their
transactional.id begins while they have an open transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from klamm import AsyncConsumer, AsyncProducer, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from klamm.consumer import ConsumerRecord
from klamm.errors import AbortableTransactionError, FatalProducerError, KlammError, RequestTimedOutError
from tests.chaos.klammchaos.partition_cluster import DEADLINE_S, PARTITIONS, TOPIC
from tests.support.loop_time import loop_time_s

INPUT: Final = "in"
GROUP: Final = "workers"
GroupProtocol = Literal["classic", "consumer"]
FEED_PAUSE_S: Final = 0.02
POLL_MS: Final = 200
RECORDS_MAX: Final = 40
ABORT_PROBABILITY: Final = 0.15
ZOMBIE_PROBABILITY: Final = 0.02
TRANSACTION_TIMEOUT_MS: Final = 20_000
MAX_BLOCK_MS: Final = 15_000
OUTPUT_PARTITIONS: Final = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
INPUT_PARTITIONS: Final = tuple(TopicPartition(INPUT, number) for number in range(PARTITIONS))


class Fate(enum.Enum):
    """The outcome of a transaction, as its worker knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The worker does not know how it ended, because its producer was lost while it committed."""


class Output(NamedTuple):
    """A record of the output."""

    transaction: str
    input: int


def encode(output: Output) -> bytes:
    return f"{output.transaction} {output.input}".encode()


def decode(value: bytes | None) -> Output:
    assert value is not None
    transaction, number = value.decode().split()
    return Output(transaction, int(number))


class Feeder:
    """Writes 0, 1, 2 ... to the input until it is stopped."""

    def __init__(self, bootstrap: str, *, pause_s: float = FEED_PAUSE_S) -> None:
        self.count = 0
        self._bootstrap = bootstrap
        self._pause_s = pause_s

    async def run(self, stop: asyncio.Event) -> None:
        """Writes until `stop` is set and everything is acknowledged. Raises KlammError."""
        async with AsyncProducer(
            bootstrap_servers=self._bootstrap, delivery_timeout_ms=int(DEADLINE_S * 1000), max_block_ms=60_000
        ) as producer:
            sent = []
            while not stop.is_set():
                number = self.count
                sent.append(await producer.send(INPUT, b"%d" % number, partition=number % PARTITIONS))
                self.count += 1
                await asyncio.sleep(self._pause_s)
            for future in sent:
                await future


class Worker:
    """One member of the group with one transactional.id."""

    def __init__(
        self, number: int, bootstrap: str, rng: random.Random, *, group_protocol: GroupProtocol = "classic"
    ) -> None:
        self.fates: dict[str, Fate] = {}
        """The outcome of each transaction."""
        self.zombies = 0
        """The number of zombies that were made and refused."""
        self.committed_s: dict[TopicPartition, float] = {}
        """The time of the last commit with input of that partition."""
        self._name = f"worker-{number}"
        self._bootstrap = bootstrap
        self._rng = rng
        self._group_protocol = group_protocol
        self._numbers = itertools.count()
        self._producer: AsyncProducer | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set. Raises AssertionError if a zombie commits."""
        async with AsyncConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=GROUP,
            group_protocol=self._group_protocol,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([INPUT])
            try:
                while not stop.is_set():
                    await self._turn(consumer)
            finally:
                if self._producer is not None:
                    await self._producer.close(timeout=0)

    async def _turn(self, consumer: AsyncConsumer) -> None:
        polled: Mapping[TopicPartition, Sequence[ConsumerRecord]] = {}
        with contextlib.suppress(KlammError):
            polled = await consumer.poll(POLL_MS, max_records=self._rng.randint(1, RECORDS_MAX))
            if not polled or await self._process(polled, consumer.group_metadata()):
                return
        await _go_back(consumer)

    async def _process(
        self, polled: Mapping[TopicPartition, Sequence[ConsumerRecord]], member: ConsumerGroupMetadata
    ) -> bool:
        """Copies the polled records in one transaction. Returns True if it is committed."""
        producer = await self._current_producer()
        transaction = f"{self._name}.{next(self._numbers)}"
        self.fates[transaction] = Fate.ABORTED  # until the worker asks to commit
        try:
            await producer.begin_transaction()
            await self._write(producer, transaction, polled)
            offsets = {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in polled.items()}
            await producer.send_offsets_to_transaction(offsets, member)
        except KlammError:
            await self._abort(producer)
            return False
        if self._rng.random() < ABORT_PROBABILITY:
            await self._abort(producer)
            return False
        if self._rng.random() < ZOMBIE_PROBABILITY:
            await self._make_zombie(producer, transaction)
            return False
        return await self._commit(producer, transaction, polled)

    async def _write(
        self,
        producer: AsyncProducer,
        transaction: str,
        polled: Mapping[TopicPartition, Sequence[ConsumerRecord]],
    ) -> None:
        for records in polled.values():
            for record in records:
                output = Output(transaction, int(record.value or b""))
                await producer.send(TOPIC, encode(output), partition=self._rng.randrange(PARTITIONS))

    async def _commit(self, producer: AsyncProducer, transaction: str, inputs: Iterable[TopicPartition]) -> bool:
        self.fates[transaction] = Fate.UNKNOWN
        try:
            await _insist_on_commit(producer)
        except AbortableTransactionError:
            self.fates[transaction] = Fate.ABORTED
            await self._abort(producer)
        except KlammError:
            await self._drop_producer()
        else:
            self.fates[transaction] = Fate.COMMITTED
            self.committed_s.update(dict.fromkeys(inputs, loop_time_s()))
        return self.fates[transaction] is Fate.COMMITTED

    async def _abort(self, producer: AsyncProducer) -> None:
        """Aborts the transaction. If that fails, the next producer aborts it when it begins, or the coordinator after a
        time-out."""
        try:
            await producer.abort_transaction()
        except KlammError:
            await self._drop_producer()

    async def _make_zombie(self, zombie: AsyncProducer, transaction: str) -> None:
        """Starts another producer with the same transactional.id. Raises AssertionError if the old producer can still
        commit."""
        self._producer = None
        try:
            await self._current_producer()
            await zombie.commit_transaction()
        except (AbortableTransactionError, FatalProducerError):
            self.zombies += 1
        except KlammError:
            return  # no server could be reached, so this shows nothing
        else:
            raise AssertionError(f"the zombie of {transaction} committed")
        finally:
            await zombie.close(timeout=0)

    async def _current_producer(self) -> AsyncProducer:
        """Returns the present producer. Raises KlammError if it is not available now."""
        if self._producer is None:
            producer = AsyncProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=self._name,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                max_block_ms=MAX_BLOCK_MS,
                delivery_timeout_ms=MAX_BLOCK_MS,
                request_timeout_ms=MAX_BLOCK_MS // 2,
            )
            try:
                await producer.init_transactions()
            except BaseException:
                await producer.close(timeout=0)
                raise
            self._producer = producer
        return self._producer

    async def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout=0)


class Observer:
    """Reads committed records while faults strike, and in the end all that are left."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[int, list[Output]] = {number: [] for number in range(PARTITIONS)}
        """The records that were seen in each partition of the output, in order."""
        self._bootstrap = bootstrap

    async def run(self, stop: asyncio.Event) -> None:
        """Reads until `stop` is set, and then to the end. The caller sets `stop` when nothing is written any more."""
        async with AsyncConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="none", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(OUTPUT_PARTITIONS)
            for tp in OUTPUT_PARTITIONS:
                consumer.seek(tp, 0)
            while not stop.is_set():
                await self._poll(consumer)
            ends = await consumer.end_offsets(OUTPUT_PARTITIONS)
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                await self._poll(consumer)

    async def _poll(self, consumer: AsyncConsumer) -> None:
        for tp, records in (await consumer.poll(POLL_MS)).items():
            self.seen[tp.partition] += [decode(record.value) for record in records]


async def wait_until_processed(bootstrap: str) -> None:
    """Waits until the group has committed all of the input. Raises AssertionError after DEADLINE_S."""
    until_s = loop_time_s() + DEADLINE_S
    async with AsyncConsumer(bootstrap_servers=bootstrap, group_id=GROUP) as consumer:
        while True:
            with contextlib.suppress(KlammError):
                ends = await consumer.end_offsets(INPUT_PARTITIONS)
                committed = await consumer.committed(INPUT_PARTITIONS)
                done = {tp: 0 if each is None else each.offset for tp, each in committed.items()}
                if done == ends:
                    return
                assert loop_time_s() < until_s, f"not processed after {DEADLINE_S} s: {done} of {ends}"
            await asyncio.sleep(0.2)


async def _insist_on_commit(producer: AsyncProducer) -> None:
    """Commits, and repeats the call after a time-out, because the coordinator continues with the commit."""
    until_s = loop_time_s() + DEADLINE_S
    while True:
        try:
            return await producer.commit_transaction()
        except RequestTimedOutError:
            if loop_time_s() > until_s:
                raise


async def _go_back(consumer: AsyncConsumer) -> None:
    """Seeks to the committed offsets, so that records that were polled are processed again."""
    while True:
        with contextlib.suppress(KlammError):
            for tp, committed in (await consumer.committed(consumer.assignment())).items():
                consumer.seek(tp, 0 if committed is None else committed.offset)
            return
        await asyncio.sleep(0.1)
