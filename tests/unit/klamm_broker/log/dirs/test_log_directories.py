"""Tests how log dirs are claimed: locks, other clusters, and missing dirs."""

from __future__ import annotations

import errno
import shutil
import uuid
from pathlib import Path

import pytest

from klamm_broker.log.files.partition_metadata import encode_uuid
from klamm_broker.log.files.storage_failure import LogDirError


def test_dirs_are_locked_while_in_use(manager, harness) -> None:
    with pytest.raises(LogDirError, match="is in use"):
        harness.start()
    manager.close(broker_epoch=1)
    harness.running.clear()
    harness.start()


def test_a_dir_of_another_cluster_stops_the_start_and_frees_the_locks(manager, harness) -> None:
    harness.crash(manager)
    with pytest.raises(LogDirError, match="another cluster"):
        harness.start(cluster_id="two")
    harness.start()


class TestMissingDir:
    """Tests a broker whose former log dir is not among its present ones."""

    @pytest.fixture
    def ids(self, manager, harness):
        ids = manager.directories.ids()
        harness.crash(manager)
        return ids

    def unmount(self, path: str) -> None:
        Path(path).rename(f"{path}.aside")
        Path(path).mkdir()

    def mount(self, path: str) -> None:
        shutil.rmtree(path)
        Path(f"{path}.aside").rename(path)

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_an_empty_dir_in_place_of_a_missing_dir_is_not_formatted(self, harness, ids, number) -> None:
        absent = harness.dirs[number]
        self.unmount(absent)
        for _ in range(2):
            again = harness.start()
            assert list(again.directories.offline()) == [absent]
            assert encode_uuid(ids[absent]) in again.directories.offline()[absent]
            assert set(again.directories.ids()) == set(harness.dirs) - {absent}
            assert not Path(absent, "meta.properties").exists()
            harness.crash(again)
        self.mount(absent)
        again = harness.start()
        assert again.directories.ids() == ids
        assert not again.directories.unreadable()

    def test_a_new_dir_stays_offline_while_a_dir_is_missing_because_it_may_replace_it(
        self, harness, ids, tmp_path
    ) -> None:
        harness.dirs = (*harness.dirs[:2], str(tmp_path / "d"))
        assert list(harness.start().directories.offline()) == [harness.dirs[2]]

    def test_a_dir_that_was_removed_from_the_config_is_reported_as_unreadable(self, harness, ids) -> None:
        removed = harness.dirs[2]
        harness.dirs = harness.dirs[:2]
        again = harness.start()
        assert not again.directories.offline()
        assert again.directories.unreadable() == [f"the log dir with directory.id {encode_uuid(ids[removed])}"]

    def test_a_new_dir_stays_offline_while_another_dir_cannot_be_opened(self, harness, ids, tmp_path) -> None:
        harness.dirs = (harness.dirs[0], harness.dirs[1], "/proc/no-such-dir", str(tmp_path / "d"))
        assert list(harness.start().directories.offline()) == list(harness.dirs[2:])

    def test_a_missing_dir_that_the_operator_declares_lost_is_replaced_for_good(self, harness, ids) -> None:
        lost = harness.dirs[1]
        shutil.rmtree(lost)
        again = harness.start(lost=frozenset({ids[lost]}))
        replaced = again.directories.ids()
        assert len(set(replaced.values()) | set(ids.values())) == 4
        harness.crash(again)
        again = harness.start()
        assert again.directories.ids() == replaced
        assert not again.directories.unreadable()

    def test_a_dir_that_is_declared_lost_but_present_is_still_used(self, harness, ids) -> None:
        lost = frozenset({ids[harness.dirs[1]]})
        harness.crash(harness.start(lost=lost))
        self.unmount(harness.dirs[1])
        assert list(harness.start().directories.offline()) == [harness.dirs[1]]

    def test_declaring_another_dir_lost_does_not_replace_a_missing_dir(self, harness, ids) -> None:
        self.unmount(harness.dirs[1])
        assert list(harness.start(lost=frozenset({uuid.UUID(int=9)})).directories.offline()) == [harness.dirs[1]]

    def test_an_added_dir_is_formatted_and_its_later_absence_is_noticed(self, harness, ids, tmp_path) -> None:
        harness.dirs = (str(tmp_path / "d"), *harness.dirs)
        again = harness.start()
        assert again.directories.ids().items() > ids.items()
        harness.crash(again)
        self.unmount(harness.dirs[0])
        assert list(harness.start().directories.offline()) == [harness.dirs[0]]

    def test_a_dir_whose_format_failed_does_not_count_as_missing(self, harness, ids, tmp_path, faulty_disk) -> None:
        harness.dirs = (*harness.dirs, str(tmp_path / "d"))
        faulty_disk.errors["replace"] = errno.EIO
        faulty_disk.only_below = harness.dirs[3]
        failed = harness.start()
        assert list(failed.directories.offline()) == [harness.dirs[3]]
        faulty_disk.errors.clear()
        harness.crash(failed)
        assert len(harness.start().directories.ids()) == 4

    def test_a_dir_can_be_added_while_the_disk_of_another_is_full(self, harness, ids, tmp_path, faulty_disk) -> None:
        harness.dirs = (*harness.dirs, str(tmp_path / "d"))
        faulty_disk.errors["pwrite"] = errno.ENOSPC
        faulty_disk.only_below = harness.dirs[0]
        again = harness.start()
        assert len(again.directories.ids()) == 4
        faulty_disk.errors.clear()
        harness.crash(again)
        self.unmount(harness.dirs[3])
        assert list(harness.start().directories.offline()) == [harness.dirs[3]]
