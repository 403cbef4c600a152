from __future__ import annotations

import random
import shutil

import pytest
from rocksdict import Options, Rdict

from klamm.errors import KlammError
from klamm_controller.log.database import DiskFullError
from klamm_controller.log.entry_codec import CorruptLogError, entry_key, snapshot_key
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.log.snapshot_saving import SnapshotSaving
from klamm_controller.raft.effects import HardState, Persist, WriteSnapshotChunk
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry, ReplicaKey, SnapshotId, Voter
from klamm_controller.raft.raft_log import START, StoredState

ME = ReplicaKey(1, "")
VOTERS = VoterSet([Voter(ME, "a:1")])
NO_HARD_STATE = HardState(term=0, voted_for=None)


def entries(base_index: int, count: int, term: int = 1) -> tuple[LogEntry, ...]:
    return tuple(LogEntry(base_index + n, term, EntryKind.DATA, b"%d" % (base_index + n)) for n in range(count))


def persist(**changes: object) -> Persist:
    values: dict[str, object] = {
        "persist_id": 1,
        "hard_state": None,
        "snapshot_chunk": None,
        "log_end_index": None,
        "entries": (),
        "log_start_index": None,
    }
    return Persist(**{**values, **changes})


def chunk(snapshot: SnapshotId, position: int, data: bytes, *, is_last: bool = False) -> Persist:
    part = WriteSnapshotChunk(
        snapshot=snapshot, voters=VOTERS.to_bytes(), position=position, data=data, is_last=is_last
    )
    return persist(snapshot_chunk=part)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def load(path) -> StoredState:
    store = RaftStore(path)
    try:
        store.begin(VOTERS)
        return store.load()
    finally:
        store.close()


def write(path, *persists) -> None:
    store = RaftStore(path)
    store.begin(VOTERS)
    for persist in persists:
        store.write([persist])
    store.close()


def save(store, snapshot, voters, parts) -> None:
    saving = SnapshotSaving(store, snapshot, voters, iter(parts))
    while not saving.advance():
        pass


def snapshot_of(path, snapshot: SnapshotId) -> bytes:
    store = RaftStore(path)
    try:
        return b"".join(store.read_snapshot(snapshot))
    finally:
        store.close()


def crash_copy(store_path, to):
    """Copies the open store's files, which are what a killed process leaves.

    The background compaction may remove files during the copy. A crash would come before or after the removal, so the
    copy starts again.
    """
    while True:
        try:
            return shutil.copytree(store_path, to)
        except shutil.Error:
            shutil.rmtree(to)


def tamper(path, key, value):
    db = Rdict(str(path), options=Options(raw_mode=True))
    if value is None:
        db.delete(key)
    else:
        db.put(key, value)
    db.close()


def raw(path, key):
    db = Rdict(str(path), options=Options(raw_mode=True))
    value = db.get(key)
    db.close()
    return value


def test_a_new_store_is_empty(path):
    assert load(path) == StoredState.empty(VOTERS)


def test_the_fields_of_a_write_are_applied_in_order(path):
    write(
        path,
        persist(entries=entries(0, 5), hard_state=HardState(term=1, voted_for=ME)),
        persist(log_end_index=3, entries=entries(3, 4, term=2), log_start_index=0),
        persist(hard_state=HardState(term=4, voted_for=None)),
    )
    stored = load(path)
    assert stored.entries == entries(0, 3) + entries(3, 4, term=2)
    assert stored.hard_state == HardState(term=4, voted_for=None)


def test_several_writes_share_one_sync(path):
    store = RaftStore(path)
    store.begin(VOTERS)
    store.write(
        [
            persist(entries=entries(0, 2)),
            persist(log_end_index=1),
            persist(entries=entries(1, 2, term=2), hard_state=HardState(term=2, voted_for=ME)),
        ]
    )
    store.close()
    stored = load(path)
    assert stored.entries == entries(0, 1) + entries(1, 2, term=2)
    assert stored.hard_state == HardState(term=2, voted_for=ME)


def test_written_entries_survive_a_crash(path, tmp_path):
    store = RaftStore(path)
    store.begin(VOTERS)
    for index in range(50):
        store.write([persist(entries=entries(index, 1))])
    stored = load(crash_copy(path, tmp_path / "crashed"))
    store.close()
    assert stored.entries == entries(0, 50)


def wal_of(path):
    (newest, *_) = sorted(path.glob("*.log"), reverse=True)
    return newest


def test_a_torn_tail_of_the_write_ahead_log_is_truncated(path, tmp_path):
    store = RaftStore(path)
    store.begin(VOTERS)
    for index in range(20):
        store.write([persist(entries=entries(index, 1))])
    crashed = crash_copy(path, tmp_path / "crashed")
    store.close()
    wal = wal_of(crashed)
    wal.write_bytes(wal.read_bytes()[:-9])
    assert load(crashed).entries == entries(0, 19)


@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_a_store_with_damage_inside_the_write_ahead_log_does_not_open(path, tmp_path, where):
    store = RaftStore(path)
    store.begin(VOTERS)
    for index in range(200):
        store.write([persist(entries=entries(index, 1))])
    crashed = crash_copy(path, tmp_path / "crashed")
    store.close()
    wal = wal_of(crashed)
    data = bytearray(wal.read_bytes())
    data[int(len(data) * where)] ^= 0x10
    wal.write_bytes(data)
    with pytest.raises(CorruptLogError, match="damaged"):
        load(crashed)


def test_a_store_with_a_damaged_entry_does_not_open_and_names_the_entry(path):
    write(path, persist(entries=entries(0, 3)))
    value = bytearray(raw(path, entry_key(1)))
    value[-1] ^= 1
    tamper(path, entry_key(1), bytes(value))
    with pytest.raises(CorruptLogError, match="the entry at index 1 fails its checksum"):
        load(path)


@pytest.mark.parametrize("index", [0, 1])
def test_a_store_with_a_missing_entry_does_not_open_and_names_the_entry(path, index):
    write(path, persist(entries=entries(0, 3)))
    tamper(path, entry_key(index), None)
    with pytest.raises(CorruptLogError, match=f"the entry at index {index} is missing, the next one is {index + 1}"):
        load(path)


def test_a_store_with_a_damaged_hard_state_does_not_open(path):
    write(path, persist(hard_state=HardState(term=3, voted_for=ME)))
    tamper(path, b"mhard-state", raw(path, b"mhard-state")[:-1])
    with pytest.raises(CorruptLogError, match="the hard-state fails its checksum"):
        load(path)


def test_a_store_of_another_format_is_refused(path):
    write(path, persist(entries=entries(0, 1)))
    tamper(path, b"mformat", b"9")
    with pytest.raises(KlammError, match="has format 9, this version reads 2 and 3"):
        RaftStore(path)


def test_the_first_voter_set_of_a_store_is_kept(path):
    store = RaftStore(path)
    assert store.bootstrap_voters() is None
    store.begin(VOTERS)
    store.begin(VoterSet([*VOTERS, Voter(ReplicaKey(2, ""), "b:1")]))
    assert store.bootstrap_voters() == VOTERS
    store.close()
    assert load(path).snapshot_voters == VOTERS


def directory_id(path) -> str:
    store = RaftStore(path)
    store.close()
    return store.directory_id


def test_each_new_store_gets_a_directory_id_and_keeps_it(path, tmp_path):
    first = directory_id(path)
    assert len(first) == 22
    write(path, persist(entries=entries(0, 1)))
    assert directory_id(path) == first
    assert directory_id(tmp_path / "other") != first
    shutil.rmtree(path)
    assert directory_id(path) != first, "an empty disk is another replica"


def test_a_store_without_its_directory_id_does_not_open(path):
    write(path)
    tamper(path, b"mdirectory-id", None)
    with pytest.raises(CorruptLogError, match="the directory-id is missing"):
        RaftStore(path)


def test_a_store_of_the_former_format_has_an_empty_directory_id(path):
    write(path, persist(entries=entries(0, 3), hard_state=HardState(term=1, voted_for=ME)))
    tamper(path, b"mformat", b"2")
    tamper(path, b"mdirectory-id", None)
    assert directory_id(path) == ""
    stored = load(path)
    assert (stored.entries, stored.hard_state.voted_for, stored.snapshot_voters) == (entries(0, 3), ME, VOTERS)


def test_an_open_store_cannot_be_opened_again(path):
    store = RaftStore(path)
    with pytest.raises(KlammError, match="cannot open"):
        RaftStore(path)
    store.close()
    load(path)


FOUR = SnapshotId(end_index=4, term=1)
SIX = SnapshotId(end_index=6, term=2)


def test_a_snapshot_replaces_an_older_one_but_never_a_newer_one(path):
    store = RaftStore(path)
    store.begin(VOTERS)
    store.write([persist(entries=entries(0, 8))])
    save(store, FOUR, VOTERS, [b"old"])
    save(store, SIX, VOTERS, [b"ne", b"w"])
    save(store, FOUR, VOTERS, [b"old again"])
    store.write([persist(log_start_index=5)])
    store.close()
    stored = load(path)
    assert (stored.snapshot, stored.snapshot_voters) == (SIX, VOTERS)
    assert stored.entries == entries(5, 3)
    assert snapshot_of(path, SIX) == b"new"
    assert raw(path, snapshot_key(FOUR, 0)) is None


@pytest.mark.parametrize(
    ("position", "said"), [(0, "position 0 .*missing"), (2, "position 2 .*missing"), (4, "is incomplete")]
)
def test_a_store_with_an_incomplete_snapshot_does_not_open(path, position, said):
    store = RaftStore(path)
    save(store, SIX, VOTERS, [b"01", b"23", b"45"])
    store.close()
    tamper(path, snapshot_key(SIX, position), None)
    with pytest.raises(CorruptLogError, match=said):
        load(path)


def test_an_unfinished_snapshot_is_ignored_and_removed(path):
    store = RaftStore(path)
    saving = SnapshotSaving(store, SIX, VOTERS, iter([b"01", b"23"]))
    assert [saving.advance(), saving.advance()] == [False, False]
    store.write([persist(entries=entries(0, 8))])
    store.close()
    assert load(path).snapshot == START
    assert raw(path, snapshot_key(SIX, 0)) is None


def test_a_snapshot_part_is_written_again_after_a_full_disk(path, monkeypatch):
    store = RaftStore(path)
    store.begin(VOTERS)
    store.write([persist(entries=entries(0, 6))])
    saving = SnapshotSaving(store, SIX, VOTERS, iter([b"01", b"23"]))
    assert not saving.advance()
    with monkeypatch.context() as full:
        full.setattr(store, "write_snapshot_part", lambda *part: (_ for _ in ()).throw(DiskFullError("no space")))
        with pytest.raises(DiskFullError):
            saving.advance()
    while not saving.advance():
        pass
    store.close()
    assert load(path).snapshot == SIX
    assert snapshot_of(path, SIX) == b"0123"


def test_a_store_with_a_gap_between_snapshot_and_entries_does_not_open(path):
    store = RaftStore(path)
    save(store, SIX, VOTERS, [b"x"])
    store.write([persist(entries=entries(7, 1))])
    store.close()
    with pytest.raises(CorruptLogError, match="the entry at index 6 is missing"):
        load(path)
    tamper(path, entry_key(7), None)
    write(path, persist(entries=entries(3, 2)))
    with pytest.raises(CorruptLogError, match="the entry at index 5 is missing"):
        load(path)


def test_a_received_snapshot_is_used_only_if_it_is_complete(path):
    write(path, persist(entries=entries(0, 2)), chunk(SIX, 0, b"01"), chunk(SIX, 2, b"23"))
    assert load(path).snapshot == START
    assert raw(path, snapshot_key(SIX, 0)) is None, "what is left of it is of no use"
    write(path, chunk(SIX, 0, b"0"), chunk(SIX, 0, b"ab"), chunk(SIX, 2, b"cd", is_last=True), persist(log_end_index=0))
    stored = load(path)
    assert (stored.snapshot, stored.entries) == (SIX, ())
    assert snapshot_of(path, SIX) == b"abcd"


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 100])
def test_a_snapshot_is_read_from_any_position(path, max_bytes):
    store = RaftStore(path)
    save(store, SIX, VOTERS, [b"01", b"2345", b"6"])
    read, is_last = b"", False
    while not is_last:
        data, is_last = store.read_chunk(SIX, len(read), max_bytes)
        assert 0 < len(data) <= max_bytes
        read += data
    assert read == b"0123456"
    assert store.read_chunk(FOUR, 0, 10) is None
    store.close()


class Model:
    """The required content of a store: every write that returned, completely."""

    def __init__(self) -> None:
        self.hard_state = NO_HARD_STATE
        self.entries: list[LogEntry] = []
        self.snapshot = START

    def random_persist(self, rng: random.Random) -> Persist:
        end_index = self.entries[-1].index + 1 if self.entries else self.snapshot.end_index
        term = self.hard_state.term + 1
        cut = None
        if rng.random() < 0.3 and end_index > self.snapshot.end_index:
            cut = end_index = rng.randrange(self.snapshot.end_index, end_index)
        added = entries(end_index, rng.randrange(4), term)
        start = rng.choice([None, self.snapshot.end_index])
        state = HardState(term=term, voted_for=rng.choice([None, ME])) if rng.random() < 0.5 else None
        return persist(log_end_index=cut, entries=added, log_start_index=start, hard_state=state)

    def apply(self, each: Persist) -> None:
        self.hard_state = each.hard_state or self.hard_state
        if each.log_end_index is not None:
            self.entries = [entry for entry in self.entries if entry.index < each.log_end_index]
        self.entries.extend(each.entries)
        if each.log_start_index is not None:
            self.entries = [entry for entry in self.entries if entry.index >= each.log_start_index]

    def check(self, stored: StoredState) -> None:
        assert (stored.hard_state, stored.snapshot) == (self.hard_state, self.snapshot)
        assert list(stored.entries) == self.entries


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_after_any_write_loses_no_synced_state(seed, tmp_path):
    rng = random.Random(seed)
    model = Model()
    path = tmp_path / "0"
    store = RaftStore(path)
    store.begin(VOTERS)
    for life in range(1, 6):
        for _ in range(rng.randrange(1, 15)):
            writes = [model.random_persist(rng)]
            model.apply(writes[0])
            if rng.random() < 0.3:
                writes.append(model.random_persist(rng))
                model.apply(writes[1])
            store.write(writes)
            if rng.random() < 0.2 and model.entries:
                last = rng.choice(model.entries)
                if last.index >= model.snapshot.end_index:
                    model.snapshot = SnapshotId(end_index=last.index + 1, term=last.term)
                    save(store, model.snapshot, VOTERS, [b"x" * rng.randrange(1, 9)])
        path = crash_copy(path, tmp_path / str(life))
        store.close()
        store = RaftStore(path)
        store.begin(VOTERS)
        model.check(store.load())
    store.close()
