"""Provides a segment with batches."""

from __future__ import annotations

import pytest

from tests.support.segments import append, new_segment


@pytest.fixture
def filled(tmp_path, make_batch):
    """Returns an open segment of 30 batches with one to three records each, and the batches."""
    segment = new_segment(tmp_path)
    segment.create()
    batches, offset = [], 0
    for number in range(30):
        count = number % 3 + 1
        batch = make_batch(count, base_offset=offset, timestamps=[1_000 + 10 * offset] * count)
        append(segment, batch)
        batches.append(batch)
        offset += count
    yield segment, batches
    segment.release()
