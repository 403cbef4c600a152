"""Waits until appends may be acknowledged, because they are replicated or synced."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.purgatory.purgatory import Parker
from klamm_broker.replica.delayed_produce import DelayedProduce, PendingAppend


async def wait_for_appends(
    produces: PurgatoryDriver, appends: Sequence[PendingAppend], timeout_ms: int, parker: Parker
) -> None:
    """Waits until every append has a result. Undecided appends get REQUEST_TIMED_OUT after the timeout, or immediately
    if the parker's user has no place in the purgatory."""
    waiting = [append for append in appends if not append.settle()]
    if not waiting:
        return
    keys = [append.partition.topic_partition for append in waiting]
    if timeout_ms <= 0 or not await produces.wait(
        lambda on_done: DelayedProduce(waiting, on_done), keys, timeout_ms, parker
    ):
        DelayedProduce(waiting, lambda: None).on_expiration()
