"""Tests the dump of whole directories: which files, in which order, with which end, and the small files."""

from __future__ import annotations

import json

import pytest

from klamm.records import encode_batch
from klamm_broker.log.files.checkpoints import encode_checkpoint
from klamm_broker.log.producers.producer_snapshot import encode_snapshot
from klamm_broker.log.producers.producer_state import ProducerRow, Run
from klamm_cli.log_dump.dump import DumpOptions, run
from klamm_cli.log_dump.files import data_file, data_files, is_newest_segment


@pytest.fixture
def dump(tmp_path):
    """Returns a function that dumps everything in tmp_path. It returns whether all is sound, and the text."""

    def run_dump(*paths, as_json=False, **options):
        written = []
        sound = run(map(str, paths or [tmp_path]), DumpOptions(**options), as_json=as_json, write=written.append)
        return sound, "".join(written).replace(f"{tmp_path}/", "")

    return run_dump


@pytest.fixture
def partition(tmp_path):
    directory = tmp_path / "orders-0"
    directory.mkdir()
    for base_offset in (0, 3):
        for suffix in (".index", ".timeindex", ".snapshot"):
            (directory / f"{base_offset:020d}{suffix}").touch()
        data = encode_batch([(1, None, b"x", ())], base_offset=base_offset)
        (directory / f"{base_offset:020d}.log").write_bytes(data)
    (directory / "leader-epoch-checkpoint").write_bytes(encode_checkpoint([(0, 0), (4, 2)]))
    (directory / "something.else").touch()
    return directory


def test_the_files_of_a_partition_come_segment_by_segment(partition):
    names = [file.path.rpartition("/")[2] for file in data_files(str(partition))]
    segment = ["{}.log", "{}.index", "{}.timeindex", "{}.snapshot"]
    expected = [one.format(f"{offset:020d}") for offset in (0, 3) for one in segment]
    assert names == ["leader-epoch-checkpoint", *expected]


def test_only_the_newest_segment_may_have_a_torn_tail(partition, dump):
    for path in partition.glob("*.log"):
        path.write_bytes(path.read_bytes() + b"torn")
    sound, text = dump(partition)
    assert not sound
    assert f"damage: orders-0/{0:020d}.log, position 69: 4 bytes are no batch" in text
    assert f"note: orders-0/{3:020d}.log, position 69: torn tail of 4 bytes" in text


@pytest.mark.parametrize("state", [".deleted", ".cleaned", ".swap"])
def test_a_segment_that_is_no_part_of_the_log_is_read_too(partition, state):
    path = partition / f"{9:020d}.index{state}"
    path.touch()
    file = data_file(str(path))
    assert file.log_path == str(partition / f"{9:020d}.log{state}")
    assert is_newest_segment(data_file(str(partition / f"{3:020d}.log")))


def test_a_damaged_file_ends_the_dump_of_that_file_only(partition, dump):
    sound, text = dump()
    assert not sound  # a server never writes an empty snapshot
    assert f"damage: orders-0/{0:020d}.snapshot: the file has 0 bytes; expected 10 or more" in text
    assert "epoch: 4 startOffset: 2" in text
    assert text.count("baseOffset") == 2


def test_a_producer_snapshot_is_dumped_with_one_line_for_each_producer(tmp_path, dump):
    rows = [ProducerRow(7, 1, Run(10, 100, 5, 1_000), 1_000, 3, 102), ProducerRow(8, 0, None, 2_000)]
    (tmp_path / f"{105:020d}.snapshot").write_bytes(encode_snapshot(rows))
    sound, text = dump()
    assert sound
    assert text.splitlines()[1:] == [
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: 3 currentTxnFirstOffset: 102 firstSequence: 10"
        " lastSequence: 14 firstOffset: 100 lastOffset: 104 timestamp: 1000",
        "producerId: 8 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: -1 firstSequence: -1"
        " lastSequence: -1 firstOffset: -1 lastOffset: -1 timestamp: 2000",
    ]


def test_checkpoints_and_meta_properties_are_dumped_and_a_damaged_checkpoint_is_reported(tmp_path, dump):
    (tmp_path / "replication-offset-checkpoint").write_bytes(encode_checkpoint([("a.b", 0, 12)]))
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n2\norders 0 1\n")
    (tmp_path / "meta.properties").write_text("version=1\n\nnode.id=3\n")
    sound, text = dump()
    assert not sound
    assert "property: node.id=3" in text
    assert "topic: a.b partition: 0 offset: 12" in text
    assert "1 rows, but its second line announces 2" in text


def test_a_json_dump_has_one_object_on_each_line(partition, dump):
    _, text = dump(partition / f"{0:020d}.log", as_json=True, records=True)
    file, batch, record = map(json.loads, text.splitlines())
    assert file == {"line": "file", "path": f"orders-0/{0:020d}.log"}
    assert (batch["line"], batch["isTransactional"], batch["isvalid"]) == ("batch", False, True)
    assert (record["key"], record["payload"]) == (None, "x")


def test_a_path_without_anything_to_dump_is_a_failure(tmp_path, dump):
    sound, text = dump()
    assert not sound
    assert "there is nothing that can be dumped; expected a segment's .log" in text
    (tmp_path / "notes.txt").touch()
    assert not dump(tmp_path / "notes.txt")[0]
