from __future__ import annotations

from dataclasses import replace

import pytest

from klamm_controller.log.entry_codec import CorruptLogError
from klamm_controller.log.snapshot import RECORDS_PER_BATCH, image_of_snapshot, snapshot_batches, snapshot_bytes
from klamm_server.metadata.image import MetadataImage


def big_image(end_index: int) -> MetadataImage:
    settings = {f"name{n}": "x" * 20 for n in range(2 * RECORDS_PER_BATCH + 5)}
    return replace(
        MetadataImage.empty(), cluster_id="c", end_index=end_index, configs={(4, ""): settings}, next_producer_id=3
    )


def test_a_snapshot_marks_its_first_and_last_batch():
    batches = list(snapshot_batches(big_image(4_567), 9))
    assert len(batches) == 3
    assert [b.snapshot_begin for b in batches] == [True, False, False]
    assert [b.snapshot_end for b in batches] == [False, False, True]
    assert {(b.base_index, b.end_index, b.term) for b in batches} == {(4_567, 4_567, 9)}

    (only,) = snapshot_batches(MetadataImage.empty(), 1)
    assert only.snapshot_begin
    assert only.snapshot_end


@pytest.mark.parametrize("part_bytes", [1_000, 77_777, 1 << 30])
def test_snapshot_bytes_split_at_any_position_give_the_same_image(part_bytes):
    image = big_image(4_567)
    data = b"".join(snapshot_bytes(image, 9))
    parts = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)]
    assert image_of_snapshot(parts) == image


def test_a_truncated_snapshot_is_refused():
    parts = list(snapshot_bytes(big_image(7), 1))
    with pytest.raises(CorruptLogError, match="its end is missing"):
        image_of_snapshot(parts[:-1])
    with pytest.raises(CorruptLogError, match="extra bytes at its end"):
        image_of_snapshot([*parts, b"\0\0\0\x09abc"])
