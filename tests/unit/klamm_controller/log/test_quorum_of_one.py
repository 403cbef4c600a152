from __future__ import annotations

import asyncio
import threading

import pytest

from klamm.errors import IllegalStateError
from klamm.wire.v1.metadata_pb2 import MetadataRecord, NoOpRecord
from klamm_controller.log import quorum_of_one
from klamm_controller.log.quorum_of_one import QuorumOfOne
from klamm_controller.log.store import DiskFullError, HardState, MetadataStore
from klamm_server.metadata.image import MetadataImage, replay

NO_OP = MetadataRecord(no_op=NoOpRecord())


class CountingStore(MetadataStore):
    """Remembers how entries were grouped; `error` makes them fail."""

    def __init__(self, path):
        super().__init__(path)
        self.groups = []
        self.snapshots = 0
        self.error = None
        self.refused = threading.Semaphore(0)

    def write_entries(self, entries):
        if self.error is not None:
            self.refused.release()
            raise self.error
        self.groups.append(len(entries))
        super().write_entries(entries)

    def write_snapshot(self, chunks):
        self.snapshots += 1
        super().write_snapshot(chunks)


class Log:
    def __init__(self, path, interval=1 << 30):
        self.store = CountingStore(path)
        self.stored = self.store.load()
        self.committed = []
        self.failures = []
        self.advanced = asyncio.Event()
        self.log = QuorumOfOne(
            self.store,
            self.stored,
            node_id=3,
            snapshot_interval_bytes=interval,
            on_failure=lambda story, error: self.failures.append(error),
        )

    def start(self):
        self.log.start(self._on_committed)
        return self.log

    def _on_committed(self, entries):
        self.committed.extend(entries)
        self.advanced.set()

    async def wait_committed(self, end_index):
        while not self.committed or self.committed[-1].end_index < end_index:
            self.advanced.clear()
            await self.advanced.wait()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def test_appends_of_one_turn_share_one_write_and_commit_in_order(path):
    async def run():
        node = Log(path)
        log = node.start()
        appended = [log.append([NO_OP] * n) for n in (1, 2, 3)]
        assert node.committed == [], "nothing is promised before it is durable"
        await log.stop()
        assert node.committed == appended
        assert [(e.base_index, e.end_index) for e in appended] == [(0, 1), (1, 3), (3, 6)]
        assert node.store.groups == [3]

    asyncio.run(run())
    assert [e.base_index for e in Log(path).stored.entries] == [0, 1, 3]


def test_appends_during_a_write_share_the_next_one(path):
    async def run():
        node = Log(path)
        log = node.start()
        log.append([NO_OP])
        await asyncio.sleep(0)
        log.append([NO_OP])
        log.append([NO_OP])
        await log.stop()
        assert node.store.groups == [1, 2]

    asyncio.run(run())


def test_every_start_is_a_new_term_and_goes_on_where_the_log_ended(path):
    async def life():
        node = Log(path)
        assert not node.log.is_leader
        assert node.log.leader_id == -1
        log = node.start()
        assert (log.is_leader, log.leader_id) == (True, 3)
        entry = log.append([NO_OP])
        await log.stop()
        assert not log.is_leader
        return entry.term, entry.base_index

    assert [asyncio.run(life()) for _ in range(3)] == [(1, 0), (2, 1), (3, 2)]
    assert Log(path).stored.hard_state == HardState(term=3, voted_for=3)


def test_a_term_counts_even_when_nothing_was_appended(path):
    async def life():
        node = Log(path)
        term = node.start().term
        await node.log.stop()
        return term

    assert [asyncio.run(life()) for _ in range(2)] == [1, 2]


def test_appending_outside_of_start_and_stop_is_refused(path):
    async def run():
        node = Log(path)
        with pytest.raises(IllegalStateError):
            node.log.append([NO_OP])
        await node.start().stop()
        with pytest.raises(IllegalStateError):
            node.log.append([NO_OP])

    asyncio.run(run())


def test_a_failed_write_promises_nothing_and_is_reported(path):
    async def run():
        node = Log(path)
        log = node.start()
        node.store.error = OSError(5, "Input/output error")
        log.append([NO_OP])
        await log.stop()
        assert node.committed == []
        assert node.failures == [node.store.error]

    asyncio.run(run())


def test_a_full_disk_is_waited_for_and_nothing_is_lost_or_promised_meanwhile(path, monkeypatch):
    monkeypatch.setattr(quorum_of_one, "FULL_DISK_RETRY_S", 0.001)

    async def run():
        node = Log(path)
        log = node.start()
        node.store.error = DiskFullError("no space")
        while_full = [log.append([NO_OP]), log.append([NO_OP, NO_OP])]
        for _ in range(3):
            await asyncio.to_thread(node.store.refused.acquire)
        assert node.committed == []
        node.store.error = None
        afterwards = log.append([NO_OP])
        await node.wait_committed(afterwards.end_index)
        await log.stop()
        assert node.committed == [*while_full, afterwards]
        assert node.failures == []

    asyncio.run(run())


def test_a_log_stops_on_a_full_disk_without_what_was_never_promised(path):
    async def run():
        node = Log(path)
        log = node.start()
        node.store.error = DiskFullError("no space")
        log.append([NO_OP])
        await asyncio.to_thread(node.store.refused.acquire)
        await log.stop()
        assert node.committed == node.failures == []

    asyncio.run(run())
    assert Log(path).stored.entries == ()


def test_a_snapshot_is_due_by_bytes_and_cuts_the_log(path):
    async def run():
        node = Log(path, interval=100)
        log = node.start()
        image = MetadataImage.empty()
        while not log.snapshot_due:
            entry = log.append([NO_OP])
            await node.wait_committed(entry.end_index)
            image = replay(image, entry.records, entry.end_index)
        log.save_snapshot(image)
        assert not log.snapshot_due
        later = log.append([NO_OP, NO_OP])
        await log.stop()
        assert node.store.snapshots == 1
        return image, later

    image, later = asyncio.run(run())
    stored = Log(path).stored
    assert stored.snapshot[-1].end_index == image.end_index
    assert list(stored.entries) == [later]
