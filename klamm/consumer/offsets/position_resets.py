"""Tells the log, the metrics and the user's callback that a consumer lost its place."""

from __future__ import annotations

import logging
from collections import deque

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.group.rebalance_reports import Invoke
from klamm.consumer.position_reset import LostPosition, PositionReset
from klamm.model import TopicPartition

logger = logging.getLogger(__name__)


class PositionResets:
    """Reports each reset once. The callback runs within a poll, before the poll returns records of the new position."""

    def __init__(self, config: ConsumerConfig, invoke: Invoke) -> None:
        self.resets_total = 0
        self.skipped_total = 0
        self._group_id = config.group_id
        self._callback = config.on_position_reset
        self._invoke = invoke
        self._undelivered: deque[PositionReset] = deque()

    @property
    def are_due(self) -> bool:
        """Whether the callback has to be called for a reset."""
        return bool(self._undelivered)

    def add(self, tp: TopicPartition, lost: LostPosition, new_position: int) -> None:
        """Logs and counts that the consumer of `tp` continues at `new_position`."""
        reset = PositionReset(tp, self._group_id, *lost, new_position)
        self.resets_total += 1
        self.skipped_total += reset.records_skipped
        logger.warning("a position was reset: %s", reset)
        if self._callback is not None:
            self._undelivered.append(reset)

    async def deliver(self) -> None:
        """Calls the callback for each reset it has not seen yet. Raises what the callback raises."""
        while self._undelivered:
            assert self._callback is not None, "a reset waits for a callback that does not exist"
            await self._invoke(self._callback, self._undelivered.popleft())
