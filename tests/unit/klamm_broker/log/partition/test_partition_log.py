"""Tests a partition's log over several segments: append, delete, truncate, close, and failures of the disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.records.errors import CorruptBatchError
from klamm.records.header import iter_headers
from klamm_broker.log.files.storage_failure import DiskFull, LogDirFailure, UnexpectedOffset
from klamm_broker.log.log_config import LOG_APPEND_TIME, LogConfig
from tests.support.open_files import open_files
from tests.support.partition_logs import NOW, fill


def test_append_returns_the_offsets_of_the_records(harness, make_batch) -> None:
    log = harness.open()
    assert log.append_as_leader(make_batch(3), leader_epoch=0, now_ms=NOW) == (0, 2, -1, 0, False)
    assert log.append_as_leader(make_batch(2) + make_batch(1), leader_epoch=0, now_ms=NOW) == (3, 5, -1, 0, False)
    assert log.log_end_offset == 6


def test_append_reports_the_append_time(harness, make_batch) -> None:
    harness.config = LogConfig(message_timestamp_type=LOG_APPEND_TIME)
    log = harness.open()
    assert log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=77).log_append_time_ms == 77
    assert log.reader.find_timestamp(77) == (77, 0, 0)


def test_a_refused_append_changes_nothing(log, make_batch) -> None:
    before = (log.log_end_offset, log.segments.size_bytes)
    batch = bytearray(make_batch(2))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        log.append_as_leader(make_batch(1) + batch, leader_epoch=2, now_ms=NOW)
    assert (log.log_end_offset, log.segments.size_bytes) == before


def test_the_number_of_open_files_does_not_grow_with_the_segments(log, harness, read_all) -> None:
    assert len(read_all(log)) == 120
    assert 0 < open_files(harness.directory).total() <= 3 + 1


class TestFollower:
    def test_a_follower_stores_the_leaders_batches_byte_for_byte(self, log, tmp_path, harness, make_batch) -> None:
        sent = [log.reader.read(offset, 1).records for offset in range(0, 120, 3)]
        harness.directory = tmp_path / "copy-0"
        follower = harness.open()
        follower.append_as_follower(b"".join(sent[:25]), leader_epoch=9, now_ms=NOW)
        follower.append_as_follower(b"".join(sent[25:]), leader_epoch=9, now_ms=NOW)
        follower.check_invariants()
        assert [follower.reader.read(offset, 1).records for offset in range(0, 120, 3)] == sent
        assert follower.epochs.entries == log.epochs.entries
        assert len(follower.segments.base_offsets) > 5

    def test_a_followers_batches_may_have_offset_gaps_but_must_not_go_back(self, harness, make_batch) -> None:
        log = harness.open()
        log.append_as_follower(make_batch(2, base_offset=10, partition_leader_epoch=3), leader_epoch=9, now_ms=NOW)
        log.append_as_follower(make_batch(1, base_offset=20, partition_leader_epoch=5), leader_epoch=9, now_ms=NOW)
        assert log.log_end_offset == 21
        assert log.epochs.entries == ((3, 10), (5, 20))
        with pytest.raises(UnexpectedOffset, match="offset 19; expected 21"):
            log.append_as_follower(make_batch(1, base_offset=19), leader_epoch=9, now_ms=NOW)
        headers = [header.base_offset for _, header in iter_headers(log.reader.read(0, 10**6).records)]
        assert headers == [10, 20]

    def test_an_empty_followers_log_accepts_the_batch_that_holds_the_leaders_log_start(
        self, harness, make_batch, read_all
    ) -> None:
        log = harness.open()
        log.truncate_fully_and_start_at(15, now_ms=NOW)
        batch = make_batch(10, base_offset=10, partition_leader_epoch=3)
        log.append_as_follower(batch, leader_epoch=9, now_ms=NOW)
        assert (log.log_start_offset, log.log_end_offset) == (15, 20)
        assert [offset for offset, _ in read_all(log)] == [15, 16, 17, 18, 19]
        log.check_invariants()
        with pytest.raises(UnexpectedOffset):
            log.append_as_follower(batch, leader_epoch=9, now_ms=NOW)

    def test_a_follower_appends_nothing_of_a_later_epoch_than_its_leaders(self, harness, make_batch) -> None:
        """A former leader may send the file of its log while it appends to it as a follower."""
        log = harness.open()
        old = make_batch(2, base_offset=10, partition_leader_epoch=3)
        new = make_batch(1, base_offset=12, partition_leader_epoch=5)
        log.append_as_follower(old + new + old, leader_epoch=4, now_ms=NOW)
        assert log.log_end_offset == 12
        assert log.append_as_follower(new, leader_epoch=4, now_ms=NOW) is None
        assert log.log_end_offset == 12
        assert log.epochs.entries == ((3, 10),)
        log.append_as_follower(new, leader_epoch=5, now_ms=NOW)
        assert log.epochs.entries == ((3, 10), (5, 12))

    def test_an_empty_followers_log_does_not_restart_at_a_batch_of_a_later_epoch(self, harness, make_batch) -> None:
        log = harness.open()
        log.truncate_fully_and_start_at(15, now_ms=NOW)
        batch = make_batch(10, base_offset=10, partition_leader_epoch=3)
        assert log.append_as_follower(batch, leader_epoch=2, now_ms=NOW) is None
        assert (log.log_start_offset, log.log_end_offset) == (15, 15)

    def test_an_offset_too_far_from_the_segments_base_rolls_a_segment(self, harness, make_batch) -> None:
        log = harness.open()
        far = 2**33
        log.append_as_follower(make_batch(2, base_offset=far), leader_epoch=9, now_ms=NOW)
        assert log.segments.base_offsets == (far,)
        log.append_as_follower(make_batch(2, base_offset=far + 2**31), leader_epoch=9, now_ms=NOW)
        assert log.segments.base_offsets == (far, far + 2)
        log.append_as_follower(make_batch(2, base_offset=far + 2**33), leader_epoch=9, now_ms=NOW)
        assert log.segments.base_offsets == (far, far + 2, far + 2**33)
        assert log.reader.read(far + 2, 100).records == make_batch(2, base_offset=far + 2**31)


class TestDeleteRecords:
    def test_deleted_records_are_unreadable_at_once_and_retention_removes_their_files(
        self, log, harness, read_all
    ) -> None:
        assert log.advance_log_start(50, high_watermark=120)
        assert not log.advance_log_start(49, high_watermark=120)
        assert [offset for offset, _ in read_all(log)] == list(range(50, 120))
        with pytest.raises(BrokerError) as caught:
            log.reader.read(49, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        deletion = log.retention.apply(now_ms=NOW, high_watermark=120)
        assert deletion is not None
        assert log.segments.base_offsets[0] <= 50 < log.segments.base_offsets[1]
        assert log.log_start_offset == 50
        assert log.epochs.entries == ((2, 50),)

    def test_records_above_the_high_watermark_cannot_be_deleted(self, log) -> None:
        with pytest.raises(BrokerError, match="expected at most the high watermark 40") as caught:
            log.advance_log_start(41, high_watermark=40)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_all_records_can_be_deleted_up_to_the_log_end(self, log, read_all) -> None:
        log.advance_log_start(120, high_watermark=120)
        log.retention.apply(now_ms=NOW, high_watermark=120)
        assert read_all(log) == []
        assert (log.log_start_offset, log.log_end_offset) == (120, 120)


class TestTruncation:
    @pytest.mark.parametrize("offset", [119, 118, 117, 60, 3, 2, 1, 0])
    def test_truncation_to_an_offset_drops_the_whole_batch_that_holds_it(
        self, log, make_batch, read_all, offset: int
    ) -> None:
        before = read_all(log)
        assert log.truncate_to(offset, now_ms=NOW)
        end = offset - offset % 3
        assert log.log_end_offset == end
        assert read_all(log) == before[:end]
        log.check_invariants()
        fill(log, make_batch, 10)
        assert log.log_end_offset == end + 30
        log.check_invariants()

    def test_truncation_to_the_log_end_or_beyond_changes_nothing(self, log) -> None:
        assert not log.truncate_to(120, now_ms=NOW)
        assert not log.truncate_to(500, now_ms=NOW)
        assert log.log_end_offset == 120

    def test_truncation_drops_the_leader_epochs_of_truncated_records(self, log, make_batch) -> None:
        log.append_as_leader(make_batch(3), leader_epoch=7, now_ms=NOW)
        assert log.epochs.entries == ((2, 0), (7, 120))
        log.truncate_to(120, now_ms=NOW)
        assert log.epochs.entries == ((2, 0),)
        assert Path(log.directory, "leader-epoch-checkpoint").read_text() == "0\n1\n2 0\n"

    def test_a_full_truncation_starts_an_empty_log_at_the_given_offset(self, log, make_batch, harness) -> None:
        log.truncate_fully_and_start_at(5_000, now_ms=NOW)
        assert (log.log_start_offset, log.log_end_offset, log.segments.size_bytes) == (5_000, 5_000, 0)
        assert log.epochs.entries == ()
        log.append_as_follower(make_batch(1, base_offset=5_000), leader_epoch=9, now_ms=NOW)
        assert sorted(p.name for p in harness.directory.glob("*.log")) == [f"{5_000:020d}.log"]

    def test_truncation_below_the_first_segment_leaves_an_empty_log_at_that_offset(self, log) -> None:
        log.retention.apply(now_ms=10**12, high_watermark=60)
        log.truncate_to(1, now_ms=NOW)
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)


class TestClose:
    """Tests the cost of an orderly stop. A broker has thousands of logs, few of them changed since their last flush."""

    @pytest.fixture
    def reopened(self, log, harness, faulty_disk):
        """Returns the log after an orderly stop, on a disk that counts its operations."""
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
    def test_a_log_that_has_changed_is_synced_when_it_closes(
        self, reopened, harness, faulty_disk, make_batch, change
    ) -> None:
        log = reopened
        match change:
            case "append":
                log.append_as_leader(make_batch(1), leader_epoch=2, now_ms=NOW)
            case "truncate":
                log.truncate_to(60, now_ms=NOW)
            case "roll":
                log.retention.apply(now_ms=10**12, high_watermark=120)
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

    def test_a_batch_after_one_that_a_full_disk_refused_is_refused_like_it(self, log, make_batch) -> None:
        """librdkafka sends its batches of all partitions under a new epoch after OUT_OF_ORDER_SEQUENCE_NUMBER."""
        log.append_as_leader(
            make_batch(1, producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=2, now_ms=NOW
        )
        after_a_gap = make_batch(1, producer_id=7, producer_epoch=0, base_sequence=2)
        log.log_dir.is_full = True
        with pytest.raises(DiskFull, match=r"no room for an earlier batch on the disk .* append to orders-0"):
            log.append_as_leader(after_a_gap, leader_epoch=2, now_ms=NOW)
        log.log_dir.is_full = False
        with pytest.raises(BrokerError) as caught:
            log.append_as_leader(after_a_gap, leader_epoch=2, now_ms=NOW)
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_disk_that_is_full_during_a_roll_refuses_the_append_and_keeps_the_log(
        self, harness, log, make_batch, faulty_disk, read_all
    ) -> None:
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

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
    def test_a_lack_of_file_descriptors_refuses_the_operation_and_the_dir_stays_online(
        self, log, make_batch, faulty_disk, read_all, number
    ) -> None:
        """Clients can use up the descriptors with connections, so it says nothing about the disk."""
        before = read_all(log)
        log.config = LogConfig(segment_bytes=200)
        faulty_disk.errors["open"] = number
        with pytest.raises(DiskFull, match="too many open files"):
            log.append_as_leader(make_batch(3), leader_epoch=2, now_ms=NOW)  # begins a new segment
        faulty_disk.errors.clear()
        assert log.log_dir.failure is None
        assert read_all(log) == before
        fill(log, make_batch, 5)
        log.check_invariants()

    def test_a_failed_undo_of_a_partial_write_takes_the_dir_offline(self, log, make_batch, faulty_disk) -> None:
        faulty_disk.room = 50
        faulty_disk.errors["ftruncate"] = errno.EIO
        with pytest.raises(LogDirFailure):
            log.append_as_leader(make_batch(3), leader_epoch=2, now_ms=NOW)

    def test_a_failed_read_takes_the_dir_offline(self, log, faulty_disk) -> None:
        faulty_disk.errors["pread"] = errno.EIO
        with pytest.raises(LogDirFailure, match="read of orders-0"):
            log.reader.read(0, 1_000)

    def test_bytes_lost_on_disk_are_a_corrupt_message(self, log, harness) -> None:
        with harness.path(0).open("r+b") as file:
            file.seek(8)
            file.write(b"\xff\xff\xff\xff")
        with pytest.raises(CorruptBatchError):
            log.reader.read(0, 1_000)
        assert log.log_dir.failure is None

    def test_the_log_end_stays_when_a_batch_is_damaged_so_that_no_offset_is_assigned_twice(
        self, log, harness, make_batch
    ) -> None:
        """The damaged batch has an index entry. The index is rebuilt up to this batch, and the log end stays."""
        log.flusher.flush()
        entry = harness.path(0, ".index").read_bytes()[:8]
        position = int.from_bytes(entry[4:], "big")
        with harness.path(0).open("r+b") as file:
            file.seek(position + 8)
            file.write(b"\xff\xff\xff\xff")
        offset = int.from_bytes(entry[:4], "big")
        for _ in range(2):
            with pytest.raises(CorruptBatchError):
                log.reader.read(offset, 1_000)
        assert log.log_end_offset == 30
        assert log.append_as_leader(make_batch(1), leader_epoch=2, now_ms=NOW).base_offset == 30
