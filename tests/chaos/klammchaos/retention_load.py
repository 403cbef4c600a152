"""A writer, and groups that read in turns: each is away for longer than retention keeps records, and then reads all."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from typing import Final

from klamm import AsyncConsumer, AsyncProducer, OffsetAndMetadata, TopicPartition
from klamm.errors import KlammError, OffsetOutOfRangeError
from tests.chaos.klammchaos.partition_cluster import DEADLINE_S, PARTITIONS, TOPIC
from tests.chaos.klammchaos.retention_checks import ReadRecords

PARTITION_LIST: Final = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
WRITE_PAUSE_S: Final = 0.01
POLL_MS: Final = 200
PADDING: Final = bytes(500)


class Writer:
    """Writes 0, 1, 2 ... until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        """The numbers by partition and offset."""
        self._bootstrap = bootstrap

    async def run(self, stop: asyncio.Event) -> None:
        """Writes until `stop` is set and everything is acknowledged. Raises KlammError."""
        async with AsyncProducer(
            bootstrap_servers=self._bootstrap, delivery_timeout_ms=int(DEADLINE_S * 1000), max_block_ms=60_000
        ) as producer:
            sent, number = [], 0
            while not stop.is_set():
                future = await producer.send(TOPIC, b"%d " % number + PADDING, partition=number % PARTITIONS)
                sent.append((number, future))
                number += 1
                await asyncio.sleep(WRITE_PAUSE_S)
            for each, future in sent:
                written = await future
                self.acknowledged[written.partition, written.offset] = each


class Reader:
    """A group that reads all new records at once, commits, and is away for `away_s`."""

    def __init__(self, bootstrap: str, group_id: str, away_s: tuple[float, float], rng: random.Random) -> None:
        self.records = ReadRecords(group_id)
        self.read_s = 0.0
        """The time of the last commit."""
        self.count = 0
        """How many times the group has read."""
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._away_s = away_s
        self._rng = rng

    async def begin(self) -> None:
        """Commits the offset 0 in each partition, so that `*` stands for this group, too."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                async with self._consumer() as consumer:
                    return await consumer.commit(dict.fromkeys(PARTITION_LIST, OffsetAndMetadata(0)))
            except KlammError:
                await _pause(until_s, f"{self._group_id} cannot commit")

    async def run(self, stop: asyncio.Event) -> None:
        """Reads in turns until `stop` is set, and then once more. Raises `Violation` if a record is missing."""
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._rng.uniform(*self._away_s))
            await self._read_all()

    async def _read_all(self) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                return await self._try_read()
            except KlammError as error:
                await _pause(until_s, f"{self._group_id} cannot read: {error!r}")

    async def _try_read(self) -> None:
        """Reads from the committed offsets to the present ends, and commits."""
        async with self._consumer() as consumer:
            for tp, committed in (await consumer.committed(PARTITION_LIST)).items():
                offset = 0 if committed is None else committed.offset
                self.records.begin(tp.partition, offset)
                consumer.seek(tp, offset)
            ends = await consumer.end_offsets(PARTITION_LIST)
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                await self._poll(consumer)
            offsets = {tp: await consumer.position(tp) for tp in PARTITION_LIST}
            await consumer.commit({tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()})
        self.records.commit({tp.partition: offset for tp, offset in offsets.items()})
        self.read_s = time.monotonic()
        self.count += 1

    async def _poll(self, consumer: AsyncConsumer) -> None:
        try:
            polled = await consumer.poll(POLL_MS)
        except OffsetOutOfRangeError:
            for tp, start_offset in (await consumer.beginning_offsets(PARTITION_LIST)).items():
                self.records.check_start(tp.partition, start_offset)
            raise
        for tp, records in polled.items():
            numbers = [(record.offset, int((record.value or b"").split()[0])) for record in records]
            self.records.add(tp.partition, numbers)

    @contextlib.asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AsyncConsumer]:
        async with AsyncConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self._group_id,
            auto_offset_reset="none",
            enable_auto_commit=False,
        ) as consumer:
            consumer.assign(PARTITION_LIST)
            yield consumer


async def _pause(until_s: float, failure: str) -> None:
    """Pauses before the next attempt. Raises AssertionError if there is no time left."""
    assert time.monotonic() < until_s, f"{failure} for {DEADLINE_S} s"
    await asyncio.sleep(0.2)
