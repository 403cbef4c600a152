"""A partition's log over several segments: append, read, look up by time, retain, truncate, flush."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.records.errors import CorruptBatchError
from klamm.records.header import iter_headers
from klamm_broker.log.log_config import LogConfig, TimestampSource
from klamm_broker.log.storage_failure import DiskFull, LogDirFailure, UnexpectedOffset

NOW = 1_000


def fill(log, make_batch, count: int = 40, **options) -> None:
    for number in range(count):
        times = [NOW + 10 * number] * 3
        log.append_as_leader(make_batch(3, timestamps=times, **options), leader_epoch=2, now_ms=NOW)


@pytest.fixture
def log(harness, make_batch):
    """120 records in 40 batches over several segments."""
    log = harness.open()
    fill(log, make_batch)
    assert len(log.segment_base_offsets) > 5
    return log


def test_append_says_where_the_records_went(harness, make_batch) -> None:
    log = harness.open()
    assert log.append_as_leader(make_batch(3), leader_epoch=0, now_ms=NOW) == (0, 2, -1, 0, False)
    assert log.append_as_leader(make_batch(2) + make_batch(1), leader_epoch=0, now_ms=NOW) == (3, 5, -1, 0, False)
    assert log.log_end_offset == 6


def test_append_reports_the_append_time(harness, make_batch) -> None:
    harness.config = LogConfig(timestamp_source=TimestampSource.LOG_APPEND_TIME)
    log = harness.open()
    assert log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=77).log_append_time_ms == 77
    assert log.find_timestamp(77) == (77, 0, 0)


def test_a_refused_append_changes_nothing(log, make_batch) -> None:
    before = (log.log_end_offset, log.size_bytes)
    batch = bytearray(make_batch(2))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        log.append_as_leader(make_batch(1) + batch, leader_epoch=2, now_ms=NOW)
    assert (log.log_end_offset, log.size_bytes) == before


@pytest.mark.parametrize("max_bytes", [1, 150, 700, 5_000, 100_000])
def test_reading_from_any_offset(log, max_bytes: int) -> None:
    for offset in range(120):
        data = log.read(offset, max_bytes).records
        headers = [header for _, header in iter_headers(data)]
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert len(data) <= max_bytes or len(headers) == 1
        for before, after in itertools.pairwise(headers):
            assert after.base_offset == before.next_offset


def test_reading_stops_below_max_offset(log) -> None:
    for max_offset in (0, 1, 2, 3, 50, 51, 52, 119, 120, 500):
        for offset in (0, 49, 50, 51, 118):
            headers = [h for _, h in iter_headers(log.read(offset, 10**6, max_offset=max_offset).records)]
            assert all(header.last_offset < max_offset for header in headers)
            # Something is read whenever the batch of `offset` ends below the bound.
            assert bool(headers) == (offset - offset % 3 + 3 <= max_offset)


def test_without_min_one_a_batch_that_does_not_fit_is_not_given(log) -> None:
    assert log.read(5, 10, min_one=False).records == b""
    assert log.read(5, 10, min_one=True).records


def test_reading_at_the_end_and_beyond(log) -> None:
    assert log.read(120, 1000) == (b"", 0, 120)
    for offset in (-1, 121):
        with pytest.raises(BrokerError, match=f"offset {offset}; the log has 0 to 120") as caught:
            log.read(offset, 1000)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_index_damaged_under_a_running_broker_is_rebuilt(log, harness, read_all) -> None:
    expected = read_all(log)
    base = log.segment_base_offsets[1]
    for segment in list(harness.pool._segments.values()):
        harness.pool.forget(segment)
        segment.release()
    harness.path(base, ".index").write_bytes(b"\1" * 16)
    assert read_all(log) == expected


def test_few_files_are_open_however_many_segments(log, harness, read_all) -> None:
    assert len(read_all(log)) == 120
    prefix = str(harness.directory)
    targets = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    ]
    assert sum(target.startswith(prefix) for target in targets) <= 3 + 1


class TestByTime:
    def naive(self, records, timestamp: int, start: int):
        hits = [(time, offset) for time, offset in records if time >= timestamp and offset >= start]
        return hits[0] if hits else None

    @pytest.mark.parametrize("start", [0, 17, 100])
    def test_against_a_list(self, harness, make_batch, start: int) -> None:
        log = harness.open()
        records: list[tuple[int, int]] = []
        # Out of order within batches, between batches and between segments.
        for number in range(60):
            times = [(number * 7919 + i * 104729) % 997 for i in range(2)]
            records += [(time, len(records) + i) for i, time in enumerate(times)]
            log.append_as_leader(make_batch(2, timestamps=times), leader_epoch=4, now_ms=NOW)
        assert len(log.segment_base_offsets) > 3
        log.advance_log_start(start, high_watermark=120)
        for timestamp in range(-1, 1_000, 7):
            found = log.find_timestamp(timestamp)
            expected = self.naive(records, timestamp, start)
            assert (found and found[:2]) == expected, timestamp
            assert found is None or found.leader_epoch == 4

    def test_a_restart_finds_the_same(self, log, harness) -> None:
        before = [log.find_timestamp(time) for time in range(NOW, NOW + 410, 5)]
        assert before[-1] is None
        log.close()
        again = harness.open(clean=True)
        assert [again.find_timestamp(time) for time in range(NOW, NOW + 410, 5)] == before

    def test_max_timestamp_is_the_first_record_that_has_it(self, harness, make_batch) -> None:
        log = harness.open()
        assert log.find_max_timestamp() is None
        for times in ([5, 9, 3], [9, 2], [7]):
            log.append_as_leader(make_batch(timestamps=times), leader_epoch=1, now_ms=NOW)
        assert log.find_max_timestamp() == (9, 1, 1)
        fill(log, make_batch)
        assert log.find_max_timestamp() == (NOW + 390, 6 + 39 * 3, 2)

    def test_earliest_has_the_epoch_of_the_start(self, log) -> None:
        log.advance_log_start(50, high_watermark=120)
        assert log.earliest() == (-1, 50, 2)


class TestFollower:
    def test_what_the_leader_sent_is_stored_as_it_is(self, log, tmp_path, harness, make_batch) -> None:
        sent = [log.read(offset, 1).records for offset in range(0, 120, 3)]
        harness.directory = tmp_path / "copy-0"
        follower = harness.open()
        follower.append_as_follower(b"".join(sent[:25]), now_ms=NOW)
        follower.append_as_follower(b"".join(sent[25:]), now_ms=NOW)
        follower.check_invariants()
        assert [follower.read(offset, 1).records for offset in range(0, 120, 3)] == sent
        assert follower.epochs.entries == log.epochs.entries
        assert len(follower.segment_base_offsets) > 5

    def test_offsets_may_have_gaps_but_not_go_back(self, harness, make_batch) -> None:
        log = harness.open()
        log.append_as_follower(make_batch(2, base_offset=10, partition_leader_epoch=3), now_ms=NOW)
        log.append_as_follower(make_batch(1, base_offset=20, partition_leader_epoch=5), now_ms=NOW)
        assert log.log_end_offset == 21
        assert log.epochs.entries == ((3, 10), (5, 20))
        with pytest.raises(UnexpectedOffset, match="offset 19; expected 21"):
            log.append_as_follower(make_batch(1, base_offset=19), now_ms=NOW)
        headers = [header.base_offset for _, header in iter_headers(log.read(0, 10**6).records)]
        assert headers == [10, 20]

    def test_an_empty_log_takes_the_batch_within_which_the_leader_starts(self, harness, make_batch, read_all) -> None:
        log = harness.open()
        log.truncate_fully_and_start_at(15, now_ms=NOW)
        batch = make_batch(10, base_offset=10, partition_leader_epoch=3)
        log.append_as_follower(batch, now_ms=NOW)
        assert (log.log_start_offset, log.log_end_offset) == (15, 20)
        assert [offset for offset, _ in read_all(log)] == [15, 16, 17, 18, 19]
        log.check_invariants()
        with pytest.raises(UnexpectedOffset):
            log.append_as_follower(batch, now_ms=NOW)

    def test_an_offset_out_of_reach_of_the_segment_begins_a_new_one(self, harness, make_batch) -> None:
        log = harness.open()
        far = 2**33
        log.append_as_follower(make_batch(2, base_offset=far), now_ms=NOW)
        assert log.segment_base_offsets == (far,)
        log.append_as_follower(make_batch(2, base_offset=far + 2**31), now_ms=NOW)
        assert log.segment_base_offsets == (far, far + 2)
        log.append_as_follower(make_batch(2, base_offset=far + 2**33), now_ms=NOW)
        assert log.segment_base_offsets == (far, far + 2, far + 2**33)
        assert log.read(far + 2, 100).records == make_batch(2, base_offset=far + 2**31)


class TestDeleteRecords:
    def test_records_below_are_gone_at_once_and_files_with_retention(self, log, harness, read_all) -> None:
        assert log.advance_log_start(50, high_watermark=120)
        assert not log.advance_log_start(49, high_watermark=120)
        assert [offset for offset, _ in read_all(log)] == list(range(50, 120))
        with pytest.raises(BrokerError) as caught:
            log.read(49, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        deletion = log.apply_retention(now_ms=NOW, high_watermark=120)
        assert deletion is not None
        assert log.segment_base_offsets[0] <= 50 < log.segment_base_offsets[1]
        assert log.log_start_offset == 50
        assert log.epochs.entries == ((2, 50),)

    def test_not_above_the_high_watermark(self, log) -> None:
        with pytest.raises(BrokerError, match="high watermark is 40") as caught:
            log.advance_log_start(41, high_watermark=40)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_up_to_the_end(self, log, read_all) -> None:
        log.advance_log_start(120, high_watermark=120)
        log.apply_retention(now_ms=NOW, high_watermark=120)
        assert read_all(log) == []
        assert (log.log_start_offset, log.log_end_offset) == (120, 120)


class TestRetention:
    def test_files_are_renamed_now_and_due_later(self, log, harness) -> None:
        log.config = LogConfig(retention_ms=1_000, file_delete_delay_ms=60)
        second = log.segment_base_offsets[1]
        deletion = log.apply_retention(now_ms=NOW + 10 * ((second - 1) // 3) + 1_001, high_watermark=120)
        assert deletion is not None
        assert deletion.due_ms == NOW + 10 * ((second - 1) // 3) + 1_061
        assert log.segment_base_offsets[0] == second == log.log_start_offset
        assert {Path(path).name for path in deletion.paths} == {
            f"{0:020d}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")
        }
        assert all(Path(path).exists() for path in deletion.paths)
        assert not harness.path(0).exists()

    def test_everything_may_expire_and_offsets_go_on(self, log, make_batch, read_all) -> None:
        log.apply_retention(now_ms=10**12, high_watermark=120)
        assert read_all(log) == []
        assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (120, 120, (120,))
        result = log.append_as_leader(make_batch(1), leader_epoch=2, now_ms=NOW)
        assert result.base_offset == 120

    def test_not_above_the_high_watermark(self, log) -> None:
        third = log.segment_base_offsets[2]
        log.apply_retention(now_ms=10**12, high_watermark=third)
        assert log.segment_base_offsets[0] == third

    def test_by_size(self, log) -> None:
        log.config = LogConfig(retention_bytes=2_000, retention_ms=-1)
        log.apply_retention(now_ms=NOW, high_watermark=120)
        assert 2_000 <= log.size_bytes < 2_000 + 1_024

    def test_nothing_expired_is_no_deletion(self, log) -> None:
        assert log.apply_retention(now_ms=NOW, high_watermark=120) is None

    def test_without_timestamps_the_time_of_writing_counts(self, harness, make_batch) -> None:
        log = harness.open()
        for _ in range(40):
            log.append_as_leader(make_batch(3, timestamps=[-1] * 3), leader_epoch=0, now_ms=NOW)
        written_ms = int(harness.path(0).stat().st_mtime * 1000)
        log.config = LogConfig(retention_ms=1_000)
        assert log.apply_retention(now_ms=written_ms + 900, high_watermark=120) is None
        os.utime(harness.path(0), (1, 1))
        log.apply_retention(now_ms=written_ms + 900, high_watermark=120)
        assert log.log_start_offset > 0


class TestTruncation:
    @pytest.mark.parametrize("offset", [119, 118, 117, 60, 3, 2, 1, 0])
    def test_to_an_offset(self, log, make_batch, read_all, offset: int) -> None:
        before = read_all(log)
        assert log.truncate_to(offset, now_ms=NOW)
        end = offset - offset % 3
        assert log.log_end_offset == end
        assert read_all(log) == before[:end]
        log.check_invariants()
        fill(log, make_batch, 10)
        assert log.log_end_offset == end + 30
        log.check_invariants()

    def test_to_the_end_or_beyond_is_nothing(self, log) -> None:
        assert not log.truncate_to(120, now_ms=NOW)
        assert not log.truncate_to(500, now_ms=NOW)
        assert log.log_end_offset == 120

    def test_epochs_follow(self, log, make_batch) -> None:
        log.append_as_leader(make_batch(3), leader_epoch=7, now_ms=NOW)
        assert log.epochs.entries == ((2, 0), (7, 120))
        log.truncate_to(120, now_ms=NOW)
        assert log.epochs.entries == ((2, 0),)
        assert Path(log.directory, "leader-epoch-checkpoint").read_text() == "0\n1\n2 0\n"

    def test_fully(self, log, make_batch, harness) -> None:
        log.truncate_fully_and_start_at(5_000, now_ms=NOW)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5_000, 5_000, 0)
        assert log.epochs.entries == ()
        log.append_as_follower(make_batch(1, base_offset=5_000), now_ms=NOW)
        assert sorted(p.name for p in harness.directory.glob("*.log")) == [f"{5_000:020d}.log"]

    def test_below_the_first_segment(self, log) -> None:
        log.apply_retention(now_ms=10**12, high_watermark=60)
        log.truncate_to(1, now_ms=NOW)
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)


class TestFlush:
    def test_moves_the_recovery_point(self, log) -> None:
        assert log.recovery_point == 0
        log.flush()
        assert log.recovery_point == 120
        assert not log.flush_due(NOW)

    def test_a_sealed_segment_is_due(self, log, make_batch) -> None:
        assert log.flush_due(NOW)
        log.flush()
        fill(log, make_batch, 20)
        assert log.flush_due(NOW)

    def test_flush_ms(self, harness, make_batch) -> None:
        harness.config = LogConfig(flush_ms=500)
        log = harness.open()
        assert not log.flush_due(10**9)
        log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=NOW)
        assert not log.flush_due(NOW + 499)
        assert log.flush_due(NOW + 500)

    def test_flush_messages_syncs_inside_the_append(self, harness, make_batch, faulty_disk) -> None:
        harness.disk = faulty_disk
        harness.config = LogConfig(flush_messages=5)
        log = harness.open()
        log.append_as_leader(make_batch(4), leader_epoch=0, now_ms=NOW)
        assert (log.recovery_point, faulty_disk.calls.count("fdatasync")) == (0, 0)
        log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=NOW)
        assert log.recovery_point == 5
        assert "fdatasync" in faulty_disk.calls

    def test_a_job_outlives_the_segments_it_flushes(self, log, harness) -> None:
        job = log.plan_flush()
        log.apply_retention(now_ms=10**12, high_watermark=120)
        for path in harness.directory.glob("*.deleted"):
            path.unlink()
        job.run()
        log.complete_flush(job)
        assert log.recovery_point == 120

    def test_a_flush_from_before_a_truncation_does_not_count(self, log, make_batch) -> None:
        job = log.plan_flush()
        log.truncate_to(60, now_ms=NOW)
        fill(log, make_batch, 40)
        job.run()
        log.complete_flush(job)
        assert log.recovery_point == 0
        entries = Path(log.directory, "leader-epoch-checkpoint").read_text()
        assert entries == "0\n1\n2 0\n"

    def test_no_descriptor_is_left(self, log) -> None:
        log.flush()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            log.flush()
        log.plan_flush().discard()
        assert len(os.listdir("/proc/self/fd")) == before

    def test_a_failed_sync_takes_the_dir_offline(self, harness, make_batch, faulty_disk) -> None:
        harness.disk = faulty_disk
        log = harness.open()
        fill(log, make_batch, 3)
        faulty_disk.errors["fdatasync"] = errno.EIO
        with pytest.raises(LogDirFailure, match="Input/output error"):
            log.flush()
        faulty_disk.errors.clear()
        assert log.recovery_point == 0
        with pytest.raises(LogDirFailure, match="offline"):
            log.read(0, 100)


class TestClose:
    """What an orderly stop costs: a broker has thousands of logs, and few were written to since they were flushed."""

    @pytest.fixture
    def reopened(self, log, harness, faulty_disk):
        """After an orderly stop, on a disk that counts."""
        log.close()
        harness.disk = faulty_disk
        reopened = harness.open(clean=True)
        faulty_disk.calls.clear()
        return reopened

    def test_a_log_that_nothing_happened_to_is_not_synced(self, reopened, faulty_disk) -> None:
        reopened.close()
        assert "fdatasync" not in faulty_disk.calls

    def test_a_new_log_without_records_is_not_synced(self, harness, faulty_disk) -> None:
        harness.disk = faulty_disk
        log = harness.open()
        log.close()
        assert "fdatasync" not in faulty_disk.calls

    @pytest.mark.parametrize("change", ["append", "truncate", "roll", "crash"])
    def test_any_change_is(self, reopened, harness, faulty_disk, make_batch, change) -> None:
        log = reopened
        match change:
            case "append":
                log.append_as_leader(make_batch(1), leader_epoch=2, now_ms=NOW)
            case "truncate":
                log.truncate_to(60, now_ms=NOW)
            case "roll":
                log.apply_retention(now_ms=10**12, high_watermark=120)
            case "crash":
                recovery_point = harness.crash(log)
                log = harness.open(recovery_point=recovery_point)
        faulty_disk.calls.clear()
        log.close()
        assert "fdatasync" in faulty_disk.calls


class TestFailingDisk:
    @pytest.fixture
    def log(self, harness, make_batch, faulty_disk):
        harness.disk = faulty_disk
        log = harness.open()
        fill(log, make_batch, 10)
        return log

    @pytest.mark.parametrize("room", [0, 1, 100])
    def test_a_full_disk_refuses_appends_and_serves_reads(self, log, make_batch, faulty_disk, read_all, room) -> None:
        before = read_all(log)
        for _ in range(3):
            faulty_disk.room = room
            with pytest.raises(DiskFull, match="orders-0") as caught:
                log.append_as_leader(make_batch(3), leader_epoch=3, now_ms=NOW)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert read_all(log) == before
            assert log.epochs.latest_epoch == 2
        faulty_disk.room = None
        log.check_invariants()
        assert log.append_as_leader(make_batch(3), leader_epoch=3, now_ms=NOW).base_offset == 30

    def test_full_during_a_roll(self, harness, log, make_batch, faulty_disk, read_all) -> None:
        before = read_all(log)
        log.config = LogConfig(segment_bytes=200)
        faulty_disk.room = 0
        with pytest.raises(DiskFull):
            log.append_as_leader(make_batch(3), leader_epoch=2, now_ms=NOW)
        assert read_all(log) == before
        faulty_disk.room = None
        fill(log, make_batch, 5)
        log.check_invariants()
        assert log.log_end_offset == 45

    @pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
    def test_a_failed_write_takes_the_dir_offline(self, log, make_batch, faulty_disk, number) -> None:
        faulty_disk.errors["writev"] = number
        with pytest.raises(LogDirFailure, match="append to orders-0"):
            log.append_as_leader(make_batch(3), leader_epoch=2, now_ms=NOW)
        faulty_disk.errors.clear()
        with pytest.raises(LogDirFailure) as caught:
            log.append_as_leader(make_batch(3), leader_epoch=2, now_ms=NOW)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_failed_undo_takes_the_dir_offline(self, log, make_batch, faulty_disk) -> None:
        faulty_disk.room = 50
        faulty_disk.errors["ftruncate"] = errno.EIO
        with pytest.raises(LogDirFailure):
            log.append_as_leader(make_batch(3), leader_epoch=2, now_ms=NOW)

    def test_a_failed_read_takes_the_dir_offline(self, log, faulty_disk) -> None:
        faulty_disk.errors["pread"] = errno.EIO
        with pytest.raises(LogDirFailure, match="read of orders-0"):
            log.read(0, 1_000)

    def test_bytes_lost_on_disk_are_a_corrupt_message(self, log, harness) -> None:
        with harness.path(0).open("r+b") as file:
            file.seek(8)
            file.write(b"\xff\xff\xff\xff")
        with pytest.raises(CorruptBatchError):
            log.read(0, 1_000)
        assert log.log_dir.failure is None

    def test_offsets_are_not_given_twice_because_of_damage(self, log, harness, make_batch) -> None:
        """A batch that an index entry names is damaged: the index is rebuilt up to there, the end stays."""
        log.flush()
        entry = harness.path(0, ".index").read_bytes()[:8]
        position = int.from_bytes(entry[4:], "big")
        with harness.path(0).open("r+b") as file:
            file.seek(position + 8)
            file.write(b"\xff\xff\xff\xff")
        offset = int.from_bytes(entry[:4], "big")
        for _ in range(2):
            with pytest.raises(CorruptBatchError):
                log.read(offset, 1_000)
        assert log.log_end_offset == 30
        assert log.append_as_leader(make_batch(1), leader_epoch=2, now_ms=NOW).base_offset == 30
