"""The source of streaming queries: it reads micro-batches, starting at the offsets of the checkpoint.

One reader lives in its own process as long as the query runs, and answers one call at a time. Without new records,
Spark asks for the latest offset some 80 times a second. So the reader waits at the brokers for a record before it
answers. If other sources of the query may have records, the reader waits only for a moment.
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
from pyspark_klamm.progress import METRICS, behind_latest, metrics_of
from pyspark_klamm.rate_limit import TriggerDelay, backlog, limited
from pyspark_klamm.source import Source
from pyspark_klamm.source_options import SourceOptions
from pyspark_klamm.spark_call import spark_call

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

IDLE_WAIT_MS: Final = 500
COMPANY_WAIT_MS: Final = 50
"""How long the reader waits for records while the query runs batches without records of this source, in ms."""
COMPANY_BATCHES: Final = 3
"""How many batches in a row must lack records of this source before the wait is short. A query with state runs one
batch without data after each batch with data."""
NEWS_MS: Final = 1_000
"""How long new topics and partitions may stay unnoticed while no record arrives, in ms."""


class KlammStreamReader(Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `spark.readStream.format("klamm")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        rate = options.rate
        self._delay = None if rate.min_offsets is None else TriggerDelay(rate.min_offsets, rate.max_delay_ms)
        self._group = None if options.commit_group is None else GroupProgress(options.commit_group)
        self._initial: dict[str, Any] | None = None
        self._is_available_now = False
        self._seen: SourceOffset | None = None
        """The ends of all partitions when they were last looked up."""
        self._end: SourceOffset | None = None
        """Where the batch ends that was planned last, or where the query is if there is no new batch."""
        self._seen_at_s = 0.0
        self._foreign_batches = 0
        """The number of batches in a row without records of this source. It is 0 again after a look-up that no batch
        followed."""
        self._has_planned = False

    @spark_call()
    def initialOffset(self) -> dict[str, Any]:
        """Returns where a new query begins. Spark calls this twice at a start, so the answer is kept."""
        if self._initial is None:
            self._initial = self._offsets.start().to_json(initial=True)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit that Spark passes to `latestOffset`, unless the trigger reads everything. Spark takes only
        one limit."""
        rate = self._options.rate
        if rate.max_offsets is not None:
            return ReadMaxRows(rate.max_offsets)
        return ReadAllAvailable() if rate.min_offsets is None else ReadMinRows(rate.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        """Makes the query end at the offsets that its first look-up finds."""
        self._is_available_now = True

    @spark_call()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns the end of the next batch, or `start` itself if no batch should run yet."""
        begin = SourceOffset.from_json(start)
        latest = self._poll_latest(begin)
        self._end = begin
        if latest is None or (latest == begin and not start.get("initial")):
            if self._group is not None:
                self._group.finish(self._offsets.access, begin.offsets)
            return start
        if self._group is not None:
            self._group.advance(self._offsets.access, begin.offsets)
        end = latest if isinstance(limit, ReadAllAvailable) else self._limited(begin, latest)
        if end is None:
            return start
        self._end = end
        return end.to_json(start=begin.to_json()) if start.get("initial") else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the latest available offset with the metrics of Spark's Kafka source, which compare it with the
        batch that begins now. Spark shows both in the query's progress, as `sources[].latestOffset`."""
        if self._seen is None or self._end is None:
            return None
        behind = behind_latest(self._seen.offsets, self._end.offsets)
        return self._seen.to_json(**{METRICS: metrics_of(behind.values())})

    @spark_call()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Returns the tasks of one batch. They are the same when a batch runs again after a failure."""
        if start.get("initial") and "start" in end:
            start = end["start"]
        begin, finish = SourceOffset.from_json(start), SourceOffset.from_json(end)
        self._has_planned = True
        self._foreign_batches = self._foreign_batches + 1 if begin == finish else 0
        return [] if begin == finish else self._tasks(self._offsets.ranges(begin, finish), finish)

    def stop(self) -> None:
        """Does nothing, because the process ends with the query."""

    @property
    def _wait_ms(self) -> int:
        return IDLE_WAIT_MS if self._foreign_batches < COMPANY_BATCHES else COMPANY_WAIT_MS

    def _poll_latest(self, begin: SourceOffset) -> SourceOffset | None:
        """Returns the ends of all partitions, or None if no record arrived during the wait."""
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
        """Returns the end of the batch within the limits of the options, or None if a batch has to wait for more
        records."""
        found = self._offsets.continued(begin, latest)
        self._seen = latest = found.finish
        start, rate = found.offsets, self._options.rate
        behind = backlog(start, latest.offsets)
        if self._delay is not None and not self._is_available_now and behind:
            wait_ms = self._delay.wait_ms(behind, time.monotonic() * 1000)
            if wait_ms > 0:
                # A wait at the brokers would end with each record, and a look-up of all ends costs several calls.
                time.sleep(min(wait_ms, self._wait_ms) / 1000)
                return None
        if rate.max_offsets is None:
            return latest
        return SourceOffset(offsets=limited(start, latest.offsets, rate.max_offsets), topic_ids=latest.topic_ids)
