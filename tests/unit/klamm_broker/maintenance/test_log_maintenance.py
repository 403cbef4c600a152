"""Tests the background work on the log of a leader, with real files, and a clock by which all work is always due."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.records.encoder import encode_batch
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest, ReplicaPosition, ReplicatedPartition
from klamm_broker.maintenance.log_maintenance import LogMaintenance
from klamm_broker.replica.replica_session import ReplicaSession
from klamm_server.config.broker_configs import BrokerConfig
from tests.support.led_partition import OTHER, THIS, TOPIC_ID, LedPartition
from tests.support.waiting import patience

COUNT = 60
LEADER_EPOCH = 1
NOW = 10_000
ROOM = 10**6


class HastyClock:
    """A clock by which every chore is due each time that the clock is read."""

    def __init__(self) -> None:
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        return NOW

    def monotonic_ms(self) -> int:
        self._monotonic_ms += 10**9
        return self._monotonic_ms


class Leader(LedPartition):
    """A leader of a log of several segments, whose records have expired, and the session of a follower that has all
    records."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, segment_bytes=2_048, retention_ms=1_000)
        self.log = self.partition.log
        for number in range(COUNT):
            batch = bytes(encode_batch([(number, None, b"v" * 100, ())]))
            self.log.append_as_leader(batch, leader_epoch=LEADER_EPOCH, now_ms=number)
        self.partition._commit(COUNT)
        self.is_ready = asyncio.Event()
        self.session = ReplicaSession(self.replicas, self.sessions, self.is_ready.set)
        position = ReplicaPosition(
            topic_id=TOPIC_ID.bytes,
            current_leader_epoch=LEADER_EPOCH,
            fetch_offset=COUNT,
            last_fetched_epoch=LEADER_EPOCH,
            max_bytes=ROOM,
        )
        request = ReplicaFetchRequest(replica_id=OTHER, broker_epoch=OTHER, session_id=1, positions=[position])
        self.session.on_request(request, now_ms=0)
        self.answer()
        self.is_ready.clear()

    def answer(self) -> list[ReplicatedPartition]:
        return self.session.sent(self.session.locate(ROOM, now_ms=0), now_ms=0)

    async def maintain_until_ready(self) -> None:
        """Runs the maintenance until the follower's session has something to send."""
        maintenance = LogMaintenance(
            self.logs,
            self.replicas,
            BrokerConfig(node_id=THIS),
            HastyClock(),
            on_disk_full=lambda log_dir: None,
        )
        task = asyncio.create_task(maintenance.run())
        try:
            await asyncio.wait_for(self.is_ready.wait(), patience())
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            maintenance.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    leader = Leader(tmp_path)
    assert len(leader.log.segments.base_offsets) > 3
    yield leader
    leader.close()


def test_an_idle_followers_session_gets_the_log_start_that_retention_moved(leader: Leader) -> None:
    assert leader.answer() == [], "the follower knows everything"
    asyncio.run(leader.maintain_until_ready())
    assert leader.log.log_start_offset == COUNT
    assert [part.log_start_offset for part in leader.answer()] == [COUNT]
