"""Tests `.snapshot` files: Kafka's bytes, and refusal of any damage."""

from __future__ import annotations

import errno
import logging
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records.header import SEQUENCE_MAX
from klamm_broker.log.producers.producer_snapshot import (
    CorruptSnapshotError,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
)
from klamm_broker.log.producers.producer_state import ProducerRow, ProducerStates, Run
from klamm_server.runtime.disk import Disk

ROWS = [
    ProducerRow(9, 3, Run(0, 100, 5, 7_000), 7_000),
    ProducerRow(9, 3, Run(5, 110, 2, 8_000), 8_000),
    ProducerRow(10, 0, Run(SEQUENCE_MAX, 115, 3, 9_000), 9_000, 4, 115),
    ProducerRow(11, 1, None, 9_500, 4),
]
runs = st.builds(
    Run, st.integers(0, SEQUENCE_MAX), st.integers(0, 2**62), st.integers(1, 2**30), st.integers(-1, 2**62)
)
producer_ids, epochs = st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)
coordinator_epochs, first_offsets = st.integers(-1, 2**31 - 1), st.integers(-1, 2**62)
rows = st.builds(
    lambda number, epoch, run, *rest: ProducerRow(number, epoch, run, run.timestamp_ms, *rest),
    producer_ids,
    epochs,
    runs,
    coordinator_epochs,
    first_offsets,
) | st.builds(ProducerRow, producer_ids, epochs, st.none(), st.integers(-1, 2**62), coordinator_epochs, first_offsets)


def states(*producers: ProducerRow) -> ProducerStates:
    made = ProducerStates()
    made.restore(producers)
    return made


@settings(deadline=None)
@given(st.lists(rows, max_size=8))
def test_a_producer_snapshot_survives_a_round_trip(written: list[ProducerRow]) -> None:
    assert decode_snapshot(encode_snapshot(written)) == written


def test_the_bytes_of_a_producer_snapshot_are_those_of_kafkas_schema() -> None:
    """The schema is `ProducerSnapshot.json`. Of a producer's rows, Kafka's reader keeps the last one."""
    data = encode_snapshot(ROWS)
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, crc, count) == (1, crc32c(data[6:]), 4)
    assert len(data) == 10 + 4 * (8 + 2 + 4 + 8 + 4 + 8 + 4 + 8)
    producer_id, epoch, last_sequence, last_offset = struct.unpack_from(">qhiq", data, 10 + 46)
    assert (producer_id, epoch, last_sequence, last_offset) == (9, 3, 6, 111)
    assert struct.unpack_from(">iqiq", data, 10 + 46 + 22) == (1, 8_000, -1, -1)
    assert struct.unpack_from(">qhi", data, 10 + 2 * 46) == (10, 0, 1)
    assert struct.unpack_from(">iqiq", data, 10 + 2 * 46 + 22) == (2, 9_000, 4, 115)
    assert struct.unpack_from(">qhiqiqiq", data, 10 + 3 * 46) == (11, 1, -1, -1, 0, 9_500, 4, -1)


@settings(deadline=None)
@given(st.integers(0, 8 * (10 + 4 * 46) - 1))
def test_a_producer_snapshot_with_one_wrong_bit_is_refused(bit: int) -> None:
    data = bytearray(encode_snapshot(ROWS))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(data))


@settings(deadline=None)
@given(st.integers(0, 10 + 4 * 46 - 1))
def test_a_truncated_producer_snapshot_is_refused(size: int) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(encode_snapshot(ROWS)[:size])


def test_the_latest_undamaged_producer_snapshot_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshots = ProducerSnapshots(Disk(), str(tmp_path))
    assert snapshots.read_latest(up_to=1_000) is None
    for offset, row in zip((110, 115, 118), ROWS[:3], strict=True):
        snapshots.write(offset, states(row))
    (tmp_path / "00000000000000000118.snapshot").write_bytes(b"")
    (tmp_path / "00000000000000000115.snapshot").write_bytes(b"\0\1torn off somewhere")
    with caplog.at_level(logging.WARNING):
        assert ProducerSnapshots(Disk(), str(tmp_path)).read_latest(up_to=1_000) == (110, ROWS[:1])
    assert "00000000000000000118.snapshot reason=" in caplog.text
    assert "00000000000000000115.snapshot reason=" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000110.snapshot"]


def test_only_snapshots_at_segment_starts_and_at_the_log_end_are_kept(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(Disk(), str(tmp_path))
    for offset in (10, 20, 25, 30, 34):
        snapshots.write(offset, states())
    snapshots.retain([0, 20, 30])
    assert set(snapshots.offsets) == {20, 30, 34}
    snapshots.truncate_to(33)
    assert set(ProducerSnapshots(Disk(), str(tmp_path)).offsets) == {20, 30}


def test_a_producer_snapshot_is_skipped_on_a_full_disk(faulty_disk, tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(faulty_disk, str(tmp_path))
    snapshots.write(10, states(*ROWS))
    faulty_disk.room = 3
    snapshots.write(20, states(*ROWS))
    assert ProducerSnapshots(Disk(), str(tmp_path)).read_latest(up_to=1_000) == (10, ROWS)
    faulty_disk.room = None
    faulty_disk.errors["pwrite"] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        snapshots.write(30, states(*ROWS))
