"""Tests a metadata log on a disk that is really full, a small tmpfs. The tests need the right to mount."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from klamm_controller.log.database import DiskFullError
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.raft.effects import Persist
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry, ReplicaKey, SnapshotId, Voter
from tests.support.small_disk import small_disk
from tests.support.waiting import patience

ROOT = pathlib.Path(__file__).resolve().parents[3]
VOTERS = VoterSet([Voter(ReplicaKey(1, ""), "a:1")])
SNAPSHOT = SnapshotId(end_index=0, term=1)


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    with small_disk(tmp_path / "disk", 8) as path:
        yield path


def entry(index: int, data: bytes = bytes(10_000)) -> Persist:
    return Persist(
        persist_id=index,
        hard_state=None,
        snapshot_chunk=None,
        log_end_index=None,
        entries=(LogEntry(index, 1, EntryKind.DATA, data),),
        log_start_index=None,
    )


def write_until_full(store: RaftStore, data: bytes = bytes(10_000)) -> int:
    """Writes until the store has no space. Returns the index of the failed write."""
    for index in itertools.count():
        try:
            store.write([entry(index, data)])
        except DiskFullError:
            return index
    raise AssertionError


def take_all_space(disk: pathlib.Path) -> None:
    with (disk / "rest").open("ab", buffering=0) as rest, contextlib.suppress(OSError):
        while rest.write(bytes(4096)):
            pass


def test_a_store_on_a_full_disk_can_be_read_and_accepts_writes_when_there_is_space(
    disk: pathlib.Path,
) -> None:
    store = RaftStore(disk / "db")
    store.begin(VOTERS)
    store.write_snapshot_part(SNAPSHOT, 0, b"whole")
    store.name_snapshot(SNAPSHOT, VOTERS, 5)
    filler = disk / "filler"
    filler.write_bytes(bytes(4 << 20))
    refused = write_until_full(store)
    # If the test closed the database here, the error of the full disk would come a second later.
    assert store.read_chunk(SNAPSHOT, 0, 10) == (b"whole", True)
    filler.unlink()
    store.write([entry(refused)])
    store.close()
    reopened = RaftStore(disk / "db")
    assert [each.index for each in reopened.load().entries] == list(range(refused + 1))
    reopened.close()


def test_a_store_that_finds_no_space_when_reopened_can_be_read_and_written_later(disk: pathlib.Path) -> None:
    store = RaftStore(disk / "db")
    store.begin(VOTERS)
    store.write_snapshot_part(SNAPSHOT, 0, b"whole")
    store.name_snapshot(SNAPSHOT, VOTERS, 5)
    filler = disk / "filler"
    filler.write_bytes(bytes(4 << 20))
    written = write_until_full(store)
    for _attempt in range(5):
        take_all_space(disk)  # opening the store may have freed some space
        with contextlib.suppress(DiskFullError):
            store.write([entry(written)])
            written += 1
        assert store.read_chunk(SNAPSHOT, 0, 10) == (b"whole", True)
    filler.unlink()
    store.write([entry(written)])
    assert [each.index for each in store.load().entries] == list(range(written + 1))
    store.close()


def test_a_store_without_space_can_be_closed(disk: pathlib.Path) -> None:
    store = RaftStore(disk / "db")
    store.begin(VOTERS)
    (disk / "filler").write_bytes(bytes(4 << 20))
    refused = write_until_full(store)
    store.close()
    (disk / "filler").unlink()
    reopened = RaftStore(disk / "db")
    assert [entry.index for entry in reopened.load().entries] == list(range(refused))
    reopened.close()


LARGER_THAN_THE_WRITE_BUFFER = 1_100_000
ROUNDS = 12
"""The number of repetitions. In about one of ten, RocksDB would block a write until a flush that finds no space."""


def fill_again_and_again(disk: pathlib.Path) -> None:
    for number in range(ROUNDS):
        store = RaftStore(disk / str(number))
        store.begin(VOTERS)
        write_until_full(store, random.Random(number).randbytes(LARGER_THAN_THE_WRITE_BUFFER))
        store.close()
        shutil.rmtree(disk / str(number))


def test_a_write_does_not_wait_for_a_flush_that_finds_no_space(disk: pathlib.Path) -> None:
    """The test needs a separate process. A thread that waits holds the interpreter's lock, so nothing could stop it."""
    program = (
        "import pathlib, sys\n"
        "from tests.integration.controller.test_full_store import fill_again_and_again\n"
        "fill_again_and_again(pathlib.Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", program, disk]
    subprocess.run(command, cwd=ROOT, check=True, timeout=patience())
