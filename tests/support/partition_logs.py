"""Fills a partition's log for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm_broker.log.partition.partition_log import PartitionLog

NOW = 1_000


def fill(
    log: PartitionLog,
    make_batch: Callable[..., bytes],
    count: int = 40,
    *,
    records: int = 3,
    leader_epoch: int = 2,
    **options: Any,
) -> None:
    """Appends `count` batches of a few records. The timestamps of each batch are 10 ms later than those of the previous
    batch."""
    for number in range(count):
        batch = make_batch(records, timestamps=[NOW + 10 * number] * records, **options)
        log.append_as_leader(batch, leader_epoch=leader_epoch, now_ms=NOW)
