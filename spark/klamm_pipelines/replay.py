"""Writes an archived range back to a topic, with the original keys, headers, timestamps and partitions.

--topic names the archived topic, --from and --until limit the timestamps. The records go to the topic --to. If it does
not exist, the pipeline creates it with as many partitions, and with retention.ms=-1, because otherwise old records
would be deleted again. The records are in the order of each partition. Either all of them are written or none (a
consumer with `isolation.level=read_committed` sees nothing before). Each replay writes the records once more.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from klamm.errors import ConfigError
from klamm_pipelines.archive_log import ArchiveContents, ArchivedFile
from klamm_pipelines.archive_store import ArchiveStore
from klamm_pipelines.durations import utc_time
from klamm_pipelines.job import Pipeline, client_settings, connector_options, run
from klamm_pipelines.preflight import require_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def wanted_files(contents: ArchiveContents, options: argparse.Namespace) -> list[ArchivedFile]:
    """Returns the archived files of the wanted hours. Raises ConfigError if there are none, or if the topic was created
    several times and --topic-id is missing."""
    files = [file for file in contents.files.values() if file.topic == options.topic]
    ids = sorted({file.topic_id for file in files})
    if options.topic_id is not None:
        files = [file for file in files if file.topic_id == options.topic_id]
    elif len(ids) > 1:
        raise ConfigError(f"{options.topic} was created {len(ids)} times: choose one with --topic-id: {', '.join(ids)}")
    hours = (_hour(options.start), _hour(options.until))
    files = [file for file in files if _is_between(f"{file.date} {file.hour}", *hours)]
    if not files:
        topics = ", ".join(sorted({file.topic for file in contents.files.values()})) or "nothing"
        raise ConfigError(f"the archive has no records of {options.topic} in that range; its topics are {topics}")
    return files


def _hour(time: str | None) -> str | None:
    return None if time is None else utc_time(time).strftime("%Y-%m-%d %H")


def _is_between(hour: str, start: str | None, until: str | None) -> bool:
    return (start is None or hour >= start) and (until is None or hour <= until)


def in_range(rows: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Returns the rows with a timestamp from --from to before --until."""
    from pyspark.sql import functions as F

    if options.start is not None:
        rows = rows.where(F.col("timestamp") >= F.lit(utc_time(options.start)))
    return rows if options.until is None else rows.where(F.col("timestamp") < F.lit(utc_time(options.until)))


def work(spark: SparkSession, options: argparse.Namespace) -> dict[str, int]:
    """Writes the archived range to the topic, and returns the number of its records."""
    store = ArchiveStore(spark, options.archive)
    contents = store.contents()
    rows = in_range(store.read(wanted_files(contents, options)), options)
    partitions = {end.partition for end in contents.ends if end.topic == options.topic}
    _require_partitions(options, max(partitions) + 1)
    count = rows.count()
    ordered = rows.repartition(len(partitions), "partition").sortWithinPartitions("partition", "offset")
    (
        ordered.select("key", "value", "partition", "timestamp", "headers")
        .write.format("klamm").mode("append")
        .options(**connector_options(client_settings(options)))
        .option("topic", options.to)
        .option("includeTimestamp", "true")
        .option("deliveryGuarantee", "exactly-once")
        .save()
    )  # fmt: skip
    return {"records": count}


def _require_partitions(options: argparse.Namespace, count: int) -> None:
    from klamm import Admin, NewTopic

    with Admin(client_settings(options)) as admin:
        topic = admin.list_topics().get(options.to)
        if topic is None:
            admin.create_topics([NewTopic(options.to, partition_count=count, configs={"retention.ms": "-1"})])
        elif len(topic.partitions) < count:
            raise ConfigError(
                f"{options.to} has {len(topic.partitions)} partitions, but {options.topic} has {count}; expected as"
                " many or more"
            )


def check(options: argparse.Namespace) -> None:
    """Checks the times, and that the cluster answers. The output topic may be missing, because the pipeline creates
    it."""
    for time in (options.start, options.until):
        _hour(time)
    require_topics(client_settings(options), [])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--archive", required=True, metavar="DIRECTORY", help="The directory of the pipeline archive; required."
    )
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="The topic that was archived; required.")
    parser.add_argument(
        "--topic-id", metavar="ID", help="The id of the topic, if a topic of that name was deleted and created again."
    )
    parser.add_argument("--to", required=True, metavar="TOPIC", help="The topic to write to; required.")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="TIME",
        help="Replay records from this time, such as 2013-01-31 or 2013-01-31T09:30:00Z (UTC without a zone).",
    )
    parser.add_argument("--until", metavar="TIME", help="Replay records before this time.")


PIPELINE = Pipeline(name="replay", doc=__doc__, add_arguments=add_arguments, check=check, work=work)

if __name__ == "__main__":
    sys.exit(run(PIPELINE, sys.argv[1:]))
