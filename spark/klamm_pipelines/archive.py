"""Writes topics to Parquet files by topic, date and hour, each record once.

Files are `topic=T/date=D/hour=H/*.parquet` below --archive, by the records' timestamps in UTC. They have all fields of
a record (key, value, partition, offset, timestamp, timestampType, headers), sorted by partition and offset. A log
beside the files (`archive_log.py`) names the files that belong to the archive. Read the archive with
`archive_store.read_archive(spark, root)`. The pipeline `replay` writes archived records back to a topic.

Each record is archived exactly once. The log stores the next offset to archive of each partition. It commits a batch's
files and its new offsets in one step. A batch that runs again, or a query with a new checkpoint, continues from these
offsets. A second archiver at the same time is refused. A topic that was deleted and created again counts as a new one.

Many batches make many small files. With --compact-every N, each N-th batch merges them. The pipeline `compact` does the
same on its own. Readers see a compaction as one step, too. They read one version of the log, which names either all
small files or the large one. The small files are deleted only after --retain.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm_pipelines.archive_log import Advance, ArchiveChange, ArchiveContents, SourcePartition
from klamm_pipelines.archive_store import IN_FILES, ArchiveStore
from klamm_pipelines.compact import add_compaction_arguments, compact
from klamm_pipelines.job import Pipeline, client_settings, read_stream, run, started
from klamm_pipelines.preflight import require_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


def not_archived(batch: DataFrame, contents: ArchiveContents, topic_ids: Mapping[str, str]) -> DataFrame:
    """Returns the batch's records that the archive does not have, with their `date` and `hour`."""
    from pyspark.sql import functions as F

    held = [(*key, end) for key, end in ends_of(contents, topic_ids).items()]
    ends = batch.sparkSession.createDataFrame(held, "topic STRING, partition INT, archived LONG")
    joined = batch.join(F.broadcast(ends), ["topic", "partition"], "left")
    new = joined.where(F.col("offset") >= F.coalesce("archived", F.lit(0))).drop("archived")
    dated = new.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
    return dated.withColumn("hour", F.date_format("timestamp", "HH"))


def ends_of(contents: ArchiveContents, topic_ids: Mapping[str, str]) -> dict[tuple[str, int], int]:
    """Returns the next offset to archive by topic and partition, for the topics with these ids."""
    return {
        (source.topic, source.partition): end
        for source, end in contents.ends.items()
        if topic_ids.get(source.topic) == source.topic_id
    }


def archive_batch(store: ArchiveStore, batch: DataFrame, topic_ids: Mapping[str, str]) -> ArchiveContents:
    """Adds those records of a batch that the archive does not have. Returns its new contents. Raises
    ArchiveConflictError."""
    before = store.contents()
    new = not_archived(batch, before, topic_ids)
    place = ("topic", "date", "hour", "partition")
    published = store.publish(new.repartition(*place).sortWithinPartitions(*place, "offset"), topic_ids)
    if not published.files:
        return before
    starts = ends_of(before, topic_ids)
    advance = tuple(
        Advance(
            source=SourcePartition(topic, topic_ids[topic], partition),
            start_offset=starts.get((topic, partition), 0),
            end_offset=end,
        )
        for (topic, partition), end in sorted(published.ends.items())
    )
    return store.commit(ArchiveChange(time_ms=_now_ms(), add=published.files, advance=advance))


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Starts the query."""
    from pyspark.sql import functions as F

    store = ArchiveStore(spark, options.archive)
    topic_ids = ids_of(options)

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        contents = archive_batch(store, batch, topic_ids)
        if options.compact_every and contents.version % options.compact_every == 0:
            counted = compact(store, options, _now_ms())
            log.info("compacted the archive: %s", counted)

    records = read_stream(spark, options, options.topics, f"topic STRING, {IN_FILES}")
    observed = records.observe("archive", F.count("offset").alias("records"))
    return started(observed.writeStream.foreachBatch(on_batch), options, PIPELINE.name)


def ids_of(options: argparse.Namespace) -> dict[str, str]:
    """Returns the topics' ids by name. Raises UnknownTopicOrPartitionError."""
    from klamm import Admin

    topics = [name.strip() for name in options.topics.split(",")]
    with Admin(client_settings(options)) as admin:
        return {name: topic.topic_id.hex for name, topic in admin.describe_topics(topics).items()}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def check(options: argparse.Namespace) -> None:
    require_topics(client_settings(options), [("--topics", options.topics)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topics", required=True, metavar="TOPICS", help="The topics to read, separated by commas; required."
    )
    parser.add_argument(
        "--archive", required=True, metavar="DIRECTORY", help="A directory that Spark can write to; required."
    )
    parser.add_argument(
        "--compact-every", type=int, default=0, metavar="N", help="Compact after this many batches [default: never]."
    )
    add_compaction_arguments(parser)


PIPELINE = Pipeline(name="archive", doc=__doc__, add_arguments=add_arguments, check=check, start=start)

if __name__ == "__main__":
    sys.exit(run(PIPELINE, sys.argv[1:]))
