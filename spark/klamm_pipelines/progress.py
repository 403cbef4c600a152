"""Reports the progress of a query: logs a line for each micro-batch, and adds up the counters."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

log = logging.getLogger(__name__)


class ProgressListener(StreamingQueryListener):
    """Listens to the queries with one name. Spark calls the listener on a separate thread."""

    def __init__(self, query_name: str, wake: threading.Event) -> None:
        self._name = query_name
        self._run_ids: set[str] = set()
        self._counts: Counter[str] = Counter()
        self.wake = wake
        """Set when the query has ended, or has to be stopped."""
        self.ended = threading.Event()
        self.batch_ended = threading.Event()
        """Set when a micro-batch ended after `wake`."""

    def totals(self) -> dict[str, int]:
        """Returns the sums of all micro-batches: `batches` (those with rows), `rows`, `behind_watermark`, and the
        query's observed metrics."""
        return {"batches": 0, "rows": 0, "behind_watermark": 0, **self._counts}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if event.name == self._name:
            self._run_ids.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if str(progress.runId) not in self._run_ids:
            return
        observed = {
            name: value
            for row in progress.observedMetrics.values()
            for name, value in row.asDict().items()
            if isinstance(value, int)
        }
        behind = sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
        self._counts["behind_watermark"] += behind
        if progress.numInputRows:
            self._counts.update({"batches": 1, "rows": progress.numInputRows, **observed})
            log.info("%s", _line(self._name, progress, observed, behind))
        if self.wake.is_set():
            self.batch_ended.set()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Does nothing, because an idle query has made no progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.runId) in self._run_ids:
            self.ended.set()
            self.batch_ended.set()
            self.wake.set()


def _line(name: str, progress: Any, observed: dict[str, int], behind: int) -> str:
    parts = [
        f"{name} batch {progress.batchId}: {progress.numInputRows} rows in {progress.batchDuration / 1000:.1f} s",
        *(f"{metric} {value}" for metric, value in observed.items()),
    ]
    if progress.stateOperators:
        parts.append(f"rows in state {sum(state.numRowsTotal for state in progress.stateOperators)}")
        parts.append(f"behind watermark {behind}")
    if watermark := progress.eventTime.get("watermark"):
        parts.append(f"watermark {watermark}")
    return ", ".join(parts)
