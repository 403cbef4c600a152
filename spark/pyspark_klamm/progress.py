"""How far a stream is behind the ends of its partitions, from the progress that Spark reports.

Spark's Kafka source reports this in `sources[].metrics`. Spark asks only its own (JVM) sources for metrics, so this map
is empty for `format("klamm")`. Spark does report the offsets of a Python source. So the stream's reader adds the same
metrics to `sources[].latestOffset`, where every listener and the JSON of the progress have them. The functions here
read them for Python programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klamm.model import TopicPartition
from pyspark_klamm.offsets import Offsets, SourceOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress

METRICS: Final = "metrics"
"""The key of the metrics in `sources[].latestOffset`."""


def offsets_behind_latest(source: SourceProgress) -> dict[TopicPartition, int]:
    """Returns for each partition how many offsets the stream had not read when it ended this batch.

    `source` is one of `progress.sources`, of a `query.lastProgress` or an `onQueryProgress`. With
    `trigger(availableNow=True)`, only the records count that this run will read. Raises ValueError for the progress of
    another source than `format("klamm")`."""
    try:
        latest, end = (SourceOffset.from_json(json.loads(text)) for text in (source.latestOffset, source.endOffset))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the source {source.description} is not of format('klamm')") from error
    return behind_latest(latest.offsets, end.offsets)


def source_metrics(source: SourceProgress) -> dict[str, str]:
    """Returns the metrics of a stream's source under the names of Spark's Kafka source: minOffsetsBehindLatest,
    maxOffsetsBehindLatest and avgOffsetsBehindLatest.

    `source` is one of `progress.sources`. The metrics are empty for a source without partitions. Raises ValueError for
    the progress of another source than `format("klamm")`."""
    return metrics_of(offsets_behind_latest(source).values())


def behind_latest(latest: Offsets, read: Offsets) -> dict[TopicPartition, int]:
    """Returns how many offsets of each partition are not read. A partition without a position was not read at all."""
    return {tp: max(0, offset - read.get(tp, 0)) for tp, offset in sorted(latest.items())}


def metrics_of(behind: Iterable[int]) -> dict[str, str]:
    """Returns the metrics of Spark's Kafka source, whose values are texts."""
    counts = list(behind)
    if not counts:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(counts)),
        "maxOffsetsBehindLatest": str(max(counts)),
        "avgOffsetsBehindLatest": str(sum(counts) / len(counts)),
    }
