"""Sends malformed and duplicate records to a dead-letter topic, with the reason, and all others to the output topic.

A record is malformed if its value is no JSON object of --schema, lacks a field of --require, or has no id. It is also
malformed if its time is more than --ahead in the future, because it would make all other records late. A record is a
duplicate if the pipeline has seen a record with the same id and a timestamp at most --window away. A record is late if
its timestamp is more than --window behind the latest one of its bucket. The pipeline cannot know whether a late record
is a duplicate. --id is an expression over `key` (as text) and `value` (of --schema), for example `value.order_id` or
`concat(key, value.line)`.

A record in the output topic keeps its key, headers and timestamp, and the order of its partition. A record in the
dead-letter topic keeps these too, and gets the headers `dead-letter.topic`, `.partition`, `.offset` and `.reason`.

One sink writes both topics in one micro-batch, exactly once. The ids seen are state of the query, which Spark commits
with the same batch. After a failure the batch runs again with the state that it began with, and decides the same. The
state takes 24 bytes per id, for two windows. Each batch writes all of it, and --max-ids bounds it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from klamm.errors import IllegalStateError
from klamm_pipelines.durations import duration_ms
from klamm_pipelines.job import Pipeline, client_settings, read_stream, run, started, write_topic
from klamm_pipelines.ordering import in_partition_order
from klamm_pipelines.preflight import require_topics
from klamm_pipelines.seen_ids import Arrival, PackedIds, SeenIds

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORD: Final = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"
HEADERS: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
JUDGED: Final = f"{RECORD}, headers STRING, reason STRING"
"""The columns of a judged record. Its headers are JSON, because Pandas would make Python objects of them."""
STATE: Final = "buckets INT, clock_ms LONG, digests BINARY, times BINARY"


def with_problems(records: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Returns the records with `id`, and with `reason`, which says why a record is malformed, or is null."""
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    corrupt = {"columnNameOfCorruptRecord": "_corrupt"}
    parsed = F.from_json(text, f"{options.schema}, _corrupt STRING", corrupt) if options.schema else text
    seen = records.select(
        F.struct("*").alias("record"), F.col("key").cast("string").alias("key"), parsed.alias("value")
    )
    record_id = F.expr(options.id).cast("string")
    ahead = F.col("record.timestamp") > F.expr(
        f"current_timestamp() + INTERVAL {duration_ms(options.ahead)} MILLISECOND"
    )
    checks: list[tuple[Column, str]] = []
    if options.schema:
        checks.append(
            (F.col("record.value").isNull() | F.col("value._corrupt").isNotNull(), "malformed: not a JSON object")
        )
        checks += [(F.col(f"value.{name}").isNull(), f"malformed: no {name}") for name in options.require]
    checks.append((record_id.isNull(), "malformed: no id"))
    checks.append((ahead, "malformed: timestamp in the future"))
    reason = F.coalesce(*(F.when(failed, F.lit(text)) for failed, text in checks))
    return seen.select("record.*", reason.alias("reason"), record_id.alias("id"))


def judged(records: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Returns the records with `reason`, which is null for records that belong to the output topic."""
    from pyspark.sql import functions as F

    bucket = F.pmod(F.hash(F.coalesce("id", F.lit(""))), F.lit(options.buckets))
    rows = with_problems(records, options).withColumn("headers", F.to_json("headers")).withColumn("bucket", bucket)
    judge = judge_of(duration_ms(options.window), options.buckets, options.max_ids)
    found = rows.groupBy("bucket").applyInPandasWithState(judge, JUDGED, STATE, "append", "NoTimeout")
    return found.withColumn("headers", F.from_json("headers", HEADERS))


def judge_of(window_ms: int, buckets: int, max_ids: int) -> Callable[[Any, Iterator[pd.DataFrame], Any], Any]:
    """Returns the function that judges the records of one bucket with its state
    (pyspark.sql.streaming.state.GroupState)."""

    def judge(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        rows = pd.concat(list(frames)).sort_values(["timestamp", "topic", "partition", "offset"], kind="stable")
        seen = SeenIds(window_ms, _restored(state, buckets))
        # Spark's timestamps are microseconds, and Pandas' may be nanoseconds.
        times_ms = rows["timestamp"].astype("datetime64[ms]").astype("int64")
        rows["reason"] = [
            _reason(problem, seen, record_id, time_ms)
            for problem, record_id, time_ms in zip(rows["reason"], rows["id"], times_ms, strict=True)
        ]
        packed = seen.packed()
        if len(packed.digests) // 16 > max_ids // buckets:
            raise IllegalStateError(
                f"more than {max_ids} ids in two windows: allow more with --max-ids, or shorten --window"
            )
        state.update((buckets, packed.clock_ms, packed.digests, packed.times))
        yield rows.drop(columns=["id", "bucket"])

    return judge


def _reason(problem: str | None, seen: SeenIds, record_id: str, time_ms: int) -> str | None:
    if isinstance(problem, str):
        return problem
    verdict = seen.judge(record_id, time_ms)
    return None if verdict is Arrival.FIRST else verdict.value


def _restored(state: Any, buckets: int) -> PackedIds | None:
    if not state.exists:
        return None
    found, clock_ms, digests, times = state.get
    if found != buckets:
        raise IllegalStateError(
            f"--buckets={buckets}: expected {found}, because the checkpoint stores its ids in as many buckets"
        )
    return PackedIds(clock_ms, bytes(digests), bytes(times))


def routed(found: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Returns the rows that the sink writes, each with its topic."""
    from pyspark.sql import functions as F

    observed = found.observe(
        "dead_letters",
        F.count_if(F.col("reason").isNull()).alias("passed"),
        F.count_if(F.col("reason").startswith("malformed")).alias("malformed"),
        F.count_if(F.col("reason") == Arrival.DUPLICATE.value).alias("duplicates"),
        F.count_if(F.col("reason") == Arrival.LATE.value).alias("late"),
    )
    ordered = in_partition_order(observed)
    why = {"topic": "topic", "partition": "partition", "offset": "offset", "reason": "reason"}
    added = F.array(
        *(
            F.struct(
                F.lit(f"dead-letter.{name}").alias("key"), F.col(column).cast("string").cast("binary").alias("value")
            )
            for name, column in why.items()
        )
    )
    is_dead = F.col("reason").isNotNull()
    nothing = F.from_json(F.lit("[]"), HEADERS)
    return ordered.select(
        "key",
        "value",
        "timestamp",
        F.when(is_dead, F.concat(F.coalesce("headers", nothing), added)).otherwise(F.col("headers")).alias("headers"),
        F.when(is_dead, options.dead_letter).otherwise(options.output).alias("topic"),
    )


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Starts the query."""
    records = read_stream(spark, options, options.input, f"{RECORD}, headers {HEADERS}")
    rows = routed(judged(records, options), options)
    return started(write_topic(rows, options, None, includeTimestamp="true"), options, PIPELINE.name)


def check(options: argparse.Namespace) -> None:
    for duration in (options.window, options.ahead):
        duration_ms(duration)
    outputs = [("--output", options.output), ("--dead-letter", options.dead_letter)]
    require_topics(client_settings(options), [("--input", options.input)], outputs)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", required=True, metavar="TOPICS", help="The topics to read, separated by commas; required."
    )
    parser.add_argument("--output", required=True, metavar="TOPIC", help="The topic for valid records; required.")
    parser.add_argument(
        "--dead-letter",
        required=True,
        metavar="TOPIC",
        help="The topic for malformed, late and duplicate records; required.",
    )
    parser.add_argument(
        "--schema", metavar="DDL", help="The fields of the values, as DDL: 'order_id STRING, amount DOUBLE'."
    )
    parser.add_argument(
        "--require",
        type=lambda text: text.split(","),
        default=[],
        metavar="FIELDS",
        help="The fields that must not be null, separated by commas.",
    )
    parser.add_argument(
        "--id", default="key", metavar="SQL", help="The id of a record, an SQL expression [default: %(default)s]."
    )
    parser.add_argument(
        "--window",
        default="1 hour",
        metavar="TIME",
        help="The longest time between two records that count as duplicates [default: %(default)s].",
    )
    parser.add_argument(
        "--ahead",
        default="1 hour",
        metavar="TIME",
        help="How far a record's time may be in the future [default: %(default)s].",
    )
    parser.add_argument(
        "--buckets",
        type=int,
        default=8,
        metavar="N",
        help="Split the ids into this many buckets; it must not change for a checkpoint [default: %(default)s].",
    )
    parser.add_argument(
        "--max-ids",
        type=int,
        default=10_000_000,
        metavar="N",
        help="Remember at most this many ids [default: %(default)s].",
    )


PIPELINE = Pipeline(name="dedup_and_dead_letter", doc=__doc__, add_arguments=add_arguments, check=check, start=start)

if __name__ == "__main__":
    sys.exit(run(PIPELINE, sys.argv[1:]))
