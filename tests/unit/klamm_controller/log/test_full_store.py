"""A metadata log on a disk that is really full: a small tmpfs. Needs the right to mount."""

from __future__ import annotations

import itertools
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from klamm_controller.log.raft_store import DiskFullError, RaftStore
from klamm_controller.raft.effects import Persist
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry, ReplicaKey, SnapshotId, Voter

VOTERS = VoterSet([Voter(ReplicaKey(1, ""), "a:1")])
SNAPSHOT = SnapshotId(end_index=0, term=1)


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "klamm-test", path], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system needs the right to mount one: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def entry(index: int) -> Persist:
    return Persist(
        persist_id=index,
        hard_state=None,
        snapshot_chunk=None,
        log_end_index=None,
        entries=(LogEntry(index, 1, EntryKind.DATA, bytes(10_000)),),
        log_start_index=None,
    )


def write_until_full(store: RaftStore) -> int:
    """The index that found no space."""
    for index in itertools.count():
        try:
            store.write([entry(index)])
        except DiskFullError:
            return index
    raise AssertionError


def test_what_is_stored_can_be_read_while_there_is_no_space_and_written_to_when_there_is(
    small_disk: pathlib.Path,
) -> None:
    store = RaftStore(small_disk / "db")
    store.begin(VOTERS)
    store.write_snapshot_part(SNAPSHOT, 0, b"whole")
    store.name_snapshot(SNAPSHOT, VOTERS, 5)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(4 << 20))
    refused = write_until_full(store)
    # Closing the database here would hold the news of the full disk back by a second.
    assert store.read_chunk(SNAPSHOT, 0, 10) == (b"whole", True)
    filler.unlink()
    store.write([entry(refused)])
    store.close()
    reopened = RaftStore(small_disk / "db")
    assert [each.index for each in reopened.load().entries] == list(range(refused + 1))
    reopened.close()


def test_a_store_without_space_can_be_closed(small_disk: pathlib.Path) -> None:
    store = RaftStore(small_disk / "db")
    store.begin(VOTERS)
    (small_disk / "filler").write_bytes(bytes(4 << 20))
    refused = write_until_full(store)
    store.close()
    (small_disk / "filler").unlink()
    reopened = RaftStore(small_disk / "db")
    assert [each.index for each in reopened.load().entries] == list(range(refused))
    reopened.close()
