"""Tests that the sender loses and doubles no record, while brokers lose requests, answers and leaderships.

Each record is written once, in order, or its failure is reported. A partition here is a real `ProducerStates` over a
list of records. A request may get lost before or after the append, arrive again later, be refused, or be stuck until
its batches expire. The leadership may also move to a replica that has all acknowledged batches and any number of later
ones.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView, Node
from klamm.cluster.record_calls import RecordCalls
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.producer.accumulator import Accumulator, PartitionQueue
from klamm.producer.config import ProducerConfig
from klamm.producer.interceptors import InterceptorChain
from klamm.producer.metrics import ProducerMetrics
from klamm.producer.sender import Sender
from klamm.producer.user_calls import UserCalls
from klamm.records import BatchHeader, decode_batch, iter_headers
from klamm.retry import Backoff
from klamm.wire.framed import decode_framed, split_records
from klamm.wire.v1 import broker_pb2
from klamm_broker.log.producers.producer_state import ProducerStates
from tests.support.loop_time import LoopClock, run_without_waiting
from tests.support.processes import clocks

RECORDS = 150
PARTITIONS = 2
SEEDS = range(40)
CLOCK = LoopClock()
NetworkError = EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]


class Log:
    """A partition: its batches in order, the state of its producers, and its high watermark."""

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.producers = ProducerStates()
        self.end_offset = 0
        self.high_watermark = 0

    def append(self, part: bytes) -> int:
        headers = [header for _, header in iter_headers(part)]
        if headers[0].producer_id >= 0 and (duplicate := self.producers.check(headers)) is not None:
            return duplicate.base_offset
        base_offset = self.end_offset
        for position, header in iter_headers(part):
            self._add(header, part[position : position + header.size_bytes])
        return base_offset

    def _add(self, header: BatchHeader, batch: bytes) -> None:
        self.producers.note(header, base_offset=self.end_offset, now_ms=0)
        self.batches.append((header, batch))
        self.end_offset += header.last_offset_delta + 1

    def move_leader(self, rng: random.Random) -> None:
        """Moves the leadership to a replica with all committed batches and some of the others."""
        committed = count = 0
        for header, _ in self.batches:
            committed += header.last_offset_delta + 1
            count += committed <= self.high_watermark
        kept = self.batches[: rng.randint(count, len(self.batches))]
        self.batches, self.producers, self.end_offset = [], ProducerStates(), 0
        for header, batch in kept:
            self._add(header, batch)

    def values(self) -> list[int]:
        return [int(record.value or b"") for _, batch in self.batches for record in decode_batch(batch)]


class Brokers:
    """One broker that plays the part of all brokers. `produce` is the method of its stub."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.late: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.works = False

    async def init_producer_id(self, request: broker_pb2.InitProducerIdRequest) -> broker_pb2.InitProducerIdResponse:
        code = self._rng.choice([ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
        return broker_pb2.InitProducerIdResponse(error_code=code, producer_id=7)

    async def produce(self, message: bytes) -> broker_pb2.ProduceResponse:
        header, records = decode_framed(message, broker_pb2.ProduceHeader)
        sizes = [partition.records_bytes for partition in header.partitions]
        parts = [bytes(part) for part in split_records(records, sizes)]
        response = broker_pb2.ProduceResponse()
        is_lost = False
        for asked, part in zip(header.partitions, parts, strict=True):
            await asyncio.sleep(0)
            fate = "written" if self.works else self._rng.choices(FATES, WEIGHTS)[0]
            is_lost |= fate.startswith("lost")
            answer = self._answer(asked.partition, part, fate)
            response.partitions.add(
                topic=asked.topic, partition=asked.partition, error_code=answer[0], base_offset=answer[1]
            )
            if fate == "lost and stuck":
                await asyncio.sleep(0.012)
        if is_lost:
            raise NetworkError("lost")
        return response

    def _answer(self, partition: int, part: bytes, fate: str) -> tuple[int, int]:
        log, late = self.logs[partition], self.late[partition]
        if self._rng.random() < 0.3 and late:
            self._append_late(log, late.pop(0))
        if fate == "moved":
            log.move_leader(self._rng)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if fate == "refused":
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        if fate == "invalid":
            return ErrorCode.INVALID_RECORD, -1
        if fate == "lost, comes later":
            late.append(part)
        if fate in ("lost before", "lost, comes later"):
            return ErrorCode.NONE, -1
        try:
            base_offset = log.append(part)
        except BrokerError as error:
            # A late request must not come between this answer and the next epoch. Kafka has no remedy for that either.
            late.clear()
            return error.code, -1
        if fate == "written":
            log.high_watermark = log.end_offset
        return (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if fate == "not committed" else ErrorCode.NONE), base_offset

    def _append_late(self, log: Log, part: bytes) -> None:
        try:
            log.append(part)
        except BrokerError:
            return


FATES = (
    "written",
    "lost before",
    "lost after",
    "lost, comes later",
    "lost and stuck",
    "refused",
    "invalid",
    "not committed",
    "moved",
)
WEIGHTS = (6, 1, 2, 1, 1, 1, 0.3, 1, 2)


class Client(KlammClient):
    """A client that knows one broker and connects to none."""

    def __init__(self, brokers: Brokers, rng: random.Random) -> None:
        self.cluster = ClusterView(brokers={0: Node(node_id=0, host="h", port=1)})
        self.backoff = Backoff(initial_ms=0, max_ms=1)
        self.rng = rng
        self._brokers = brokers
        self._records = RecordCalls(None, rng, timeout_ms=1)

    def broker(self, node_id: int) -> Brokers:  # type: ignore[override]
        return self._brokers

    async def ask_any_broker(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        return await ask(self._brokers)

    async def refresh_metadata(self, topics: object = None) -> ClusterView:
        return self.cluster


class Outcomes:
    """The result of each value, as the application received it."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[int, int], int] = {}
        self.failed: dict[tuple[int, int], Exception] = {}

    def has(self, partition: int, value: int) -> bool:
        """Returns True if the value was sent to that partition."""
        return (partition, value) in self.offsets or (partition, value) in self.failed


async def run(seed: int, *, idempotent: bool) -> tuple[Brokers, Outcomes]:
    rng = random.Random(seed)
    config = ProducerConfig.parse(
        enable_idempotence=idempotent,
        batch_size=rng.choice([100, 200, 1_000]),
        linger_ms=0,
        request_timeout_ms=5,
        delivery_timeout_ms=rng.choice([8, 60_000]),
        max_request_size=rng.choice([300, 100_000]),
        retries=rng.choice([2, 1 << 30]),
    )
    brokers, outcomes = Brokers(rng), Outcomes()
    loop = asyncio.get_running_loop()
    lock = threading.Lock()
    accumulator = Accumulator(config, lambda: loop.call_soon(sender.wake), UserCalls())
    sender = Sender(
        config,
        Client(brokers, rng),
        accumulator,
        lock,
        interceptors=InterceptorChain((), UserCalls()),
        metrics=ProducerMetrics(),
        on_settled=lambda: None,
    )
    sender._leader_of = lambda tp: 0
    sender.start()
    queues = [PartitionQueue(TopicPartition("t", number)) for number in range(PARTITIONS)]
    for number in range(RECORDS):
        send(accumulator, rng.choice(queues), number, outcomes)
        if rng.random() < 0.2:
            await asyncio.sleep(rng.choice([0, 0, 0.001]))
    brokers.works = rng.random() < 0.5
    results = accumulator.flush()
    for _ in range(20_000):
        if all(result.done for result in results):
            break
        await asyncio.sleep(0.001)
    assert all(result.done for result in results)
    await sender.stop(RuntimeError("the end"))
    return brokers, outcomes


def send(accumulator: Accumulator, queue: PartitionQueue, number: int, outcomes: Outcomes) -> None:
    value = b"%d" % number
    entry = accumulator.append(queue, (1, None, value, ()), 20, None)
    if entry is None:
        assert accumulator.open_batch(queue, 20, CLOCK.monotonic_ms())
        entry = accumulator.append(queue, (1, None, value, ()), 20, None)
    assert entry is not None
    result, index = entry
    key = (queue.tp.partition, number)

    def note() -> None:
        outcome = result.outcome_of(index)
        if outcome.error is not None:
            outcomes.failed[key] = outcome.error
        else:
            outcomes.offsets[key] = result.metadata(index, outcome).offset

    result.add_done_callback(note)


def violations(brokers: Brokers, outcomes: Outcomes) -> list[str]:
    found = []
    for partition, log in enumerate(brokers.logs):
        values = log.values()
        if len(set(values)) != len(values):
            found.append(f"duplicates: {values}")
        if list(dict.fromkeys(values)) != sorted(set(values)):
            found.append(f"out of order: {values}")
        if foreign := [value for value in values if not outcomes.has(partition, value)]:
            found.append(f"sent to another partition (CVE-2026-35554): {foreign}")
        for (number, value), offset in outcomes.offsets.items():
            if number == partition and value not in values:
                found.append(f"{value} is acknowledged and lost: {values}")
            elif number == partition and offset >= 0 and values[offset] != value:
                found.append(f"{value} is not at offset {offset}: {values}")
    return found


@pytest.fixture(autouse=True)
def _time_of_the_loop() -> Iterator[None]:
    """Lets the sender read the time of its event loop, so that a test does not have to wait for it."""
    with clocks(monotonic_ms=CLOCK.monotonic_ms):
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_written_once_and_in_order_or_has_failed(seed: int) -> None:
    brokers, outcomes = run_without_waiting(run(seed, idempotent=True))
    assert not violations(brokers, outcomes), f"seed {seed}"
    assert len(outcomes.offsets) + len(outcomes.failed) == RECORDS


def test_without_idempotence_the_same_faults_cause_duplicates() -> None:
    runs = [run_without_waiting(run(seed, idempotent=False)) for seed in SEEDS]
    found = [violation for ended in runs for violation in violations(*ended)]
    assert any(text.startswith("duplicates") for text in found)
