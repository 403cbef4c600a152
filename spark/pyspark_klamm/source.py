"""The source: plans tasks from offsets (on the driver) and reads them (on the executors), batch and streaming.

Spark pickles a reader once per query and unpickles a copy for every task, so nothing that a task learns comes back,
and nothing here may be set after `__init__`, except what the driver's own long-lived process keeps for itself.
An exception in a driver-side call ends the query; what may pass is retried inside the calls to the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from klamm.errors import ConfigError, IllegalStateError
from klamm.model import TopicPartition
from pyspark_klamm.cluster_access import ClusterAccess, access
from pyspark_klamm.offsets import OffsetRange, Position, limited, pack, ranges_between
from pyspark_klamm.options import EARLIEST, LATEST, OffsetSpec, SourceOptions
from pyspark_klamm.schema import checked_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

IDLE_WAIT_MS: Final = 500
"""How long an idle stream waits at the brokers for new records before it answers Spark that there are none."""


class RangesPartition(InputPartition):
    """One task: stretches of one or more topic-partitions."""

    def __init__(self, ranges: list[OffsetRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class _Source:
    """What batch and streaming have in common."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = checked_columns(schema)

    @property
    def _access(self) -> ClusterAccess:
        return access(self._options.client)

    def _tasks(self, ranges: list[OffsetRange]) -> list[InputPartition]:
        return [RangesPartition(task) for task in pack(ranges, self._options.max_tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task's ranges. Runs on an executor."""
        from pyspark_klamm.arrow import ArrowBuilder

        assert isinstance(partition, RangesPartition)
        cluster = self._access
        builder = ArrowBuilder(self._columns)
        for each in partition.ranges:
            yield from builder.rows(each, cluster.fetch(each), check_crcs=cluster.config.check_crcs)
        yield from builder.finish()

    def _partitions(self) -> tuple[list[TopicPartition], dict[str, str]]:
        """Every subscribed partition, and the topics' ids."""
        view = self._access.describe(self._options.topics)
        topics = [view.topics[name] for name in self._options.topics]
        tps = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
        return tps, {topic.name: topic.topic_id.hex for topic in topics}

    def _resolve(self, spec: OffsetSpec, tps: list[TopicPartition], option: str) -> dict[TopicPartition, int]:
        """Real offsets for `spec`. Raises ConfigError when it does not name just the subscribed partitions."""
        wanted = dict.fromkeys(tps, spec.default) if spec.partitions is None else dict(spec.partitions)
        if wanted.keys() != set(tps):
            odd = ", ".join(map(str, sorted(wanted.keys() ^ set(tps))))
            raise ConfigError(f"{option} must name every subscribed partition and no other; see {odd}")
        open_ended = {tp: offset for tp, offset in wanted.items() if offset in (EARLIEST, LATEST)}
        return {**wanted, **self._access.list_offsets(open_ended)}

    def _check_loss(self, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise IllegalStateError(
                f"{problem}. Some records may have been missed; set failOnDataLoss=false to go on with what there is"
            )
        log.warning("data loss tolerated (failOnDataLoss=false): %s", problem)

    def _clamped(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`start` moved up to what the partitions still hold."""
        earliest = self._access.list_offsets(dict.fromkeys(start, EARLIEST))
        for tp in sorted(start):
            if start[tp] < earliest[tp]:
                self._check_loss(f"{tp} begins at offset {earliest[tp]}, offset {start[tp]} was wanted")
        return {tp: max(offset, earliest[tp]) for tp, offset in start.items()}


class KlammBatchReader(_Source, DataSourceReader):
    """`spark.read.format("klamm")`: everything between startingOffsets and endingOffsets."""

    def partitions(self) -> list[InputPartition]:
        """Offsets are resolved here, once: the tasks of a query agree on them."""
        tps, _ = self._partitions()
        start = self._clamped(self._resolve(self._options.starting_offsets, tps, "startingOffsets"))
        end = self._resolve(self._options.ending_offsets, tps, "endingOffsets")
        latest = self._access.list_offsets(dict.fromkeys(tps, LATEST))
        for tp in tps:
            if end[tp] > latest[tp]:
                self._check_loss(f"{tp} ends at offset {latest[tp]}, endingOffsets wants {end[tp]}")
        tasks = self._tasks(ranges_between(start, {tp: min(end[tp], latest[tp]) for tp in tps}))
        # Without any task Spark runs one all the same, of no partition at all.
        return tasks or [RangesPartition([])]


class KlammStreamReader(_Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("klamm")`: micro-batches from the checkpoint's offsets on."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: dict[str, Any] | None = None
        self._available_now: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; asked twice at a start, so the answer is kept."""
        if self._initial is None:
            tps, topic_ids = self._partitions()
            offsets = self._resolve(self._options.starting_offsets, tps, "startingOffsets")
            self._initial = Position(offsets=offsets, topic_ids=topic_ids).to_json(initial=True)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, if set."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of the query: what is there now."""
        self._available_now = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch. With nothing new, waits a moment at the brokers for something to come."""
        begin = Position.from_json(start)
        latest = self._available_now or self._latest()
        if latest == begin and self._available_now is None:
            self._access.wait_for_records(begin.offsets, IDLE_WAIT_MS)
            latest = self._latest()
        end = Position(offsets=self._limited(begin, latest, limit), topic_ids=latest.topic_ids)
        if start.get("initial"):
            return end.to_json(start=begin.to_json())
        return start if end == begin else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """For the progress report: how far the stream could be."""
        return (self._available_now or self._latest()).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch; the same for a batch that is run again after a failure."""
        if start.get("initial") and "start" in end:
            start = end["start"]
        begin, finish = Position.from_json(start), Position.from_json(end)
        offsets = self._clamped(self._continued(begin, finish))
        return self._tasks(ranges_between(offsets, finish.offsets))

    def stop(self) -> None:
        """Nothing to release: the process ends with the query."""

    def _latest(self) -> Position:
        tps, topic_ids = self._partitions()
        offsets = self._access.list_offsets(dict.fromkeys(tps, LATEST))
        return Position(offsets=offsets, topic_ids=topic_ids)

    def _limited(self, begin: Position, latest: Position, limit: ReadLimit) -> Mapping[TopicPartition, int]:
        if not isinstance(limit, ReadMaxRows):
            return latest.offsets
        return limited(self._continued(begin, latest), latest.offsets, limit.max_rows)

    def _continued(self, begin: Position, finish: Position) -> dict[TopicPartition, int]:
        """Where to read on for every partition of `finish`: new partitions and topics start at the earliest."""
        recreated = {
            topic for topic, topic_id in finish.topic_ids.items() if begin.topic_ids.get(topic, topic_id) != topic_id
        }
        for topic in sorted(recreated):
            self._check_loss(f"topic {topic!r} was deleted and created anew")
        for tp in sorted(begin.offsets.keys() - finish.offsets.keys()):
            self._check_loss(f"{tp} is gone")
        kept = {
            tp: offset for tp, offset in begin.offsets.items() if tp in finish.offsets and tp.topic not in recreated
        }
        for tp in sorted(kept):
            if finish.offsets[tp] < kept[tp]:
                self._check_loss(f"{tp} ends at offset {finish.offsets[tp]}, {kept[tp]} was reached before")
        new = dict.fromkeys(finish.offsets.keys() - kept.keys(), EARLIEST)
        return {**kept, **self._access.list_offsets(new)}
