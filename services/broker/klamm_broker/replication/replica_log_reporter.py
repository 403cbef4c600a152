"""Reports the end offsets of logs without a leader to the controller, until they have one
(`replica/leaderless_logs.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from klamm.wire.v1.controller_rpc import ControllerStub
from klamm_broker.io.controller_calls import ControllerCalls
from klamm_broker.replica.leaderless_logs import LeaderlessLogs
from klamm_broker.replica.partition import Partition

log = logging.getLogger(__name__)

REPEAT_MS = 5_000
"""The shortest time between two reports. They repeat because a new active controller has no reports yet, or because the
topic's configs may have changed."""

_REPEAT_MS_PER_LOG = 0.5
"""The controller spends about 12 us on a report. With many logs, repeats must not keep it from other work."""


def repeat_ms(log_count: int) -> float:
    """Returns the time between two reports about `log_count` logs."""
    return max(REPEAT_MS, _REPEAT_MS_PER_LOG * log_count)


class ReplicaLogReporter:
    """Sends the reports while its broker is active: a fenced or stopping broker could not lead, so it reports nothing.

    `note` and `on_image` may be called at any time."""

    def __init__(
        self,
        calls: ControllerCalls,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        is_active: Callable[[], bool],
    ) -> None:
        self._calls = calls
        self._broker_epoch = broker_epoch
        self._is_active = is_active
        self._was_active = False
        self._logs = LeaderlessLogs(broker_id)
        self._is_due = asyncio.Event()

    def note(self, partition: Partition, *, is_hosted: bool) -> None:
        """Checks a partition whose metadata may have changed. If it has no leader, `run` reports at once."""
        if self._logs.note(partition, is_hosted=is_hosted):
            self._is_due.set()

    def on_image(self) -> None:
        """Called with each new image. If it makes this broker active, `run` reports at once."""
        is_active = self._is_active()
        if is_active and not self._was_active:
            self._is_due.set()
        self._was_active = is_active

    async def run(self) -> None:
        """Sends reports until it is cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(repeat_ms(len(self._logs)) / 1000 if len(self._logs) else None):
                    await self._is_due.wait()
            is_news = self._is_due.is_set()
            self._is_due.clear()
            if not len(self._logs) or not self._is_active():
                continue
            if is_news:
                log.info("reporting the end offsets of %d logs without a leader", len(self._logs))
            for request in self._logs.requests(self._broker_epoch()):
                if await self._calls.attempt(ControllerStub.report_replica_logs, request) is None:
                    self._is_due.set()
                    break
