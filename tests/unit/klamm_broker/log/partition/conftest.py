"""Provides a log over several segments."""

from __future__ import annotations

import pytest

from tests.support.partition_logs import fill


@pytest.fixture
def log(harness, make_batch):
    """Returns a log with 120 records in 40 batches over several segments."""
    log = harness.open()
    fill(log, make_batch)
    assert len(log.segments.base_offsets) > 5
    return log
