"""Tests the move of a log to another log dir: the copy follows every change, and a crash cannot split the swap."""

from __future__ import annotations

import errno
import random
import tempfile
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm.records.header import iter_headers
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.dirs.log_move import REPLACES_FILE
from klamm_broker.log.files.storage_failure import LogDirError, LogDirFailure
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.replica.future_replica import FutureReplica
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import create_log, delete_log

NOW = 1_000
NAME = TopicPartition("orders", 0)
TOPIC_ID = TopicId(uuid.UUID(int=77))
CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100, file_delete_delay_ms=60)


class Died(BaseException):
    """Raised when the process is killed."""


class MortalDisk(Disk):
    """A disk that kills the process at the nth rename or write of a small file."""

    def __init__(self) -> None:
        self.changes_left: int | None = None
        self.changes: list[str] = []

    def _live(self, change: str) -> None:
        self.changes.append(change)
        if self.changes_left is not None:
            if not self.changes_left:
                raise Died
            self.changes_left -= 1

    def replace(self, source: str, target: str) -> None:  # type: ignore[override]
        self._live(f"replace {target}")
        super().replace(source, target)

    def fsync_directory(self, path: str) -> None:
        self._live(f"fsync {path}")
        super().fsync_directory(path)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._live(f"remove {path}")
            super().remove([path])


class Broker:
    """A log manager over two dirs that can be restarted. NAME begins in `a`."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.a, self.b = (str(root / name) for name in ("a", "b"))
        self.disk = disk or Disk()
        self._rng = random.Random(5)
        self.manager = self.start()

    def start(self) -> LogManager:
        config = LogManagerConfig(log_dirs=(self.a, self.b), node_id=1)
        self.manager = LogManager(config, self.disk, self._rng)
        self.deletions = self.manager.load("one", lambda topic: CONFIG, now_ms=NOW)
        return self.manager

    def crash(self) -> None:
        for log in self.manager.hosted.all():
            log.abandon()
        self.manager.directories.unlock()

    def restart(self) -> LogManager:
        self.crash()
        return self.start()

    @property
    def current(self) -> PartitionLog:
        return self.manager.hosted.current[NAME]

    @property
    def future(self) -> PartitionLog:
        return self.manager.hosted.futures[NAME]

    def begin(self, path: str | None = None) -> FutureReplica:
        job = self.manager.moves.plan(NAME, path or self.b, now_ms=NOW)
        assert job is not None
        self.manager.moves.complete(job.run())
        return self.copying()

    def copying(self) -> FutureReplica:
        return FutureReplica(self.current, self.future)

    def finish(self) -> None:
        """Copies the rest, and swaps the logs."""
        copy_all(self.copying(), self.current)
        job = self.manager.moves.swap(NAME, now_ms=NOW)
        job.run()
        self.manager.moves.complete_swap(job)

    def names(self, path: str) -> list[str]:
        return sorted(one.name for one in Path(path).iterdir() if one.is_dir())


def empty(path: str) -> None:
    """Removes the files that a start created in a log dir that was not mounted."""
    for found in Path(path).iterdir():
        found.unlink()
    Path(path).rmdir()


def copy_part(copy: FutureReplica, current: PartitionLog, max_bytes: int = 300) -> None:
    part = copy.next_part(max_bytes)
    records = b"" if part.located is None else part.located.segment.files.read(part.located.part)
    copy.take(part, records, high_watermark=current.log_end_offset, now_ms=NOW)


def copy_all(copy: FutureReplica, current: PartitionLog) -> None:
    for _ in range(1_000):
        if copy.is_caught_up:
            return
        copy_part(copy, current)
    raise AssertionError("it does not come to an end")


def fill(log: PartitionLog, make_batch: Callable[..., bytes], count: int = 40, *, epoch: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(make_batch(2), leader_epoch=epoch, now_ms=NOW)


@pytest.fixture
def broker(tmp_path: Path, make_batch: Callable[..., bytes]):
    broker = Broker(tmp_path)
    log = create_log(broker.manager, NAME, TOPIC_ID, CONFIG, now_ms=NOW)
    assert log.log_dir.path == broker.a
    fill(log, make_batch)
    yield broker
    broker.crash()


def test_a_log_is_copied_and_swapped(broker: Broker, make_batch, read_all) -> None:
    records = read_all(broker.current)
    old = broker.current
    copy = broker.begin()
    copy_part(copy, broker.current)
    (directory,) = broker.names(broker.b)
    assert directory.startswith("orders-0.")
    assert directory.endswith("-future")
    fill(broker.current, make_batch, 1)
    copy_all(copy, broker.current)
    job = broker.manager.moves.swap(NAME, now_ms=NOW)
    new = broker.current
    assert new is not old
    assert new.log_dir.path == broker.b
    fill(new, make_batch, 20)
    job.run()
    deletion = broker.manager.moves.complete_swap(job)
    assert (deletion.log_dir.path, deletion.due_ms) == (broker.a, NOW + CONFIG.file_delete_delay_ms)
    broker.manager.deletion.remove_files(deletion)
    assert (broker.names(broker.a), broker.names(broker.b)) == ([], ["orders-0"])
    assert not Path(new.directory, REPLACES_FILE).exists()
    assert read_all(new)[: len(records)] == records
    new.check_invariants()
    everything = read_all(new)
    broker.restart()
    assert read_all(broker.current) == everything


def test_a_future_replica_shows_how_far_it_is_behind(broker: Broker) -> None:
    copy = broker.begin()
    copy_part(copy, broker.current)
    rows = {row.path: row.replicas for row in broker.manager.describe_log_dirs()}
    (current,), (future,) = rows[broker.a], rows[broker.b]
    assert (current.is_future, current.offset_lag) == (False, 0)
    assert (future.is_future, future.offset_lag) == (True, 80 - broker.future.log_end_offset)
    assert 0 < future.offset_lag < 80


def test_after_a_crash_the_copy_continues_at_the_future_logs_end(broker: Broker, read_all) -> None:
    records = read_all(broker.current)
    copy = broker.begin()
    copy_part(copy, broker.current)
    end_offset = broker.future.log_end_offset
    broker.restart()
    assert broker.future.log_end_offset == end_offset > 0
    broker.finish()
    assert read_all(broker.current) == records
    assert broker.current.log_dir.path == broker.b


@pytest.mark.parametrize("changes", [*range(6), 9, 13, 17])
def test_a_kill_in_the_middle_of_the_swap_leaves_one_whole_log(
    tmp_path: Path, make_batch, read_all, changes: int
) -> None:
    disk = MortalDisk()
    broker = Broker(tmp_path, disk)
    create_log(broker.manager, NAME, TOPIC_ID, CONFIG, now_ms=NOW)
    fill(broker.current, make_batch)
    copy_all(broker.begin(), broker.current)
    before = read_all(broker.current)
    disk.changes_left = changes
    appended = False
    try:
        job = broker.manager.moves.swap(NAME, now_ms=NOW)
        fill(broker.current, make_batch, 3, epoch=2)
        appended = True
        job.run()
        assert changes >= 17, "nothing was killed"
    except Died:
        pass
    expected = [*before, *read_all(broker.current)[len(before) :]] if appended else before
    disk.changes_left = None
    broker.restart()
    assert read_all(broker.current) == expected
    broker.current.check_invariants()
    if broker.manager.hosted.futures:
        assert not appended
        broker.finish()
    assert broker.current.log_dir.path == broker.b
    for deletion in broker.deletions:
        broker.manager.deletion.remove_files(deletion)
    assert broker.names(broker.b) == ["orders-0"]
    broker.restart()
    assert read_all(broker.current) == expected
    assert not Path(broker.current.directory, REPLACES_FILE).exists()
    broker.crash()


def test_a_move_syncs_the_new_name_before_it_renames_the_old_log(tmp_path: Path) -> None:
    """Otherwise a power failure could lose both."""
    disk = MortalDisk()
    broker = Broker(tmp_path, disk)
    create_log(broker.manager, NAME, TOPIC_ID, CONFIG, now_ms=NOW)
    copy_all(broker.begin(), broker.current)
    disk.changes.clear()
    broker.manager.moves.swap(NAME, now_ms=NOW).run()
    assert disk.changes[:4] == [
        f"replace {broker.b}/orders-0",
        f"fsync {broker.b}",
        f"replace {broker.a}/{broker.names(broker.a)[0]}",
        f"fsync {broker.a}",
    ]
    broker.crash()


def test_records_that_replace_truncated_ones_are_copied_again(broker: Broker, make_batch, read_all) -> None:
    copy = broker.begin()
    copy_all(copy, broker.current)
    broker.current.truncate_to(30, now_ms=NOW)
    fill(broker.current, lambda count: make_batch(count, value_bytes=5), 60, epoch=2)
    assert not copy.is_caught_up
    records = read_all(broker.current)
    broker.finish()
    assert read_all(broker.current) == records


def test_two_logs_of_one_partition_without_a_replaces_file_stop_the_start(broker: Broker) -> None:
    copy_all(broker.begin(), broker.current)
    broker.manager.moves.swap(NAME, now_ms=NOW)
    Path(broker.current.directory, REPLACES_FILE).unlink()
    with pytest.raises(LogDirError, match="in two log directories"):
        broker.restart()


def test_a_moved_log_wins_over_the_old_one_in_a_dir_that_was_offline_during_the_swap(
    broker: Broker, make_batch
) -> None:
    copy_all(broker.begin(), broker.current)
    broker.manager.moves.swap(NAME, now_ms=NOW)
    fill(broker.current, make_batch, 1, epoch=2)
    hidden = Path(broker.a).with_name("hidden")
    Path(broker.a).rename(hidden)
    broker.restart()
    assert broker.current.log_end_offset == 82
    broker.crash()
    empty(broker.a)
    hidden.rename(broker.a)
    broker.start()
    assert broker.current.log_end_offset == 82


def test_a_future_log_without_a_current_log_is_deleted_at_the_start(broker: Broker) -> None:
    broker.begin()
    name = TopicPartition("other", 0)
    create_log(broker.manager, name, TOPIC_ID, CONFIG, now_ms=NOW)
    directory = Path(broker.current.directory)
    broker.crash()
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    broker.start()
    assert not broker.manager.hosted.futures
    assert len(broker.deletions) == 1


def test_a_future_log_stays_while_the_current_one_may_be_in_a_dir_that_cannot_be_read(broker: Broker) -> None:
    broker.begin()
    broker.crash()
    hidden = Path(broker.a).with_name("hidden")
    Path(broker.a).rename(hidden)
    broker.start()
    assert not broker.manager.hosted.futures
    assert broker.names(broker.b)[0].endswith("-future")
    broker.crash()
    empty(broker.a)
    hidden.rename(broker.a)
    broker.start()
    broker.finish()
    assert broker.current.log_dir.path == broker.b


def test_a_move_that_is_cancelled_leaves_the_log_where_it_is(broker: Broker, read_all) -> None:
    records = read_all(broker.current)
    copy_part(broker.begin(), broker.current)
    job = broker.manager.deletion.plan_of_future(NAME, now_ms=NOW)
    assert job is not None
    job.run()
    for deletion in broker.manager.deletion.complete(job):
        broker.manager.deletion.remove_files(deletion)
    assert broker.names(broker.b) == []
    assert read_all(broker.current) == records
    assert broker.manager.deletion.plan_of_future(NAME, now_ms=NOW) is None
    broker.begin()
    broker.finish()
    assert read_all(broker.current) == records


def test_a_deleted_partition_takes_its_future_log_with_it(broker: Broker) -> None:
    broker.begin()
    jobs = broker.manager.deletion.plan([NAME], now_ms=NOW)
    for job in jobs:
        job.run()
        for deletion in broker.manager.deletion.complete(job):
            broker.manager.deletion.remove_files(deletion)
    assert (broker.names(broker.a), broker.names(broker.b)) == ([], [])
    create_log(broker.manager, NAME, TOPIC_ID, CONFIG, now_ms=NOW)
    delete_log(broker.manager, NAME, now_ms=NOW)


def test_a_new_log_is_not_created_in_a_dir_that_still_has_the_moved_logs_directory(broker: Broker) -> None:
    copy_all(broker.begin(), broker.current)
    job = broker.manager.moves.swap(NAME, now_ms=NOW)
    delete_log(broker.manager, NAME, now_ms=NOW)
    assert create_log(broker.manager, NAME, TOPIC_ID, CONFIG, now_ms=NOW).log_dir.path == broker.b
    job.run()
    broker.manager.moves.complete_swap(job)


@pytest.mark.parametrize(("path", "code"), [("/nowhere", ErrorCode.LOG_DIR_NOT_FOUND), ("b", None)])
def test_a_move_to_an_unknown_or_offline_log_dir_is_refused(broker: Broker, path: str, code: ErrorCode | None) -> None:
    if code is None:
        path = broker.b
        broker.manager.directories.at(path).log_dir.failure = "broken"
        code = ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(BrokerError) as refused:
        broker.manager.moves.plan(NAME, path, now_ms=NOW)
    assert refused.value.code is code
    assert broker.manager.moves.plan(NAME, broker.a, now_ms=NOW) is None, "it is there already"


def test_a_failed_creation_of_a_future_log_leaves_no_future_log_after_a_restart(
    tmp_path: Path, faulty_disk, make_batch
) -> None:
    broker = Broker(tmp_path, faulty_disk)
    create_log(broker.manager, NAME, TOPIC_ID, CONFIG, now_ms=NOW)
    job = broker.manager.moves.plan(NAME, broker.b, now_ms=NOW)
    assert job is not None
    faulty_disk.errors["replace"] = errno.EIO
    faulty_disk.only_below = broker.b
    with pytest.raises(LogDirFailure):
        job.run()
    faulty_disk.errors.clear()
    broker.restart()
    assert not broker.manager.hosted.futures
    assert broker.current.log_dir.path == broker.a
    broker.crash()


def test_producers_whose_records_were_deleted_are_still_known_after_a_move(broker: Broker) -> None:
    def send(sequence: int):
        batch = encode_batch([(NOW, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)
        return broker.current.append_as_leader(batch, leader_epoch=1, now_ms=NOW)

    first = send(0)
    broker.current.advance_log_start(broker.current.log_end_offset, high_watermark=broker.current.log_end_offset)
    broker.begin()
    broker.finish()
    again = send(0)
    assert (again.is_duplicate, again.base_offset) == (True, first.base_offset)
    broker.restart()
    assert send(0).is_duplicate


def test_a_log_start_within_a_batch_is_kept(broker: Broker, make_batch, read_all) -> None:
    broker.current.append_as_leader(make_batch(10), leader_epoch=1, now_ms=NOW)
    broker.current.advance_log_start(85, high_watermark=90)
    broker.begin()
    broker.finish()
    assert broker.current.log_start_offset == 85
    assert [offset for offset, _ in read_all(broker.current)] == [85, 86, 87, 88, 89]


def records_of(log: PartitionLog) -> bytes:
    """Returns all records of the log without regard to segments."""
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        records = bytes(log.reader.read(offset, 10**6).records)
        found += records
        offset = [header.next_offset for _, header in iter_headers(records)][-1]
    return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 8)),
        st.tuples(st.just("truncate"), st.integers(0, 60)),
        st.tuples(st.just("delete"), st.integers(0, 60)),
        st.tuples(st.just("copy"), st.integers(1, 900)),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=30)
@given(STEPS)
def test_the_future_log_equals_the_log_after_any_appends_truncations_and_deletions(steps) -> None:
    with tempfile.TemporaryDirectory() as root:
        broker = Broker(Path(root))
        current = create_log(broker.manager, NAME, TOPIC_ID, CONFIG, now_ms=NOW)
        copy, epoch = broker.begin(), 0
        for kind, number in steps:
            if kind == "append":
                batch = encode_batch([(NOW, b"k", b"%d of %d" % (number, epoch), ())] * number)
                current.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW)
            elif kind == "truncate":
                # A follower truncates only records that another leader epoch replaced.
                epoch += 1
                current.truncate_to(max(number, current.log_start_offset), now_ms=NOW)
            elif kind == "delete":
                current.advance_log_start(min(number, current.log_end_offset), high_watermark=current.log_end_offset)
            else:
                copy_part(copy, current, number)
        copy_all(copy, current)
        future = broker.future
        future.check_invariants()
        assert (future.log_start_offset, future.log_end_offset) == (current.log_start_offset, current.log_end_offset)
        assert records_of(future) == records_of(current)
        is_empty, latest_epoch = current.log_start_offset == current.log_end_offset, current.epochs.latest_epoch
        broker.finish()
        # An empty log may know the epoch of deleted records or not, because only one of the logs was truncated.
        assert is_empty or broker.current.epochs.latest_epoch == latest_epoch
        broker.current.check_invariants()
        broker.crash()
