"""Compacts a log from the first step to the last, for tests that need no event loop."""

from __future__ import annotations

from klamm_broker.log.cleaning.log_cleaning import CleaningStats, LogCleaning, Pacer
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk

DAY_MS = 24 * 60 * 60 * 1000


def compact(
    log: PartitionLog,
    *,
    disk: Disk | None = None,
    now_ms: int = 1_000,
    last_stable_offset: int | None = None,
    dedupe_buffer_bytes: int = 10**6,
    io_buffer_bytes: int = 4096,
    pace: Pacer = lambda size_bytes: None,
) -> CleaningStats:
    """Cleans the log once, whatever the dirty ratio. Replaced segments are removed at once."""
    disk = disk or Disk()
    stable = log.log_end_offset if last_stable_offset is None else last_stable_offset
    plan = log.compaction.plan(log.compaction.to_clean(last_stable_offset=stable, now_ms=now_ms))
    cleaning = LogCleaning(
        disk,
        plan,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        io_buffer_bytes=io_buffer_bytes,
        producer_id_expiration_ms=DAY_MS,
        pace=pace,
        now_ms=now_ms,
    )
    cleaning.build_offset_map()
    for group in cleaning.groups():
        cleaned = cleaning.clean(group)
        if cleaned is not None:
            assert log.replacement.has_planned(plan, group)
            disk.remove(log.replacement.replace(group, cleaned, now_ms=now_ms).paths)
    log.compaction.cleaned_to_offset = cleaning.end_offset
    cleaning.close()
    return cleaning.stats
