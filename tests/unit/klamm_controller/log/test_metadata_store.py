from __future__ import annotations

import shutil

import pytest
from rocksdict import Options, Rdict

from klamm.errors import KlammError
from klamm.wire.v1.metadata_pb2 import ClusterRecord, MetadataBatch, MetadataRecord, NoOpRecord, ProducerIdsRecord
from klamm_controller.log.entry_codec import CorruptLogError, entry_key, snapshot_key
from klamm_controller.log.snapshot import RECORDS_PER_BATCH, image_of_snapshot, snapshot_batches
from klamm_controller.log.store import HardState, MetadataStore, last_term
from klamm_controller.recovery import image_of_log
from klamm_server.metadata.image import MetadataImage


def entry(base_index: int, count: int = 1, term: int = 1) -> MetadataBatch:
    records = [MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=base_index + n)) for n in range(count)]
    return MetadataBatch(term=term, base_index=base_index, end_index=base_index + count, records=records)


def entries(*sizes: int) -> list[MetadataBatch]:
    made: list[MetadataBatch] = []
    for size in sizes:
        made.append(entry(made[-1].end_index if made else 0, size))
    return made


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def load(path):
    store = MetadataStore(path)
    try:
        return store.load()
    finally:
        store.close()


def write(path, *batches):
    store = MetadataStore(path)
    for batch in batches:
        store.write_entries(batch)
    store.close()


def crash_copy(store_path, to):
    """What is on the disk while the store is open is what a killed process leaves."""
    shutil.copytree(store_path, to)
    return to


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
    stored = load(path)
    assert (stored.snapshot, stored.entries, last_term(stored)) == ((), (), 0)


def test_entries_and_hard_state_come_back(path):
    written = entries(1, 3, 2)
    store = MetadataStore(path)
    store.write_entries(written[:2])
    store.write_hard_state(HardState(term=4, voted_for=2))
    store.write_entries(written[2:])
    store.close()
    stored = load(path)
    assert list(stored.entries) == written
    assert stored.hard_state == HardState(term=4, voted_for=2)


def test_what_was_written_survives_a_kill(path, tmp_path):
    written = entries(*([2] * 50))
    store = MetadataStore(path)
    for one in written:
        store.write_entries([one])
    stored = load(crash_copy(path, tmp_path / "crashed"))
    store.close()
    assert list(stored.entries) == written


def wal_of(path):
    (newest, *_) = sorted(path.glob("*.log"), reverse=True)
    return newest


def test_a_torn_tail_is_cut(path, tmp_path):
    written = entries(*([1] * 20))
    store = MetadataStore(path)
    for one in written:
        store.write_entries([one])
    crashed = crash_copy(path, tmp_path / "crashed")
    store.close()
    wal = wal_of(crashed)
    wal.write_bytes(wal.read_bytes()[:-9])
    assert list(load(crashed).entries) == written[:-1]


@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_a_damaged_middle_of_the_write_ahead_log_refuses_to_open(path, tmp_path, where):
    store = MetadataStore(path)
    for one in entries(*([1] * 200)):
        store.write_entries([one])
    crashed = crash_copy(path, tmp_path / "crashed")
    store.close()
    wal = wal_of(crashed)
    data = bytearray(wal.read_bytes())
    data[int(len(data) * where)] ^= 0x10
    wal.write_bytes(data)
    with pytest.raises(CorruptLogError, match="damaged"):
        load(crashed)


def test_a_damaged_entry_refuses_to_open_and_is_named(path):
    write(path, entries(1, 2, 3))
    value = bytearray(raw(path, entry_key(1)))
    value[-1] ^= 1
    tamper(path, entry_key(1), bytes(value))
    with pytest.raises(CorruptLogError, match="the entry at index 1 fails its checksum"):
        load(path)


def test_a_missing_entry_refuses_to_open_and_is_named(path):
    write(path, entries(1, 2, 3))
    tamper(path, entry_key(1), None)
    with pytest.raises(CorruptLogError, match="the entry at index 1 is missing, the next one is 3"):
        load(path)


def test_a_store_of_another_format_is_refused(path):
    write(path, entries(1))
    tamper(path, b"mformat", b"2")
    with pytest.raises(KlammError, match="has format 2, this version reads 1"):
        MetadataStore(path)


def test_an_open_store_cannot_be_opened_again(path):
    store = MetadataStore(path)
    with pytest.raises(KlammError, match="cannot open"):
        MetadataStore(path)
    store.close()
    load(path)


def big_image(end_index: int) -> MetadataImage:
    settings = {f"name{n}": "x" * 20 for n in range(2 * RECORDS_PER_BATCH + 5)}
    return MetadataImage(
        cluster_id="c",
        end_index=end_index,
        brokers={},
        coordinators={},
        topics_by_name={},
        topics_by_id={},
        configs={(4, ""): settings},
        shards={},
        next_producer_id=3,
    )


def test_a_snapshot_has_marks_and_gives_the_image_back():
    image = big_image(4_567)
    batches = list(snapshot_batches(image, 9))
    assert len(batches) == 3
    assert [b.snapshot_begin for b in batches] == [True, False, False]
    assert [b.snapshot_end for b in batches] == [False, False, True]
    assert {(b.base_index, b.end_index, b.term) for b in batches} == {(4_567, 4_567, 9)}
    assert image_of_snapshot(batches) == image

    (only,) = snapshot_batches(MetadataImage.empty(), 1)
    assert only.snapshot_begin
    assert only.snapshot_end


def test_a_snapshot_replaces_the_entries_below_it_and_the_snapshot_before(path):
    store = MetadataStore(path)
    store.write_entries(entries(1, 3, 2, 2))
    store.write_snapshot(snapshot_batches(big_image(4), 1))
    store.write_snapshot(snapshot_batches(big_image(6), 2))
    store.close()
    stored = load(path)
    assert image_of_snapshot(stored.snapshot) == big_image(6)
    assert [e.base_index for e in stored.entries] == [6]
    assert raw(path, entry_key(1)) is None
    assert image_of_log(stored).end_index == 8
    assert last_term(stored) == 1


def test_after_a_snapshot_of_everything_the_log_goes_on(path):
    store = MetadataStore(path)
    store.write_entries(entries(6))
    store.write_snapshot(snapshot_batches(big_image(6), 5))
    store.close()
    assert last_term(load(path)) == 5
    write(path, [entry(6, 2, term=6)])
    stored = load(path)
    assert (image_of_log(stored).end_index, last_term(stored)) == (8, 6)


@pytest.mark.parametrize(("chunk", "said"), [(0, "chunk 0 .*missing"), (1, "chunk 1 .*missing"), (2, "ends too early")])
def test_a_snapshot_that_is_not_whole_refuses_to_open(path, chunk, said):
    store = MetadataStore(path)
    store.write_snapshot(snapshot_batches(big_image(6), 5))
    store.close()
    tamper(path, snapshot_key(6, chunk), None)
    with pytest.raises(CorruptLogError, match=said):
        load(path)


def test_entries_that_do_not_follow_the_snapshot_refuse_to_open(path):
    store = MetadataStore(path)
    store.write_snapshot(snapshot_batches(big_image(6), 5))
    store.write_entries([entry(7)])
    store.close()
    with pytest.raises(CorruptLogError, match="the entry at index 6 is missing"):
        load(path)


def test_a_replayed_log_is_its_snapshot_and_what_follows(path):
    cluster = MetadataRecord(cluster=ClusterRecord(cluster_id="c"))
    no_op = MetadataRecord(no_op=NoOpRecord())
    write(path, [MetadataBatch(base_index=0, end_index=2, records=[cluster, no_op])])
    image = image_of_log(load(path))
    assert (image.cluster_id, image.end_index) == ("c", 2)
