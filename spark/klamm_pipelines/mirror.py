"""Copies topics to another cluster, with keys, headers, timestamps and partitions, and the offsets of consumer groups.

Each record is copied once, in the order of its partition. The target topic has the same name after --prefix. The mirror
creates it with the source's partitions and settings, except settings about the source's own brokers and clocks. The
same transactions write the records' new offsets to the compacted topic `ALIAS.offset-syncs` of the target.

With --groups PATTERN, the mirror translates the offsets of groups every --beside-interval seconds and at the end. A
group continues at the target where it was at the source, and never skips a record that it has not read. The mirror
ignores groups with members at the target, and it never sets a group back.

As with MirrorMaker 2, a topic that is deleted and created again on either side needs a new mirror, with another
checkpoint, and another --alias for groups. The mirror finds new partitions of the source only when it starts.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from klamm_pipelines.job import (
    Pipeline,
    SideTask,
    assignments,
    client_settings,
    connector_options,
    read_stream,
    run,
    started,
)
from klamm_pipelines.mirror_cluster import (
    create_targets,
    matching_groups,
    matching_topics,
    mirrored_topics,
    sync_topic,
    translate_groups,
)
from klamm_pipelines.ordering import in_partition_order
from klamm_pipelines.preflight import reached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from klamm import TopicPartition

_RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def target_settings(options: argparse.Namespace) -> dict[str, str]:
    """Returns the settings of the target's clients."""
    return {"bootstrap.servers": options.target_bootstrap, **assignments(options.target_kafka, "--target-kafka")}


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Creates the topics and partitions that the target lacks, and starts the query."""
    from klamm_pipelines.mirror_sink import MirrorSink

    topics = mirrored_topics(client_settings(options), options.topics)
    create_targets(client_settings(options), target_settings(options), topics, options.prefix, options.alias)
    spark.dataSource.register(MirrorSink)
    records = in_partition_order(read_stream(spark, options, ",".join(topics), _RECORD))
    writer = (
        records.writeStream.format(MirrorSink.name())
        .options(**connector_options(target_settings(options)))
        .option("mirror.prefix", options.prefix)
        .option("mirror.syncs", sync_topic(options.alias))
        .option("deliveryGuarantee", "exactly-once")
        .option("sinkId", options.sink_id)
        .outputMode("append")
    )
    return started(writer, options, PIPELINE.name)


def beside(options: argparse.Namespace) -> SideTask:
    """Returns the task that translates the offsets of groups. The task counts each group and each offset once."""
    if options.groups is None:
        return dict
    source, target = client_settings(options), target_settings(options)
    translated: dict[str, set[TopicPartition]] = {}

    def translate() -> dict[str, int]:
        found = translate_groups(source, target, options.groups, options.prefix, options.alias)
        for group, tps in found.items():
            translated.setdefault(group, set()).update(tps)
        return {"groups_translated": len(translated), "offsets_translated": sum(map(len, translated.values()))}

    return translate


def check(options: argparse.Namespace) -> None:
    """Checks that both clusters answer, and that the source has the topics and groups. With --follow, groups may appear
    later."""
    with reached(client_settings(options), "--bootstrap") as source:
        matching_topics(source, options.topics)
        if options.groups is not None:
            matching_groups(source, options.groups, may_be_none=options.follow)
    with reached(target_settings(options), "--target-bootstrap") as target:
        target.list_groups()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topics",
        required=True,
        metavar="PATTERNS",
        help="Mirror the topics that one of these regular expressions matches, separated by commas; required.",
    )
    parser.add_argument(
        "--target-bootstrap",
        required=True,
        metavar="HOST:PORT",
        help="The address of a broker of the target cluster, or several separated by commas; required.",
    )
    parser.add_argument(
        "--target-kafka",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Set a setting of the target's clients; repeatable.",
    )
    parser.add_argument(
        "--prefix",
        default="",
        metavar="TEXT",
        help="Begin the names of the target's topics with this [default: nothing].",
    )
    parser.add_argument(
        "--alias", default="source", metavar="NAME", help="The source's name at the target [default: %(default)s]."
    )
    parser.add_argument(
        "--groups", metavar="PATTERN", help="Translate the offsets of groups that this regular expression matches."
    )


PIPELINE = Pipeline(name="mirror", doc=__doc__, add_arguments=add_arguments, check=check, start=start, beside=beside)

if __name__ == "__main__":
    sys.exit(run(PIPELINE, sys.argv[1:]))
