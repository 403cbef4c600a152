"""Tests the search for batches in a segment: against a list, by continuing readers, and without disk access."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from klamm.records.header import iter_headers
from klamm_broker.log.segment.segment_files import FileSlice
from tests.support.segments import append, new_segment


@pytest.mark.parametrize("max_bytes", [0, 1, 80, 200, 500, 1_000, 10_000])
@pytest.mark.parametrize("end_offset", [60, 31])
@pytest.mark.parametrize("min_one", [True, False])
def test_locate_finds_the_same_slice_as_a_scan_of_all_batches(
    filled, max_bytes: int, end_offset: int, min_one: bool
) -> None:
    segment, batches = filled
    spans, position = [], 0
    for batch in batches:
        ((_, header),) = iter_headers(batch)
        spans.append((position, position + len(batch), header.last_offset))
        position += len(batch)
    end_position = next((start for start, _, last in spans if last >= end_offset), position)
    for offset in range(60):
        start = next(start for start, _, last in spans if last >= offset)
        fitting = [end for s, end, _ in spans if s >= start and end <= min(start + max_bytes, end_position)]
        first_end = next(end for s, end, _ in spans if s == start)
        expected = max(fitting, default=start)
        if expected == start and min_one and first_end <= end_position:
            expected = first_end
        part = segment.reader.locate(offset, max_bytes, end_position, min_one=min_one)
        if start < end_position:
            assert part == FileSlice(start, expected - start), offset
        else:
            assert part is None or part.size_bytes == 0, offset
    assert segment.reader.locate(60, max_bytes, position, min_one=min_one) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_continuing_reader_locates_the_same_bytes_as_a_reader_of_a_reopened_segment(
    filled, make_batch, seed: int
) -> None:
    segment, _ = filled
    rng = random.Random(seed)
    positions = [0, 0, segment.next_offset]
    for _ in range(200):
        if rng.random() < 0.2:
            append(segment, make_batch(rng.randint(1, 3), base_offset=segment.next_offset))
        elif rng.random() < 0.05:
            segment.truncate_to(max(1, segment.next_offset - rng.randint(0, 9)))
        segment.write_indexes()
        fresh = new_segment(Path(segment.files.directory))
        fresh.open()
        reader = rng.randrange(len(positions))
        offset, max_bytes = min(positions[reader], segment.next_offset), rng.randint(1, 2_000)
        part = segment.reader.locate(offset, max_bytes, segment.files.size_bytes, min_one=True)
        assert part == fresh.reader.locate(offset, max_bytes, segment.files.size_bytes, min_one=True), (
            offset,
            max_bytes,
        )
        read = segment.files.read(part) if part is not None else b""
        positions[reader] = max((header.next_offset for _, header in iter_headers(read)), default=0)
        fresh.release()


def test_a_reader_at_the_log_end_locates_an_append_without_disk_access(tmp_path, make_batch, faulty_disk) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    for offset in range(50):
        append(segment, make_batch(1, base_offset=offset))
        faulty_disk.calls.clear()
        part = segment.reader.locate(offset, 1_000, segment.files.size_bytes, min_one=True)
        assert part is not None
        assert part.position + part.size_bytes == segment.files.size_bytes
        assert not faulty_disk.calls
    segment.release()
