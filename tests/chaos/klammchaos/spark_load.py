"""The input of the queries in the workload "spark", and the observer of their output.

Numbers are fed at a steady pace. The flights of a year, or the first of them, are spread over the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from demo import flights as demo
from demo import nycflights
from klamm import AsyncConsumer, AsyncProducer, TopicPartition
from klamm.consumer import ConsumerRecord
from klamm.errors import KlammError
from tests.chaos.klammchaos.partition_cluster import DEADLINE_S, PARTITIONS
from tests.chaos.klammchaos.spark_driver import COPIES, FLIGHTS, NUMBERS

FLIGHTS_PER_S: Final = 250
PAUSE_S: Final = 0.05
MAX_BLOCK_MS: Final = 60_000
POLL_MS: Final = 500


def flights_of(duration_s: float) -> pd.DataFrame:
    """Returns the flights for a run of that duration, in order of departure. There are at most the flights of one
    year."""
    return nycflights.read_flights().head(int(duration_s * FLIGHTS_PER_S))


def expected_delays(flights: pd.DataFrame) -> pd.DataFrame:
    """Returns the delays that pandas computes, by airport and hour."""
    return demo.expected_hours(flights)


class Feeder:
    """Feeds numbers until `stop` is set, and flights to their end. A tick of time closes the last hours."""

    def __init__(self, bootstrap: str, flights: pd.DataFrame, duration_s: float) -> None:
        self.count = 0
        """The number of numbers that were sent: 0, 1, 2 ..."""
        self.begin_s = math.inf
        """The time at which flights begin."""
        self._bootstrap = bootstrap
        self._flights = flights
        self._duration_s = duration_s

    async def run(self, stop: asyncio.Event) -> None:
        """Feeds numbers and flights, and returns when all of them are acknowledged. Raises KlammError."""
        async with AsyncProducer(
            bootstrap_servers=self._bootstrap, delivery_timeout_ms=int(DEADLINE_S * 1000), max_block_ms=MAX_BLOCK_MS
        ) as producer:
            fed, sent = 0, []
            rows = self._flights[nycflights.FLIGHT_COLUMNS].itertuples(index=False)
            while not stop.is_set():
                sent.append(await producer.send(NUMBERS, b"%d" % self.count, partition=self.count % PARTITIONS))
                self.count += 1
                share = min(1.0, max(0.0, time.monotonic() - self.begin_s) / self._duration_s)
                while fed < int(share * len(self._flights)):
                    sent.append(await self._send_flight(producer, next(rows)))
                    fed += 1
                await asyncio.sleep(PAUSE_S)
            for row in rows:
                sent.append(await self._send_flight(producer, row))
            for future in sent:
                await future
            tick = {"scheduled": nycflights.AFTER_THE_YEAR.isoformat()}
            await (await producer.send(FLIGHTS, json.dumps(tick).encode()))

    async def _send_flight(self, producer: AsyncProducer, row: Any) -> Any:
        key = None if pd.isna(row.tailnum) else row.tailnum.encode()
        return await producer.send(FLIGHTS, json.dumps(nycflights.flight_value(row)).encode(), key=key)


class Observer:
    """Follows the copies as a read_committed consumer."""

    def __init__(self, bootstrap: str) -> None:
        self.highest = -1
        self._bootstrap = bootstrap

    async def run(self) -> None:
        """Reads the copies until it is cancelled."""
        async with _consumer(self._bootstrap) as consumer:
            consumer.assign([TopicPartition(COPIES, number) for number in range(PARTITIONS)])
            consumer.seek_to_beginning()
            while True:
                polled: Mapping[TopicPartition, Sequence[ConsumerRecord]] = {}
                with contextlib.suppress(KlammError):
                    polled = await consumer.poll(POLL_MS)
                for records in polled.values():
                    self.highest = max(self.highest, *(int(record.value or b"-1") for record in records))


async def read_committed(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Returns all committed records that the topic has now. Raises KlammError."""
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: list[ConsumerRecord] = []
    async with _consumer(bootstrap) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = await consumer.end_offsets(tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for records in (await consumer.poll(POLL_MS)).values():
                found += records
    return found


def _consumer(bootstrap: str) -> AsyncConsumer:
    return AsyncConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed")
