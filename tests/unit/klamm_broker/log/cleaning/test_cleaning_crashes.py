"""Tests a kill, a power failure or a full disk during a cleaning: the log has its old segments or new ones."""

from __future__ import annotations

import errno
import itertools
import shutil
from pathlib import Path
from typing import Any

from klamm_broker.log.files.storage_failure import DiskFull, LogDirFailure
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk
from tests.support.cleaning_steps import compact
from tests.support.compacted_log import CONFIG, NOW, append, pairs, seal
from tests.support.mortal_disk import Killed, MortalDisk


class TestCrashes:
    def fill(self, log: PartitionLog) -> None:
        for number in range(7):
            append(log, [(b"k%d" % (number % 3), b"%d" % number), (b"t%d" % number, None)], roll=number % 2 == 1)
        seal(log)

    def test_a_crash_at_any_moment_of_a_cleaning_leaves_the_old_segments_or_the_new_one(self, harness) -> None:
        harness.config = CONFIG
        log = harness.open(now_ms=NOW)
        self.fill(log)
        old = pairs(log)
        saved = harness.root / "saved"
        log.close()
        shutil.copytree(harness.directory, saved)
        outcomes = []
        for operations in itertools.count():
            shutil.rmtree(harness.directory)
            shutil.copytree(saved, harness.directory)
            disk = harness.disk = MortalDisk()
            log = harness.open(clean=True, now_ms=NOW)
            disk.operations_left = operations
            try:
                compact(log, disk=disk, now_ms=NOW)
                killed = False
            except Killed:
                killed = True
            log.abandon()
            harness.disk = Disk()
            log = harness.open(clean=False, recovery_point=log.flusher.recovery_point, now_ms=NOW)
            found = pairs(log)
            outcomes.append(found)
            assert found == old or found == outcomes[-1] == self.expected(old), (operations, found)
            leftovers = {".cleaned", ".swap", ".deleted"}
            assert not [path for path in harness.directory.iterdir() if path.suffix in leftovers]
            log.check_invariants()
            log.close()
            if not killed:
                break
        first_new = next(number for number, found in enumerate(outcomes) if found != old)
        assert outcomes == [old] * first_new + [self.expected(old)] * (len(outcomes) - first_new)
        assert len(outcomes) - first_new > 10, "kills while the segments are being swapped"

    def expected(self, old: list[Any]) -> list[Any]:
        last = {key: offset for offset, key, _ in old}
        return [record for record in old if last[record[1]] == record[0]]

    def test_a_cleaned_segment_is_synced_before_it_is_renamed(self, harness) -> None:
        """The new segment is synced before it is announced."""
        harness.config = CONFIG
        log = harness.open(now_ms=NOW)
        self.fill(log)
        events: list[str] = []

        class Watched(Disk):
            def sync_path(self, path: str) -> None:
                events.append(f"sync {Path(path).name}")
                super().sync_path(path)

            def fsync_directory(self, path: str) -> None:
                events.append("sync directory")
                super().fsync_directory(path)

            def replace(self, source: str, target: str) -> None:  # type: ignore[override]
                events.append(f"rename {Path(target).name}")
                super().replace(source, target)

        log.segments.disk = watched = Watched()
        compact(log, disk=watched, now_ms=NOW)
        base = "0" * 20
        synced = {f"sync {base}.{kind}.cleaned" for kind in ("log", "index", "timeindex")}
        assert set(events[:3]) == synced
        assert events[3] == "sync directory"
        assert events[4:7] == [f"rename {base}.{kind}.swap" for kind in ("index", "timeindex", "log")]
        assert events[-3:] == [f"rename {base}.{kind}" for kind in ("log", "timeindex", "index")]

    def test_a_full_disk_during_a_cleaning_changes_nothing_or_takes_the_dir_offline(self, harness) -> None:
        harness.config = CONFIG
        log = harness.open(now_ms=NOW)
        self.fill(log)
        log.close()
        saved = harness.root / "saved"
        shutil.copytree(harness.directory, saved)
        outcomes = set()
        for operations in itertools.count():
            shutil.rmtree(harness.directory)
            shutil.copytree(saved, harness.directory)
            disk = harness.disk = MortalDisk()
            disk.errno = errno.ENOSPC
            log = harness.open(clean=True, now_ms=NOW)
            old = pairs(log)
            disk.operations_left = operations
            try:
                compact(log, disk=disk, now_ms=NOW)
                outcomes.add("done")
                break
            except (OSError, DiskFull):
                outcomes.add("refused")
                assert pairs(log) == old
                log.check_invariants()
                log.close()
                assert {path.name for path in harness.directory.iterdir()} == {path.name for path in saved.iterdir()}
            except LogDirFailure:
                outcomes.add("offline")
                log.abandon()
                harness.log_dir.failure = None
                harness.disk = Disk()
                log = harness.open(recovery_point=log.flusher.recovery_point, now_ms=NOW)
                assert pairs(log) == self.expected(old)
                log.abandon()
        assert outcomes == {"refused", "offline", "done"}
