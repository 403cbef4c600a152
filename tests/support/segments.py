"""Makes segments of a log for tests, and appends encoded batches to them."""

from __future__ import annotations

from pathlib import Path

from klamm.records.header import iter_headers
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.segment.record_set import AppendedBatch
from klamm_broker.log.segment.segment import Segment
from klamm_server.runtime.disk import Disk

CONFIG = LogConfig(index_interval_bytes=200, segment_bytes=10_000)


def new_segment(
    path: Path, disk: Disk | None = None, *, base: int = 0, config: LogConfig = CONFIG, file_suffix: str = ""
) -> Segment:
    return Segment(
        disk or Disk(), str(path), base, config=config, created_ms=5_000, roll_jitter_ms=0, file_suffix=file_suffix
    )


def append(segment: Segment, data: bytes) -> None:
    """Appends `data`, which has batches with their offsets."""
    headers = [header for _, header in iter_headers(data)]
    batches = [AppendedBatch(h.last_offset, h.max_timestamp_ms, h.size_bytes) for h in headers]
    segment.append([data], batches, len(data))
