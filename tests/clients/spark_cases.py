"""The cases that Spark's Kafka connector and Klamm's data source must both answer, option by option.

Each case is one function of a connector. `result` is the result of both. If there is `klamm`, `result` is that of
Spark's connector. In this case, `why` explains why Klamm's result is better, or which feature is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.clients.spark_connectors import FAILS, QUERY_TIMEOUT_S, Connector, outcome, outcomes

_SAME: Final = object()


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    option: str
    query: str
    ask: Callable[[Connector], Any]
    result: Any
    klamm: Any
    why: str

    @property
    def name(self) -> str:
        return self.ask.__name__

    @property
    def differs(self) -> bool:
        return self.klamm is not _SAME

    def expected(self, format: str) -> Any:
        return self.klamm if self.differs and format == "klamm" else self.result


CASES: Final[list[Case]] = []


def case(option: str, query: str, result: Any, *, klamm: Any = _SAME, why: str = "") -> Callable[..., Any]:
    """Makes a case of a function."""

    def decorate(ask: Callable[[Connector], Any]) -> Callable[[Connector], Any]:
        CASES.append(Case(option, query, ask, result, klamm, why))
        return ask

    return decorate


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(partition): value for partition, value in enumerate(values)}})


@case("columns", "names and types, with headers", True)
def schema(connector: Connector) -> Any:
    frame = connector.frame(subscribe=connector.topic(), includeHeaders="true")
    return [(each.name, each.dataType.simpleString()) for each in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


@case(
    "columns",
    "a record with key, headers and time; one with null value",
    [["k", "v", 0, 0, 1.5, 0, "h=x"], [None, None, 0, 1, 2.5, 0, None]],
)
def columns(connector: Connector) -> Any:
    topic = connector.topic(**{"retention.ms": "-1"})
    connector.produce(topic, "v", key="k", headers=[("h", b"x")], timestamp=1500)
    connector.produce(topic, None, timestamp=2500)
    found = connector.frame(subscribe=topic, includeHeaders="true").selectExpr(
        "cast(key as string) key",
        "cast(value as string) value",
        "partition",
        "offset",
        "cast(timestamp as double) time",
        "timestampType",
        "concat(headers[0].key, '=', cast(headers[0].value as string)) header",
    )
    return [list(row) for row in found.orderBy("offset").collect()]


@case("columns", "a time in nanoseconds, which Spark's timestamps cannot hold", FAILS)
def too_late(connector: Connector) -> Any:
    topic = connector.topic(**{"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)})
    connector.produce(topic, "v", timestamp=1_700_000_000_000_000_000)
    return outcome(lambda: connector.frame(subscribe=topic).selectExpr("cast(timestamp as double) time").collect())


@case(
    "`.schema(...)`",
    "only two columns",
    FAILS,
    klamm=["offset", "value"],
    why="Spark cannot prune columns of a Python source, so a schema does: fewer bytes, twice as fast",
)
def projection(connector: Connector) -> Any:
    reader = connector.spark.read.format(connector.format).schema("offset LONG, value BINARY")
    return outcome(lambda: reader.options(**connector.options, subscribe=connector.topic()).load().columns)


@case("subscribe", "two topics", ["a", "b"])
def subscribe(connector: Connector) -> Any:
    return connector.read(subscribe=f"{connector.filled('a')}, {connector.filled('b')}")


@case("subscribe", "a topic that is not there", FAILS)
def subscribe_missing(connector: Connector) -> Any:
    return outcome(lambda: connector.read(subscribe=f"{connector.prefix}-nobody"))


@case("subscribe", "a topic without records", [])
def subscribe_empty(connector: Connector) -> Any:
    return connector.read(subscribe=connector.topic())


@case("subscribePattern", "part of the name", ["a", "b"])
def pattern(connector: Connector) -> Any:
    for value in "ab":
        connector.produce(connector.topic(suffix="-pattern"), value)
    return connector.read(subscribePattern=f"{connector.prefix}.*-patt")


@case(
    "subscribePattern",
    "Java's own syntax, `\\p{Digit}`",
    ["a"],
    klamm=FAILS,
    why="patterns are Python's; what Java alone has is refused by name",
)
def pattern_of_java(connector: Connector) -> Any:
    topic = connector.filled("a")
    return outcome(lambda: connector.read(subscribePattern=f"^{topic}$|\\p{{Digit}}nobody"))


@case("assign", "one of two partitions", ["b"])
def assign(connector: Connector) -> Any:
    topic = connector.filled("a")
    connector.produce(topic, "b", partition=1)
    return connector.read(assign=json.dumps({topic: [1]}))


@case("assign", "a partition that is not there", ["a"], klamm=FAILS, why="Spark's leaves it out in silence")
def assign_missing(connector: Connector) -> Any:
    topic = connector.filled("a")
    return outcome(lambda: connector.read(assign=json.dumps({topic: [0, 7]})))


@case("assign, subscribe", "both, or none", [FAILS, FAILS])
def strategies(connector: Connector) -> Any:
    topic = connector.topic()
    both = {"subscribe": topic, "assign": json.dumps({topic: [0]})}
    return outcomes([lambda: connector.read(**both), lambda: connector.read()])


@case("startingOffsets, endingOffsets", "by partition, -2 and -1 among them", ["b", "c", "x"])
def offsets(connector: Connector) -> Any:
    topic = connector.filled("a", "b", "c", "d")
    connector.produce(topic, "x", partition=1)
    return connector.read(
        subscribe=topic, startingOffsets=by_partition(topic, 1, -2), endingOffsets=by_partition(topic, 3, -1)
    )


@case("startingOffsets", "not all partitions named", FAILS)
def offsets_incomplete(connector: Connector) -> Any:
    topic = connector.filled("a")
    return outcome(lambda: connector.read(subscribe=topic, startingOffsets=by_partition(topic, 0)))


@case("startingOffsets, endingOffsets", "latest at a batch's start, earliest at its end", [FAILS, FAILS])
def empty_ranges(connector: Connector) -> Any:
    topic = connector.filled("a")
    return outcomes(
        [
            lambda: connector.read(subscribe=topic, startingOffsets="latest"),
            lambda: connector.read(subscribe=topic, endingOffsets="earliest"),
        ]
    )


@case("startingOffsets, endingOffsets", "a start behind the end", FAILS)
def crossed(connector: Connector) -> Any:
    topic = connector.filled("a", "b", "c")
    crossing = {"startingOffsets": by_partition(topic, 2, 0), "endingOffsets": by_partition(topic, 1, 0)}
    return outcome(lambda: connector.read(subscribe=topic, **crossing))


@case("endingOffsets", "in a stream", FAILS)
def stream_end(connector: Connector) -> Any:
    return outcome(connector.stream(subscribe=connector.topic(), endingOffsets="latest").run)


def timed(connector: Connector) -> str:
    """Writes a1, a2, a3 to partition 0 at 1, 2, 3 s, and b1 to partition 1 at 1 s. Retention would delete records of
    1970."""
    topic = connector.topic(**{"retention.ms": "-1"})
    for second in (1, 2, 3):
        connector.produce(topic, f"a{second}", timestamp=1000 * second)
    connector.produce(topic, "b1", partition=1, timestamp=1000)
    return topic


@case("startingTimestamp, endingTimestamp", "from 1 s to 3 s", ["a1", "a2", "b1"])
def times(connector: Connector) -> Any:
    return connector.read(subscribe=timed(connector), startingTimestamp="1000", endingTimestamp="3000")


@case("startingOffsetsByTimestamp, endingOffsetsByTimestamp", "by partition", [["a2", "a3", "b1"], ["a1"]])
def times_by_partition(connector: Connector) -> Any:
    topic = timed(connector)
    at = by_partition(topic, 2000, 1000)
    return [
        connector.read(subscribe=topic, startingOffsetsByTimestamp=at),
        connector.read(subscribe=topic, endingOffsetsByTimestamp=at),
    ]


@case("startingOffsetsByTimestampStrategy", "no record that late: error, latest", [FAILS, ["a3"]])
def strategy(connector: Connector) -> Any:
    late = {"subscribe": timed(connector), "startingTimestamp": "3000"}
    return outcomes(
        [lambda: connector.read(**late), lambda: connector.read(**late, startingOffsetsByTimestampStrategy="latest")]
    )


@case("precedence", "time for all before times by partition before offsets", [["a1", "a2", "a3", "b1"], ["a3", "b1"]])
def precedence(connector: Connector) -> Any:
    topic = timed(connector)
    both = {"startingOffsetsByTimestamp": by_partition(topic, 3000, 1000), "startingOffsets": "earliest"}
    return [connector.read(subscribe=topic, startingTimestamp="1000", **both), connector.read(subscribe=topic, **both)]


@case("failOnDataLoss", "batch: offsets that were deleted; true, false", [FAILS, ["d"]])
def deleted_in_batch(connector: Connector) -> Any:
    topic = connector.filled("a", "b", "c", "d")
    connector.delete_records(topic, 3)
    asked = {"subscribe": topic, "startingOffsets": by_partition(topic, 1, 0)}
    return outcomes([lambda: connector.read(**asked), lambda: connector.read(**asked, failOnDataLoss="false")])


@case("failOnDataLoss", "batch: an end that is not there yet; true, false", [FAILS, ["a"]])
def beyond_in_batch(connector: Connector) -> Any:
    topic = connector.filled("a")
    asked = {"subscribe": topic, "endingOffsets": by_partition(topic, 5, 0), "kafkaConsumer.pollTimeoutMs": "3000"}
    return outcomes([lambda: connector.read(**asked), lambda: connector.read(**asked, failOnDataLoss="false")])


def after_loss(connector: Connector, lose: Callable[[str], None], **options: str) -> list[Any]:
    """Returns what a stream that has read a, b and c reads after the loss, with failOnDataLoss true and false."""
    found = []
    for fail in ("true", "false"):
        topic = connector.filled("a", "b", "c")
        stream = connector.stream(subscribe=topic, failOnDataLoss=fail, **options)
        stream.run()
        lose(topic)
        found.append(outcome(stream.run))
    return found


@case("failOnDataLoss", "stream: retention passed it by; true, false", [FAILS, ["f"]])
def retention(connector: Connector) -> Any:
    def lose(topic: str) -> None:
        connector.produce(topic, "d", "e", "f")
        connector.delete_records(topic, 5)

    return after_loss(connector, lose)


@case(
    "failOnDataLoss",
    "stream: topic deleted and created again with fewer records; true, false",
    [FAILS, []],
    klamm=[FAILS, ["x"]],
    why="by its id it is another topic, and all of it is new",
)
def recreated_shorter(connector: Connector) -> Any:
    def lose(topic: str) -> None:
        connector.delete(topic)
        connector.create(topic)
        connector.produce(topic, "x")

    return after_loss(connector, lose)


@case(
    "failOnDataLoss",
    "stream: topic deleted and created again with more records; true, false",
    [["4"], ["4"]],
    klamm=[FAILS, ["1", "2", "3", "4"]],
    why="Spark's compares offsets only and leaves out records without a word",
)
def recreated_longer(connector: Connector) -> Any:
    def lose(topic: str) -> None:
        connector.delete(topic)
        connector.create(topic)
        connector.produce(topic, "1", "2", "3", "4")

    return after_loss(connector, lose)


@case(
    "failOnDataLoss",
    "stream: one of two topics deleted; true, false",
    [FAILS, FAILS],
    klamm=[FAILS, ["x"]],
    why="a stream that may lose records goes on with its other topics",
)
def one_deleted(connector: Connector) -> Any:
    found = []
    for fail in ("true", "false"):
        gone, kept = connector.filled("a"), connector.filled("b")
        stream = connector.stream(subscribe=f"{gone},{kept}", failOnDataLoss=fail)
        stream.run()
        connector.delete(gone)
        connector.produce(kept, "x")
        found.append(outcome(stream.run))
    return found


@case(
    "subscribe",
    "stream: one of two topics taken out for a later run; failOnDataLoss true, false",
    [FAILS, ["x"]],
    klamm=[["x"], ["x"]],
    why="a topic that is no longer asked for is not lost, and a warning names the offsets where it was left",
)
def one_taken_out(connector: Connector) -> Any:
    found = []
    for fail in ("true", "false"):
        left, kept = connector.filled("a"), connector.filled("b")
        stream = connector.stream(subscribe=f"{left},{kept}", failOnDataLoss=fail)
        stream.run()
        connector.produce(kept, "x")
        found.append(outcome(lambda stream=stream, kept=kept: stream.run(subscribe=kept)))
    return found


@case("startingOffsets", "stream: later runs go on from the checkpoint", [["a"], ["b"]])
def checkpoint(connector: Connector) -> Any:
    topic = connector.filled("a")
    stream = connector.stream(subscribe=topic)
    first = stream.run()
    connector.produce(topic, "b")
    return [first, stream.run(startingOffsets="latest")]


@case("startingOffsets", "stream: latest is the default, and is not forgotten before the first record", [[], ["b"]])
def latest_is_kept(connector: Connector) -> Any:
    topic = connector.filled("a")
    stream = connector.stream(subscribe=topic, startingOffsets="latest")
    first = stream.run()
    connector.produce(topic, "b")
    return [first, stream.run()]


@case("new partitions", "stream: read from the start", ["b"])
def new_partitions(connector: Connector) -> Any:
    topic = connector.filled("a")
    stream = connector.stream(subscribe=topic)
    stream.run()
    connector.grow(topic, 3)
    connector.produce(topic, "b", partition=2)
    return stream.run()


@case("subscribePattern", "stream: new topics read from the start", ["b"])
def new_topics(connector: Connector) -> Any:
    connector.produce(connector.topic(suffix="-grows"), "a")
    stream = connector.stream(subscribePattern=f"{connector.prefix}.*-grows")
    stream.run()
    connector.produce(connector.topic(suffix="-grows"), "b")
    return stream.run()


@case("maxOffsetsPerTrigger", "batches of a stream over partitions of 8 and 2 records, 5 at a time", [5, 5])
def max_offsets(connector: Connector) -> Any:
    topic = connector.filled(*map(str, range(8)))
    connector.produce(topic, "x", "y", partition=1)
    stream = connector.stream(subscribe=topic, maxOffsetsPerTrigger="5")
    stream.run()
    return stream.sizes


@case(
    "maxOffsetsPerTrigger",
    "over three partitions of 10 records, 10 at a time",
    [9, 9, 9, 3],
    klamm=[10, 10, 10],
    why="Spark's rounds each partition's share down",
)
def max_offsets_uneven(connector: Connector) -> Any:
    topic = connector.topic(3)
    for partition in range(3):
        connector.produce(topic, *map(str, range(10)), partition=partition)
    stream = connector.stream(subscribe=topic, maxOffsetsPerTrigger="10")
    stream.run()
    return stream.sizes


@case("maxOffsetsPerTrigger", "over two partitions of one record, 1 at a time", [2])
def max_offsets_below_partitions(connector: Connector) -> Any:
    topic = connector.filled("a")
    connector.produce(topic, "b", partition=1)
    stream = connector.stream(subscribe=topic, maxOffsetsPerTrigger="1")
    stream.run()
    return stream.sizes


@case("maxOffsetsPerTrigger", "with Trigger.Once: ignored", [10])
def once(connector: Connector) -> Any:
    stream = connector.stream(subscribe=connector.filled(*map(str, range(10))), maxOffsetsPerTrigger="4")
    stream.run("once")
    return stream.sizes


@case(
    "minOffsetsPerTrigger",
    "with Trigger.AvailableNow and a rest that is smaller",
    [4, 4],
    klamm=[4, 4, 2],
    why="what is available now is read to its end",
)
def min_offsets(connector: Connector) -> Any:
    stream = connector.stream(
        subscribe=connector.filled(*map(str, range(10))), maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4"
    )
    stream.run()
    return stream.sizes


@case("minOffsetsPerTrigger", "more than maxOffsetsPerTrigger", FAILS)
def min_above_max(connector: Connector) -> Any:
    stream = connector.stream(subscribe=connector.topic(), maxOffsetsPerTrigger="4", minOffsetsPerTrigger="5")
    return outcome(stream.run)


@case("maxOffsetsPerTrigger, minOffsetsPerTrigger", "in a batch: ignored", ["a", "b"])
def limits_in_batch(connector: Connector) -> Any:
    return connector.read(subscribe=connector.filled("a", "b"), maxOffsetsPerTrigger="1", minOffsetsPerTrigger="1")


@case("minPartitions", "6 tasks from two partitions of 600 records", 6)
def min_partitions(connector: Connector) -> Any:
    return connector.frame(subscribe=two_of_600(connector), minPartitions="6").rdd.getNumPartitions()


@case(
    "maxRecordsPerPartition",
    "at most 200 of 600 records in a task, in a batch",
    2,
    klamm=6,
    why="Spark's heeds it in streams only",
)
def max_records(connector: Connector) -> Any:
    return connector.frame(subscribe=two_of_600(connector), maxRecordsPerPartition="200").rdd.getNumPartitions()


@case(
    "tasks without options",
    "two partitions of 600 records",
    2,
    klamm=1,
    why="a Python task costs 20 ms: few records share one, up to `maxTasks`",
)
def tasks(connector: Connector) -> Any:
    return connector.frame(subscribe=two_of_600(connector)).rdd.getNumPartitions()


def two_of_600(connector: Connector) -> str:
    topic = connector.topic()
    for partition in range(2):
        connector.produce(topic, *map(str, range(600)), partition=partition)
    return topic


@case(
    "kafka.isolation.level",
    "committed, aborted and open transactions; read_committed, read_uncommitted",
    [["a"], ["a", "b", "c"]],
)
def isolation(connector: Connector) -> Any:
    topic = transactions(connector)
    return [
        connector.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"}),
        connector.read(subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"}),
    ]


@case(
    "kafka.isolation.level",
    "by default",
    ["a", "b", "c"],
    klamm=["a"],
    why="read_committed, so that nothing is computed from what may be aborted yet",
)
def default_isolation(connector: Connector) -> Any:
    return connector.read(subscribe=transactions(connector))


@case("kafka.isolation.level", "stream, read_committed: ends at the open transaction", ["a"])
def isolation_of_stream(connector: Connector) -> Any:
    return connector.stream(subscribe=transactions(connector), **{"kafka.isolation.level": "read_committed"}).run()


def transactions(connector: Connector) -> str:
    """a committed, b aborted, c open."""
    topic = connector.topic(1)
    connector.transactional(topic, ("a", "commit"), ("b", "abort"), ("c", "leave"))
    return topic


@case("kafka.group.id, groupIdPrefix", "both", ["a"])
def groups(connector: Connector) -> Any:
    named = {"kafka.group.id": f"{connector.prefix}-g", "groupIdPrefix": "p"}
    return connector.read(subscribe=connector.filled("a"), **named)


@case("kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries, fetchOffset.retryIntervalMs", "set", ["a"])
def patience(connector: Connector) -> Any:
    options = {
        "kafkaConsumer.pollTimeoutMs": "20000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "20",
    }
    return connector.read(subscribe=connector.filled("a"), **options)


@case("kafka.auto.offset.reset, kafka.enable.auto.commit, kafka.interceptor.classes", "set", [FAILS] * 3)
def forbidden(connector: Connector) -> Any:
    topic = connector.topic()
    given = {"kafka.auto.offset.reset": "latest", "kafka.enable.auto.commit": "true", "kafka.interceptor.classes": "x"}
    return outcomes([lambda pair=pair: connector.read(subscribe=topic, **dict([pair])) for pair in given.items()])


@case("a misspelt option", "`startingOfsets`", ["a"], klamm=FAILS, why="and the nearest name is offered")
def unknown(connector: Connector) -> Any:
    topic = connector.filled("a")
    return outcome(lambda: connector.read(subscribe=topic, startingOfsets="latest"))


@case("progress", "`endOffset` of a stream's progress", [{"0": 1, "1": 0}])
def progress(connector: Connector) -> Any:
    topic = connector.filled("a")
    stream = connector.stream(subscribe=topic)
    stream.run()
    ends = [end["endOffset"] for end in stream.ends]
    return [(end.get("offsets") or end)[topic] for end in ends]


@case(
    "progress",
    "`metrics` of a stream's source: offsets behind the latest",
    True,
    klamm=False,
    why="Spark asks only JVM sources for metrics; the same ones are in `latestOffset` and in `source_metrics(source)`",
)
def metrics(connector: Connector) -> Any:
    stream = connector.stream(subscribe=connector.filled("a"))
    stream.run()
    return "avgOffsetsBehindLatest" in (stream.ends[0].get("metrics") or {})


def kafka_rows(connector: Connector, columns: str, *rows: tuple[Any, ...]) -> Any:
    return connector.spark.createDataFrame(list(rows), columns)


def written(connector: Connector, topic: str) -> list[Any]:
    found = connector.frame(subscribe=topic, includeHeaders="true").selectExpr(
        "partition", "cast(key as string) key", "cast(value as string) value", "headers[0].key header"
    )
    return sorted((list(row) for row in found.collect()), key=str)


@case("sink: key, value, headers, partition", "every column, nulls too", [[0, None, None, None], [1, "k", "v", "h"]])
def sink_columns(connector: Connector) -> Any:
    topic = connector.topic()
    columns = "topic STRING, key STRING, value STRING, partition INT, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    frame = kafka_rows(connector, columns, (topic, "k", "v", 1, [("h", b"x")]), (topic, None, None, 0, None))
    connector.write(frame, includeHeaders="true")
    return written(connector, topic)


@case("sink: includeHeaders", "not set, with a column headers", "h")
def sink_headers(connector: Connector) -> Any:
    topic = connector.topic()
    columns = "value STRING, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    connector.write(kafka_rows(connector, columns, ("v", [("h", b"x")])), topic=topic)
    return written(connector, topic)[0][3]


@case("sink: topic", "the option goes before the column", ["v"])
def sink_topic(connector: Connector) -> Any:
    topic = connector.topic()
    connector.write(
        kafka_rows(connector, "topic STRING, value STRING", (f"{connector.prefix}-nobody", "v")), topic=topic
    )
    return connector.read(subscribe=topic)


@case("sink: topic", "neither option nor column; a null in the column", [FAILS, FAILS])
def sink_without_topic(connector: Connector) -> Any:
    without, null = (
        kafka_rows(connector, "value STRING", ("v",)),
        kafka_rows(connector, "topic STRING, value STRING", (None, "v")),
    )
    return outcomes([lambda: connector.write(without), lambda: connector.write(null)])


@case("sink: value", "no such column; a number", [FAILS, FAILS])
def sink_values(connector: Connector) -> Any:
    topic = connector.topic()
    bad = kafka_rows(connector, "key STRING", ("k",)), kafka_rows(connector, "value INT", (1,))
    return outcomes([lambda frame=frame: connector.write(frame, topic=topic) for frame in bad])


@case("sink: partitioner", "records of a key where Kafka's producers put them", True)
def sink_partitions(connector: Connector) -> Any:
    topics = [connector.topic(5), connector.topic(5)]
    keys = [f"key {number}" for number in range(40)]
    connector.write(kafka_rows(connector, "key STRING, value STRING", *((key, key) for key in keys)), topic=topics[0])
    reference = kafka_rows(connector, "key STRING, value STRING", *((key, key) for key in keys))
    reference.write.format("kafka").options(**connector.kafka_options, topic=topics[1]).mode("append").save()
    return written(connector, topics[0]) == written(connector, topics[1])


def counts_to(connector: Connector, mode: str) -> Any:
    """A stream's counts by value, written in this output mode."""
    target = connector.topic()
    frame = (
        connector.spark.readStream.format(connector.format)
        .options(**connector.options, subscribe=connector.filled("a", "b", "a"), startingOffsets="earliest")
        .load()
        .groupBy("value")
        .count()
        .selectExpr("value key", "cast(count as string) value")
    )
    query = (
        frame.writeStream.format(connector.format)
        .options(**connector.options, topic=target, checkpointLocation=str(connector.directory / target))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(QUERY_TIMEOUT_S)
    return connector.read(subscribe=target)


@case(
    "sink: output modes",
    "an aggregate in update mode",
    ["1", "2"],
    klamm=FAILS,
    why="Spark gives Python sinks append mode only; `foreachBatch` writes in any",
)
def sink_update(connector: Connector) -> Any:
    return outcome(lambda: counts_to(connector, "update"))


@case("sink: streaming", "topic to topic, stopped and gone on with", ["a", "b"])
def sink_stream(connector: Connector) -> Any:
    source, target = connector.filled("a"), connector.topic()
    for value in (None, "b"):
        if value:
            connector.produce(source, value)
        frame = connector.spark.readStream.format(connector.format).options(
            **connector.options, subscribe=source, startingOffsets="earliest"
        )
        query = (
            frame.load()
            .select("key", "value")
            .writeStream.format(connector.format)
            .options(**connector.options, topic=target, checkpointLocation=str(connector.directory / target))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(QUERY_TIMEOUT_S)
    return connector.read(subscribe=target)
