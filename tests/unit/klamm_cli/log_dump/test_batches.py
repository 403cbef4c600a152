"""Tests the dump of segments: whole, torn, and with every kind of damage."""

from __future__ import annotations

import pytest

from klamm.records import CompressionType, ControlRecordType, encode_batch, end_transaction_marker
from klamm_cli.log_dump.batches import dump_log
from klamm_cli.log_dump.decoders import decode_offsets, raw
from klamm_cli.log_dump.line import LineKind
from klamm_server.runtime.disk import Disk


def batch(base_offset, *values, **fields):
    return encode_batch(
        [(1_000 + base_offset, b"k", value, [("h", b"\xff")]) for value in values],
        base_offset=base_offset,
        partition_leader_epoch=7,
        **fields,
    )


THREE = [batch(0, b"a", b"b"), batch(2, b"c", compression=CompressionType.ZSTD), batch(3, b"d" * 500)]


@pytest.fixture
def dump(tmp_path):
    """Returns a function that dumps a segment with these bytes as lines."""

    def dump_bytes(data, *, is_newest=True, decoder=None):
        path = tmp_path / f"{0:020d}.log"
        path.write_bytes(data)
        return list(dump_log(Disk(), str(path), base_offset=0, is_newest=is_newest, decoder=decoder))

    return dump_bytes


def kinds(lines):
    return [line.kind.name for line in lines]


def offsets(lines):
    return [line.fields["baseOffset"] for line in lines if line.kind is LineKind.BATCH]


def damage_of(lines):
    return [(line.fields["position"], line.fields["text"]) for line in lines if line.kind is LineKind.DAMAGE]


def test_a_batch_is_a_line_with_the_fields_of_its_header(dump):
    data = batch(0, b"a", b"b", producer_id=5, producer_epoch=1, base_sequence=9, is_transactional=True)
    (line,) = dump(data)
    assert line.to_text() == (
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 9 lastSequence: 10 producerId: 5 producerEpoch: 1"
        " partitionLeaderEpoch: 7 isTransactional: true isControl: false position: 0 CreateTime: 1000"
        f" size: {len(data)} magic: 2 compresscodec: none crc: {line.fields['crc']} isvalid: true"
    )


def test_records_follow_their_batch(dump):
    lines = dump(b"".join(THREE), decoder=raw)
    assert kinds(lines) == ["BATCH", "RECORD", "RECORD", "BATCH", "RECORD", "BATCH", "RECORD"]
    assert lines[2].to_text() == (
        '| offset: 1 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: -1 headers: [["h","\\\\xff"]] key: k payload: b'
    )
    assert lines[4].fields["payload"] == b"c"


def test_a_marker_says_how_its_transaction_ended(dump):
    marker = end_transaction_marker(
        ControlRecordType.ABORT, producer_id=5, producer_epoch=1, coordinator_epoch=3, timestamp_ms=1
    )
    _, record = dump(marker, decoder=raw)
    assert (record.fields["endTxnMarker"], record.fields["coordinatorEpoch"]) == ("ABORT", 3)


@pytest.mark.parametrize("missing", [1, 100, 530])
def test_a_torn_tail_of_the_newest_segment_is_a_note(dump, missing):
    data = b"".join(THREE)
    lines = dump(data[:-missing])
    assert kinds(lines) == ["BATCH", "BATCH", "NOTE"]
    assert lines[2].fields["position"] == len(data) - len(THREE[2])
    assert "torn tail" in lines[2].to_text()


def test_a_torn_tail_of_an_older_segment_is_damage(dump):
    lines = dump(b"".join(THREE)[:-1], is_newest=False)
    assert kinds(lines) == ["BATCH", "BATCH", "DAMAGE"]


def test_zeros_at_the_end_of_the_newest_segment_are_a_note(dump):
    assert kinds(dump(b"".join(THREE) + bytes(5_000))) == ["BATCH", "BATCH", "BATCH", "NOTE"]
    assert kinds(dump(b"".join(THREE) + bytes(5_000), is_newest=False))[-1] == "DAMAGE"


def test_a_batch_whose_bytes_changed_is_not_valid_and_the_dump_goes_on(dump):
    data = bytearray(b"".join(THREE))
    data[len(THREE[0]) + 62] ^= 1
    lines = dump(bytes(data), decoder=raw)
    assert offsets(lines) == [0, 2, 3]
    assert [line.fields["isvalid"] for line in lines if line.kind is LineKind.BATCH] == [True, False, True]
    ((position, text),) = damage_of(lines)
    assert position == len(THREE[0])
    assert "CRC-32C" in text
    assert kinds(lines).count("RECORD") == 3


@pytest.mark.parametrize(
    ("at", "written", "said"),
    [
        (16, b"\x01", "magic 1"),
        (8, b"\xff\xff\xff\xff", "batch length -1"),
        (8, b"\x00\x00\x00\x05", "batch length 5"),
        (8, b"\x7f\x00\x00\x00", "takes 2130706444 bytes"),
    ],
)
def test_the_dump_continues_after_an_invalid_batch_header(dump, at, written, said):
    data = bytearray(b"".join(THREE))
    data[len(THREE[0]) + at : len(THREE[0]) + at + len(written)] = written
    lines = dump(bytes(data))
    assert offsets(lines) == [0, 3]
    ((position, text),) = damage_of(lines)
    assert position == len(THREE[0])
    assert text.startswith(f"{len(THREE[1])} bytes are no batch")
    assert said in text


def test_the_dump_continues_after_garbage_larger_than_one_read(dump):
    garbage = bytes(range(3, 256)) * 9_000 + b"\x02" * 1_000
    lines = dump(THREE[0] + garbage + THREE[1])
    assert offsets(lines)[0] == 0
    assert offsets(lines)[-1] == 2
    assert damage_of(lines)


def test_offsets_that_go_back_are_damage(dump):
    lines = dump(THREE[2] + THREE[0])
    assert damage_of(lines) == [(len(THREE[2]), "offset 0 where 4 or more is expected")]


def test_a_record_that_its_decoder_does_not_read_is_damage(dump):
    lines = dump(encode_batch([(1, b"\x00\x01", b"x", ())]), decoder=decode_offsets)
    assert kinds(lines) == ["BATCH", "DAMAGE"]
    assert "the record at offset 0" in lines[1].to_text()
