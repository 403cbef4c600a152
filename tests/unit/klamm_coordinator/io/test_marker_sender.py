"""Tests that markers reach every partition wherever it moves, and that a forgotten owner gets no result."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.retry import Backoff
from klamm.wire.v1.common_pb2 import PartitionResult, WriteTxnMarkersResponse, WrittenTxnMarker
from klamm_coordinator.io import marker_sender
from klamm_coordinator.io.marker_sender import MarkerSender
from klamm_coordinator.transaction.messages import SendMarkers
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch
from tests.support.waiting import until

T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
OWNER = object()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "RETRY", Backoff(initial_ms=0, max_ms=0))


class Server:
    """A server that answers with the codes of its script, then with success. None breaks the connection."""

    def __init__(self, *script: ErrorCode | None) -> None:
        self.script = deque(script)
        self.requests: list[list[tuple[int, bool, int, list[TopicPartition]]]] = []
        self.release = asyncio.Event()
        self.release.set()

    async def write_txn_markers(self, request, timeout_ms):
        self.requests.append(
            [
                (
                    marker.producer_id,
                    marker.committed,
                    marker.coordinator_epoch,
                    [TopicPartition(part.topic, number) for part in marker.topics for number in part.partitions],
                )
                for marker in request.markers
            ]
        )
        await self.release.wait()
        code = self.script.popleft() if self.script else ErrorCode.NONE
        if code is None:
            raise ErrorCode.NETWORK_EXCEPTION.exception("gone")
        return WriteTxnMarkersResponse(
            markers=[
                WrittenTxnMarker(
                    producer_id=marker.producer_id,
                    partitions=[
                        PartitionResult(topic=part.topic, partition=number, error_code=code)
                        for part in marker.topics
                        for number in part.partitions
                    ],
                )
                for marker in request.markers
            ]
        )


class Holders:
    """Replaces MarkerDestinations."""

    def __init__(self, **servers: Server | None) -> None:
        self.of = {TopicPartition("t", int(name[1:])): server for name, server in servers.items()}

    def exists(self, partition: TopicPartition) -> bool:
        return partition in self.of

    def destination_of(self, partition: TopicPartition) -> Server | None:
        return self.of[partition]


def order(*partitions: TopicPartition, producer_id: int = 7) -> SendMarkers:
    return SendMarkers(
        transactional_id=f"id-{producer_id}",
        marker=ProducerIdAndEpoch(producer_id, 1),
        committed=True,
        transaction_version=2,
        partitions=frozenset(partitions),
    )


def run(destinations: Holders, scenario: Callable[[MarkerSender], Awaitable[None]]) -> None:
    async def main() -> None:
        sender = MarkerSender(destinations, random.Random(1))
        try:
            await scenario(sender)
        finally:
            await sender.close()

    asyncio.run(main())


def send(sender: MarkerSender, written: list[int], *partitions: TopicPartition, producer_id: int = 7) -> None:
    sender.send(
        order(*partitions, producer_id=producer_id),
        coordinator_epoch=3,
        owner=OWNER,
        on_written=lambda: written.append(producer_id),
    )


def test_a_marker_is_written_when_the_leaders_of_all_partitions_have_answered():
    one, other = Server(), Server()
    other.release.clear()
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, T0, T1)
        await until(lambda: bool(one.requests and other.requests))
        await until(lambda: sender.busy_server_count == 1)
        assert (written, sender.pending_count) == ([], 1)
        other.release.set()
        await until(lambda: written == [7])
        assert sender.pending_count == 0
        assert one.requests == [[(7, True, 3, [T0])]]
        assert other.requests == [[(7, True, 3, [T1])]]

    run(Holders(t0=one, t1=other), scenario)


@pytest.mark.parametrize(
    "failure", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_failed_marker_is_retried(failure):
    server = Server(failure, failure)
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, T0)
        await until(lambda: written == [7])
        assert len(server.requests) == 3

    run(Holders(t0=server), scenario)


def test_a_marker_is_retried_at_the_new_leader_of_the_partition():
    former, latter = Server(ErrorCode.NOT_LEADER_OR_FOLLOWER), Server()
    destinations = Holders(t0=former)
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        former.release.clear()
        send(sender, written, T0)
        await until(lambda: bool(former.requests))
        destinations.of[T0] = None
        former.release.set()
        await until(lambda: sender.busy_server_count == 0)
        destinations.of[T0] = latter
        await until(lambda: written == [7])
        assert len(latter.requests) == 1

    run(destinations, scenario)


def test_a_deleted_partition_needs_no_marker():
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, GONE)
        assert written == [7]

    run(Holders(), scenario)


def test_markers_that_wait_for_a_busy_server_are_sent_in_one_request():
    server = Server()
    server.release.clear()
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, T0, producer_id=1)
        await until(lambda: len(server.requests) == 1)
        for producer_id in (2, 3):
            send(sender, written, T0, T1, producer_id=producer_id)
        server.release.set()
        await until(lambda: written == [1, 2, 3])
        assert [len(request) for request in server.requests] == [1, 2]

    run(Holders(t0=server, t1=server), scenario)


class LaggingServer(Server):
    """A server that delays the answer about one partition until the test releases it."""

    def __init__(self, lagging: TopicPartition) -> None:
        super().__init__()
        self.lagging = lagging
        self.may_answer = asyncio.Event()

    async def write_txn_markers(self, request, timeout_ms):
        response = await super().write_txn_markers(request, timeout_ms)
        answered = {
            TopicPartition(part.topic, part.partition) for marker in response.markers for part in marker.partitions
        }
        if self.lagging in answered:
            await self.may_answer.wait()
        return response


def test_a_slow_partition_does_not_delay_other_transactions(monkeypatch):
    monkeypatch.setattr(marker_sender, "SLOW_MS", 0)
    server = LaggingServer(T0)
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, T0, producer_id=1)
        await until(lambda: len(server.requests) == 1)
        for producer_id in (2, 3):
            send(sender, written, T1, producer_id=producer_id)
            await until(lambda last=producer_id: written[-1:] == [last])
        assert written == [2, 3]
        server.may_answer.set()
        await until(lambda: written == [2, 3, 1])

    run(Holders(t0=server, t1=server), scenario)


def test_the_requests_in_flight_to_a_slow_server_are_bounded(monkeypatch):
    monkeypatch.setattr(marker_sender, "SLOW_MS", 0)
    server = LaggingServer(T0)
    written: list[int] = []
    count = 2 * marker_sender.REQUESTS_MAX

    async def scenario(sender: MarkerSender) -> None:
        for producer_id in range(count):
            send(sender, written, T0, producer_id=producer_id)
            await until(lambda sent=producer_id: len(server.requests) == min(sent + 1, marker_sender.REQUESTS_MAX))
        server.may_answer.set()
        await until(lambda: len(written) == count)
        await until(lambda: sender.busy_server_count == 0)

    run(Holders(t0=server), scenario)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_a_marker_refused_for_a_later_producer_epoch_counts_as_written(code):
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, T0)
        await until(lambda: written == [7])

    run(Holders(t0=Server(code)), scenario)


def test_a_fenced_coordinator_stops_sending_its_markers():
    server = Server(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, T0)
        await until(lambda: sender.pending_count == 0)
        assert (written, len(server.requests)) == ([], 1)

    run(Holders(t0=server), scenario)


def test_a_forgotten_owner_gets_no_result():
    server = Server(None)
    server.release.clear()
    written: list[int] = []

    async def scenario(sender: MarkerSender) -> None:
        send(sender, written, T0)
        await until(lambda: bool(server.requests))
        sender.forget(OWNER)
        server.release.set()
        await until(lambda: sender.busy_server_count == 0)
        assert (written, sender.pending_count, len(server.requests)) == ([], 0, 1)

    run(Holders(t0=server), scenario)
