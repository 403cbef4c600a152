"""Tests the dump of indexes, and their check against the log."""

from __future__ import annotations

import pytest

from klamm.records import ControlRecordType, encode_batch, end_transaction_marker
from klamm_broker.log.segment.offset_index import OffsetIndex
from klamm_broker.log.segment.time_index import TimeIndex
from klamm_broker.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from klamm_cli.log_dump.indexes import dump_offset_index, dump_time_index, dump_transaction_index
from klamm_server.runtime.disk import Disk

BATCHES = [encode_batch([(1_000 * n, None, b"x", ())] * 2, base_offset=2 * n) for n in range(1, 5)]
STARTS = [sum(map(len, BATCHES[:n])) for n in range(4)]
LOG = b"".join(BATCHES)
BASE = 2


@pytest.fixture
def dump(tmp_path):
    """Returns a function that dumps an index with these bytes, verified against a log, as lines."""

    def lines(dump_index, data, log=LOG):
        index_path, log_path = tmp_path / "index", tmp_path / "log"
        index_path.write_bytes(data)
        log_path.write_bytes(log)
        found = dump_index(Disk(), str(index_path), base_offset=BASE, log_path=str(log_path))
        return [line.to_text().replace(f"{tmp_path}/", "") for line in found]

    return lines


def offset_index(*entries):
    index = OffsetIndex(BASE, 1_000)
    for offset, position in entries:
        index.append(offset, position)
    return index.unwritten()


def time_index(*entries):
    index = TimeIndex(BASE, 1_000)
    for timestamp_ms, offset in entries:
        index.append_if_later(timestamp_ms, offset)
    return index.unwritten()


def transaction_index(*entries):
    index = TransactionIndex(BASE)
    for entry in entries:
        index.append(AbortedTransaction(*entry))
    return index.unwritten()


def test_index_entries_that_agree_with_the_log_are_reported_as_valid(dump):
    assert dump(dump_offset_index, offset_index((5, STARTS[1]), (9, STARTS[3]))) == [
        f"offset: 5 position: {STARTS[1]}",
        f"offset: 9 position: {STARTS[3]}",
        "note: index: 2 entries agree with log",
    ]
    assert dump(dump_time_index, time_index((2_000, 5), (4_000, 8))) == [
        "timestamp: 2000 offset: 5",
        "timestamp: 4000 offset: 8",
        "note: index: 2 entries agree with log",
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ((5, STARTS[1] + 1), f"offset 5: no batch begins at position {STARTS[1] + 1}"),
        ((6, STARTS[1]), f"offset 6: the batch at position {STARTS[1]} ends with offset 5"),
        ((50, 100_000), "offset 50: no batch begins at position 100000"),
    ],
)
def test_an_offset_index_entry_that_contradicts_the_log_is_damage(dump, entry, said):
    assert dump(dump_offset_index, offset_index(entry))[1:] == [f"damage: index: {said}"]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([(2_001, 5)], "timestamp 2001: the batch with offset 5 has 2000 as its largest"),
        ([(9_000, 50)], "timestamp 9000: the log has no offset 50"),
    ],
)
def test_a_time_index_entry_that_contradicts_the_log_is_damage(dump, entries, said):
    assert dump(dump_time_index, time_index(*entries))[-1] == f"damage: index: {said}"


def test_a_time_index_entry_after_a_batch_with_a_later_timestamp_is_damage(dump):
    log = BATCHES[3].replace(BATCHES[3][:8], bytes(7) + b"\x02", 1) + BATCHES[1]
    found = dump(dump_time_index, time_index((2_000, 5)), log)
    assert found[-1] == "damage: index: timestamp 2000: a batch before offset 5 has 4000"


def test_an_abort_that_is_not_in_the_log_is_damage(dump):
    marker = end_transaction_marker(
        ControlRecordType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1, base_offset=4
    )
    sound = dump(dump_transaction_index, transaction_index((7, 2, 4, 2)), BATCHES[0] + marker)
    assert sound == [
        "producerId: 7 firstOffset: 2 lastOffset: 4 lastStableOffset: 2",
        "note: index: 1 entries agree with log",
    ]
    found = dump(dump_transaction_index, transaction_index((8, 2, 4, 2)), BATCHES[0] + marker)
    assert found[-1] == "damage: index: producer 8: the log has no abort marker of it at offset 4"


@pytest.mark.parametrize("dump_index", [dump_offset_index, dump_time_index, dump_transaction_index])
def test_an_index_that_does_not_parse_is_damage(dump, dump_index):
    (found,) = dump(dump_index, b"\xff" * 13)
    assert found.startswith("damage: index: the index has 13 bytes")


def test_an_index_of_a_damaged_log_cannot_be_verified(dump):
    data = bytearray(LOG)
    data[STARTS[2] + 16] = 1
    found = dump(dump_offset_index, offset_index((9, STARTS[3])), bytes(data))
    assert found[-1].startswith("damage: index: cannot be verified")


def test_an_entry_of_a_torn_batch_is_damage(dump):
    assert (
        dump(dump_offset_index, offset_index((5, STARTS[1])), LOG[:-30])[-1] == "note: index: 1 entries agree with log"
    )
    found = dump(dump_offset_index, offset_index((9, STARTS[3])), LOG[:-30])
    assert found[-1] == f"damage: index: offset 9: no batch begins at position {STARTS[3]}"
