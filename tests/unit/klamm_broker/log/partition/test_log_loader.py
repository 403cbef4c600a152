"""Tests opening a log after a crash or a clean stop: truncated records, rebuilt files, and untouched files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from klamm.records.header import iter_headers
from klamm_broker.log.log_config import LogConfig
from tests.support.partition_logs import fill


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


class TestTornTail:
    def test_a_log_that_was_cut_within_its_last_batch_is_truncated_before_it(
        self, harness, make_batch, read_all
    ) -> None:
        log = harness.open()
        fill(log, make_batch, 4, records=2)
        records = read_all(log)
        harness.crash(log)
        path = harness.path(0)
        whole = path.read_bytes()
        last = [position for position, _ in iter_headers(whole)][-1]
        for size in range(last, len(whole)):
            path.write_bytes(whole[:size])
            log = harness.open()
            assert read_all(log) == records[:6], size
            assert path.read_bytes() == whole[:last]
            assert log.log_end_offset == 6
            log.check_invariants()
            log.abandon()

    def test_a_log_with_a_flipped_bit_in_its_last_batch_is_truncated_before_it(
        self, harness, make_batch, read_all
    ) -> None:
        log = harness.open()
        fill(log, make_batch, 4, records=2)
        records = read_all(log)
        harness.crash(log)
        path = harness.path(0)
        whole = path.read_bytes()
        last = [position for position, _ in iter_headers(whole)][-1]
        rng = random.Random(7)
        for position in range(last, len(whole)):
            data = bytearray(whole)
            data[position] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            log = harness.open()
            # The checksum does not cover base offset and leader epoch, so a bit flip there may leave a valid batch.
            if position - last >= 16 or position - last in range(8, 12):
                assert read_all(log) == records[:6], position - last
                assert path.read_bytes() == whole[:last]
            else:
                assert read_all(log)[:6] == records[:6], position - last
            log.check_invariants()
            log.abandon()

    def test_zeros_after_the_last_batch_are_truncated(self, harness, make_batch, read_all) -> None:
        log = harness.open()
        fill(log, make_batch, 4, records=2)
        records = read_all(log)
        harness.crash(log)
        with harness.path(0).open("ab") as file:
            file.write(bytes(5_000))
        log = harness.open()
        assert read_all(log) == records
        fill(log, make_batch, 1, records=2)
        assert log.log_end_offset == 10

    def test_appends_continue_where_recovery_truncated_the_log(self, harness, make_batch, read_all) -> None:
        log = harness.open()
        fill(log, make_batch, 4, records=2)
        harness.crash(log)
        path = harness.path(0)
        path.write_bytes(path.read_bytes()[:-1])
        log = harness.open()
        fill(log, make_batch, 3, records=2)
        records = read_all(log)
        log.close()
        assert [offset for offset, _ in records] == list(range(12))
        assert read_all(harness.open(clean=True)) == records


class TestManySegments:
    @pytest.fixture
    def crashed(self, harness, make_batch, read_all):
        """Returns the records of a crashed log. 40 of its 80 records were flushed."""
        log = harness.open()
        fill(log, make_batch, 20, records=2)
        log.flusher.flush()
        fill(log, make_batch, 20, records=2)
        records = read_all(log)
        assert harness.crash(log) == 40
        return records

    def segment_of(self, harness, offset: int) -> Path:
        bases = sorted(int(path.stem) for path in harness.directory.glob("*.log"))
        return harness.path(max(base for base in bases if base <= offset))

    def test_damage_above_the_recovery_point_cuts_there(self, harness, crashed, read_all) -> None:
        path = self.segment_of(harness, 60)
        data = bytearray(path.read_bytes())
        positions = {header.base_offset: position for position, header in iter_headers(data)}
        data[positions[60] + 70] ^= 1
        path.write_bytes(data)
        log = harness.open(recovery_point=40)
        assert read_all(log) == crashed[:60]
        assert all(int(file.stem) <= 60 for file in harness.directory.glob("0*"))
        assert log.flusher.recovery_point == 40
        log.check_invariants()

    def test_a_segment_without_any_valid_batch_becomes_the_empty_active_segment(
        self, harness, crashed, read_all
    ) -> None:
        path = self.segment_of(harness, 60)
        path.write_bytes(b"\1" * 30)
        log = harness.open(recovery_point=40)
        assert log.log_end_offset == int(path.stem)
        assert read_all(log) == crashed[: int(path.stem)]

    @pytest.mark.parametrize("whole", [True, False])
    def test_a_segment_that_lost_whole_batches_ends_the_log(self, harness, crashed, read_all, whole) -> None:
        """Every byte is valid, but the records before those of the next segment are missing."""
        path = self.segment_of(harness, 60)
        positions = [position for position, _ in iter_headers(path.read_bytes())]
        path.write_bytes(path.read_bytes()[: 0 if whole else positions[-1]])
        log = harness.open(recovery_point=40)
        end = log.log_end_offset
        assert end == int(path.stem) + (0 if whole else 2 * (len(positions) - 1))
        assert read_all(log) == crashed[:end]
        log.check_invariants()

    def test_gaps_between_compacted_segments_are_no_loss(self, harness, crashed, read_all) -> None:
        harness.config = LogConfig(cleanup_policy=("compact",), index_interval_bytes=100)
        path = self.segment_of(harness, 60)
        positions = [position for position, _ in iter_headers(path.read_bytes())]
        path.write_bytes(path.read_bytes()[: positions[-1]])
        log = harness.open(recovery_point=40)
        gone = int(path.stem) + 2 * (len(positions) - 1)
        assert read_all(log) == crashed[:gone] + crashed[gone + 2 :]

    def test_nothing_below_the_recovery_point_is_read_or_changed(self, harness, crashed, faulty_disk) -> None:
        untouched = sorted(harness.directory.glob("0*"))
        untouched = [path for path in untouched if path < self.segment_of(harness, 40).with_suffix("")]
        before = {path: path.stat().st_mtime_ns for path in untouched}
        assert before
        harness.open(recovery_point=40)
        assert {path: path.stat().st_mtime_ns for path in untouched} == before

    def test_after_a_clean_stop_nothing_is_scanned(self, harness, crashed, make_batch, read_all) -> None:
        harness.open(recovery_point=40).close()
        path = self.segment_of(harness, 60)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1  # damages the record content and no header, so only a scan would notice
        path.write_bytes(data)
        log = harness.open(clean=True)
        assert log.log_end_offset == 80
        assert log.flusher.recovery_point == 80

    def test_damage_after_a_clean_stop_is_cut_all_the_same(self, harness, crashed, read_all) -> None:
        log = harness.open(recovery_point=40)
        active = harness.path(log.segments.base_offsets[-1])
        log.close()
        active.write_bytes(active.read_bytes()[:-5])
        log = harness.open(clean=True)
        assert read_all(log) == crashed[:78]
        log.check_invariants()

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize("content", [None, b"", b"\0" * 96, b"\1" * 24, b"abc"])
    @pytest.mark.parametrize("clean", [True, False])
    def test_only_damaged_indexes_are_rebuilt(self, harness, crashed, read_all, suffix, content, clean) -> None:
        log = harness.open(recovery_point=40)
        damaged, other = log.segments.base_offsets[1], log.segments.base_offsets[0]
        log.close()
        whole = files(harness.directory)
        path = harness.path(damaged, suffix)
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        times = {s: harness.path(other, s).stat().st_mtime_ns for s in (".index", ".timeindex")}
        log = harness.open(clean=clean, recovery_point=80)
        assert read_all(log) == crashed
        assert {s: harness.path(other, s).stat().st_mtime_ns for s in times} == times
        assert path.read_bytes() == whole[path.name]
        log.check_invariants()

    def test_orphan_indexes_are_removed(self, harness, crashed, read_all) -> None:
        for name in ("00000000000000009999.index", "00000000000000009999.timeindex"):
            (harness.directory / name).write_bytes(b"\0" * 24)
        assert read_all(harness.open()) == crashed
        assert not list(harness.directory.glob("*9999*"))

    def test_a_log_starts_at_the_checkpointed_log_start_offset(self, harness, crashed, read_all) -> None:
        assert read_all(harness.open(log_start_offset=33)) == crashed[33:]

    def test_a_log_that_ends_below_its_checkpointed_start_is_truncated_fully(self, harness, crashed, read_all) -> None:
        log = harness.open(log_start_offset=500)
        assert (log.log_start_offset, log.log_end_offset) == (500, 500)
        assert sorted(path.name for path in harness.directory.glob("*.log")) == [f"{500:020d}.log"]


class TestEpochs:
    @pytest.fixture
    def crashed(self, harness, make_batch):
        log = harness.open()
        for epoch in (1, 2, 5, 9):
            fill(log, make_batch, 10, records=2, leader_epoch=epoch)
            if epoch == 2:
                log.flusher.flush()
        harness.crash(log)
        return ((1, 0), (2, 20), (5, 40), (9, 60))

    def test_unflushed_epochs_come_from_the_batches(self, harness, crashed) -> None:
        assert harness.open(recovery_point=40).epochs.entries == crashed

    @pytest.mark.parametrize("content", [None, "", "rubbish", "0\n5\n1 0\n"])
    def test_without_a_valid_epoch_file_all_leader_epochs_are_rebuilt_from_the_batches(
        self, harness, crashed, content
    ) -> None:
        path = harness.directory / "leader-epoch-checkpoint"
        path.unlink()
        if content is not None:
            path.write_text(content)
        assert harness.open(recovery_point=40).epochs.entries == crashed

    def test_recovery_drops_leader_epochs_of_truncated_records(self, harness, crashed) -> None:
        for path in harness.directory.glob("*.log"):
            if int(path.stem) >= 60:
                path.unlink()
        log = harness.open(recovery_point=40)
        assert log.epochs.entries == tuple(entry for entry in crashed if entry[1] < log.log_end_offset)

    def test_epoch_file_entries_above_the_recovery_point_are_ignored(self, harness, crashed) -> None:
        """An epoch whose records were truncated before the crash must not survive them."""
        path = harness.directory / "leader-epoch-checkpoint"
        path.write_text("0\n3\n1 0\n2 20\n4 41\n")
        assert harness.open(recovery_point=40).epochs.entries == crashed

    def test_the_first_leader_epoch_starts_at_the_log_start_offset(self, harness, crashed) -> None:
        assert harness.open(log_start_offset=30).epochs.entries == ((2, 30), *crashed[2:])


class TestDirectories:
    def test_opening_a_new_directory_creates_an_empty_log(self, harness) -> None:
        log = harness.open()
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        names = {path.name for path in harness.directory.iterdir()}
        assert names == {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}

    def test_an_empty_log_survives_restarts(self, harness) -> None:
        for clean in (False, True, False):
            log = harness.open(clean=clean)
            log.close()
        assert log.log_end_offset == 0

    def test_opening_a_log_again_changes_no_file(self, harness, make_batch, read_all) -> None:
        log = harness.open()
        fill(log, make_batch, 20, records=2)
        log.close()
        before = files(harness.directory)
        harness.open(clean=True).close()
        assert files(harness.directory) == before
        harness.open(clean=False, recovery_point=0).close()
        assert files(harness.directory) == before
