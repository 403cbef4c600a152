"""Merges small files of an archive into larger ones, while the archive is written and read.

An hour's small files become one file (or several of --target-mb) with the same rows. Readers see this as one step (see
the pipeline `archive`). Files that were replaced longer than --retain ago are deleted, and so are files of failed
batches.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from klamm.errors import IllegalStateError
from klamm_pipelines.archive_log import ArchiveChange, Compaction, plan_compactions
from klamm_pipelines.archive_store import ArchiveStore
from klamm_pipelines.durations import duration_ms
from klamm_pipelines.job import Pipeline, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(store: ArchiveStore, options: argparse.Namespace, now_ms: int) -> dict[str, int]:
    """Merges small files and deletes old ones. Returns how many files were merged, written and deleted.

    Raises ArchiveConflictError if another compaction runs at the same time, or IllegalStateError if rows would be
    lost."""
    plans = plan_compactions(
        store.contents().files.values(), target_bytes=options.target_mb << 20, files_min=options.min_files
    )
    written = sum(_merge(store, plan, now_ms) for plan in plans)
    deleted = store.sweep(now_ms, duration_ms(options.retain))
    return {"files_merged": sum(len(plan.files) for plan in plans), "files_written": written, "files_deleted": deleted}


def _merge(store: ArchiveStore, plan: Compaction, now_ms: int) -> int:
    rows = store.read(plan.files)
    order = ("partition", "offset")
    parts = rows.coalesce(1) if plan.file_count == 1 else rows.repartitionByRange(plan.file_count, *order)
    topic = plan.files[0]
    published = store.publish(parts.sortWithinPartitions(*order), {topic.topic: topic.topic_id})
    before, after = (sum(file.rows for file in files) for files in (plan.files, published.files))
    if before != after:
        raise IllegalStateError(
            f"compaction of {topic.topic} {topic.date} {topic.hour}: expected {before} rows, but wrote {after}"
        )
    removed = tuple(file.path for file in plan.files)
    store.commit(ArchiveChange(time_ms=now_ms, add=published.files, remove=removed))
    return len(published.files)


def work(spark: SparkSession, options: argparse.Namespace) -> dict[str, int]:
    return compact(ArchiveStore(spark, options.archive), options, time.time_ns() // 1_000_000)


def add_compaction_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("compaction")
    group.add_argument(
        "--target-mb",
        type=int,
        default=128,
        metavar="MB",
        help="The size of a file, in megabytes [default: %(default)s].",
    )
    group.add_argument(
        "--min-files",
        type=int,
        default=4,
        metavar="N",
        help="Merge the files of an hour if there are at least this many [default: %(default)s].",
    )
    group.add_argument(
        "--retain",
        default="1 hour",
        metavar="TIME",
        help="Keep replaced files for this time, because readers may use them [default: %(default)s].",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--archive", required=True, metavar="DIRECTORY", help="The directory of the pipeline archive; required."
    )
    add_compaction_arguments(parser)


PIPELINE = Pipeline(name="compact", doc=__doc__, add_arguments=add_arguments, work=work)

if __name__ == "__main__":
    sys.exit(run(PIPELINE, sys.argv[1:]))
