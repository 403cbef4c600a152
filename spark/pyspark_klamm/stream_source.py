"""The source in streaming queries: micro-batches from the checkpoint's offsets on.

One reader lives in a process of its own as long as the query runs, and is asked one thing at a time. With nothing new
Spark asks for the latest offset some 80 times a second: here the answer waits at the brokers for a record to come. If
the query's other sources may have some meanwhile, it waits only for a moment.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_klamm.group_progress import GroupProgress
from pyspark_klamm.offsets import SourceOffset
from pyspark_klamm.rate_limit import TriggerDelay, backlog, limited
from pyspark_klamm.source import Source
from pyspark_klamm.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

IDLE_WAIT_MS: Final = 500
COMPANY_WAIT_MS: Final = 50
"""How long an empty look waits instead, while batches run that this source has nothing for."""
COMPANY_BATCHES: Final = 3
"""How many such batches must run in a row first: a query with state runs one without data after each with data."""
NEWS_MS: Final = 1_000
"""How long new topics and partitions may go unnoticed while no record comes."""


class KlammStreamReader(Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("klamm")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        rate = options.rate
        self._delay = None if rate.min_offsets is None else TriggerDelay(rate.min_offsets, rate.max_delay_ms)
        self._group = None if options.commit_group is None else GroupProgress(options.commit_group)
        self._initial: dict[str, Any] | None = None
        self._is_available_now = False
        self._seen: SourceOffset | None = None
        """The end of everything there was, as last looked up."""
        self._seen_at_s = 0.0
        self._foreign_batches = 0
        """How many batches in a row had nothing from this source; it starts at 0 again after a look that no batch
        followed."""
        self._has_planned = False

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; asked twice at a start, so the answer is kept."""
        if self._initial is None:
            self._initial = self._offsets.start().to_json(initial=True)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands it to `latestOffset`, unless the trigger is to read everything; there can only be one."""
        rate = self._options.rate
        if rate.max_offsets is not None:
            return ReadMaxRows(rate.max_offsets)
        return ReadAllAvailable() if rate.min_offsets is None else ReadMinRows(rate.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        """Makes the query end at the offsets that its first look-up finds."""
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself when there is to be none yet."""
        begin = SourceOffset.from_json(start)
        latest = self._poll_latest(begin)
        if latest is None or (latest == begin and not start.get("initial")):
            if self._group is not None:
                self._group.finish(self._offsets.access, begin.offsets)
            return start
        if self._group is not None:
            self._group.advance(self._offsets.access, begin.offsets)
        end = latest if isinstance(limit, ReadAllAvailable) else self._limited(begin, latest)
        if end is None:
            return start
        return end.to_json(start=begin.to_json()) if start.get("initial") else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the latest available offset. Spark shows it in the query's progress."""
        return None if self._seen is None else self._seen.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch; the same for a batch that is run again after a failure."""
        if start.get("initial") and "start" in end:
            start = end["start"]
        begin, finish = SourceOffset.from_json(start), SourceOffset.from_json(end)
        self._has_planned = True
        self._foreign_batches = self._foreign_batches + 1 if begin == finish else 0
        return [] if begin == finish else self._tasks(self._offsets.ranges(begin, finish), finish)

    def stop(self) -> None:
        """Nothing to release: the process ends with the query."""

    @property
    def _wait_ms(self) -> int:
        return IDLE_WAIT_MS if self._foreign_batches < COMPANY_BATCHES else COMPANY_WAIT_MS

    def _poll_latest(self, begin: SourceOffset) -> SourceOffset | None:
        """The end of everything; None when a wait for more was in vain."""
        if not self._has_planned:
            self._foreign_batches = 0
        self._has_planned = False
        if self._is_available_now:
            if self._seen is None:
                self._seen = self._offsets.latest(begin)
            return self._seen
        if self._seen == begin:
            came = self._offsets.access.wait_for_records(begin.offsets, self._wait_ms)
            if not came and time.monotonic() - self._seen_at_s < NEWS_MS / 1000:
                return None
        self._seen = self._offsets.latest(begin)
        self._seen_at_s = time.monotonic()
        return self._seen

    def _limited(self, begin: SourceOffset, latest: SourceOffset) -> SourceOffset | None:
        """What the options let through of it; None when too little came for a batch."""
        start = self._offsets.continued(begin, latest).offsets
        rate, behind = self._options.rate, backlog(start, latest.offsets)
        if self._delay is not None and not self._is_available_now and behind:
            wait_ms = self._delay.wait_ms(behind, time.monotonic() * 1000)
            if wait_ms > 0:
                # Not at the brokers: they would wake it for each record, and a look at all ends costs several calls.
                time.sleep(min(wait_ms, self._wait_ms) / 1000)
                return None
        if rate.max_offsets is None:
            return latest
        return SourceOffset(offsets=limited(start, latest.offsets, rate.max_offsets), topic_ids=latest.topic_ids)
