"""Tests that a broker reports its logs without a leader at once, and again until the partitions have leaders."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace

import pytest

from klamm.model import TopicId, TopicPartition
from klamm.wire.v1.controller_pb2 import ReportReplicaLogsRequest, ReportReplicaLogsResponse
from klamm_broker.replication import replica_log_reporter
from klamm_broker.replication.replica_log_reporter import ReplicaLogReporter
from klamm_server.metadata.entities import NO_LEADER
from tests.support.waiting import patience


class Controller:
    """The reporter's `calls`: keeps each request, and fails the next `failures` of them."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[ReportReplicaLogsRequest] = asyncio.Queue()
        self.failures = 0

    async def attempt(self, rpc, request):
        await self.requests.put(request)
        if self.failures:
            self.failures -= 1
            return None
        return ReportReplicaLogsResponse()

    async def request(self) -> ReportReplicaLogsRequest:
        """Waits for the next request."""
        async with asyncio.timeout(patience()):
            return await self.requests.get()


class Broker:
    """A reporter whose broker a test can activate and deactivate."""

    def __init__(self) -> None:
        self._is_active = True
        self._refused = asyncio.Event()
        self.controller = Controller()
        self.reporter = ReplicaLogReporter(
            self.controller, broker_id=1, broker_epoch=lambda: 40, is_active=self._ask_whether_active
        )
        self.reporter.on_image()

    def activate(self, is_active: bool) -> None:
        self._is_active = is_active
        self.reporter.on_image()
        self._refused.clear()

    async def refusal(self) -> None:
        """Waits until the reporter has asked whether the broker is active, and it was not."""
        async with asyncio.timeout(patience()):
            await self._refused.wait()

    def _ask_whether_active(self) -> bool:
        if not self._is_active:
            self._refused.set()
        return self._is_active


def replica(number: int, leader: int = NO_LEADER) -> SimpleNamespace:
    return SimpleNamespace(
        topic_id=TopicId(uuid.UUID(int=7)),
        topic_partition=TopicPartition("flights", number),
        image=SimpleNamespace(leader=leader, leader_epoch=5),
        log=SimpleNamespace(epochs=SimpleNamespace(latest_epoch=4), log_end_offset=10 + number),
    )


def ends(request: ReportReplicaLogsRequest) -> list[tuple[int, int]]:
    return [(end.partition, end.log_end_offset) for end in request.logs]


def run(body) -> None:
    async def main() -> None:
        broker = Broker()
        task = asyncio.create_task(broker.reporter.run())
        await body(broker)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


@pytest.fixture
def often(monkeypatch):
    """Makes the reporter repeat reports at once."""
    monkeypatch.setattr(replica_log_reporter, "REPEAT_MS", 1)


def test_a_partition_that_loses_its_leader_is_reported_at_once_with_all_others():
    async def body(broker):
        broker.reporter.note(replica(0), is_hosted=True)
        assert ends(await broker.controller.request()) == [(0, 10)]
        broker.reporter.note(replica(1), is_hosted=True)
        assert ends(await broker.controller.request()) == [(0, 10), (1, 11)]

    run(body)


def test_the_report_is_repeated_until_there_is_a_leader(often):
    async def body(broker):
        broker.reporter.note(replica(0), is_hosted=True)
        for _ in range(3):
            assert ends(await broker.controller.request()) == [(0, 10)]
        broker.reporter.note(replica(0, leader=2), is_hosted=True)
        broker.reporter.note(replica(1), is_hosted=True)
        while ends(request := await broker.controller.request()) == [(0, 10)]:
            pass
        assert ends(request) == [(1, 11)]

    run(body)


def test_a_broker_with_many_logs_repeats_its_reports_less_often():
    assert replica_log_reporter.repeat_ms(10_000) == replica_log_reporter.repeat_ms(1) == 5_000
    assert replica_log_reporter.repeat_ms(100_000) == 50_000


def test_a_report_without_an_answer_is_sent_again_at_once():
    async def body(broker):
        broker.controller.failures = 2
        broker.reporter.note(replica(0), is_hosted=True)
        assert [ends(await broker.controller.request()) for _ in range(3)] == [[(0, 10)]] * 3
        broker.reporter.note(replica(0, leader=2), is_hosted=True)

    run(body)


def test_a_broker_reports_its_leaderless_logs_only_when_it_may_become_leader(often):
    async def body(broker):
        broker.activate(False)
        broker.reporter.note(replica(0), is_hosted=True)
        await broker.refusal()
        assert broker.controller.requests.empty()
        broker.activate(True)
        assert ends(await broker.controller.request()) == [(0, 10)]

    run(body)
