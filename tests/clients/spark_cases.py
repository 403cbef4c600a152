"""The cases that Spark's Kafka connector and Klamm's data source must both answer, option by option.

Each case is one function of a door. `result` is the result of both. If there is `klamm`, `result` is that of Spark's
connector. In this case, `why` explains why Klamm's result is better, or which feature is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.clients.spark_doors import FAILS, QUERY_TIMEOUT_S, Door, outcome, outcomes

_SAME: Final = object()


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    option: str
    query: str
    ask: Callable[[Door], Any]
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

    def decorate(ask: Callable[[Door], Any]) -> Callable[[Door], Any]:
        CASES.append(Case(option, query, ask, result, klamm, why))
        return ask

    return decorate


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(partition): value for partition, value in enumerate(values)}})


@case("columns", "names and types, with headers", True)
def schema(door: Door) -> Any:
    frame = door.frame(subscribe=door.topic(), includeHeaders="true")
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
def columns(door: Door) -> Any:
    topic = door.topic(**{"retention.ms": "-1"})
    door.produce(topic, "v", key="k", headers=[("h", b"x")], timestamp=1500)
    door.produce(topic, None, timestamp=2500)
    found = door.frame(subscribe=topic, includeHeaders="true").selectExpr(
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
def too_late(door: Door) -> Any:
    topic = door.topic(**{"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)})
    door.produce(topic, "v", timestamp=1_700_000_000_000_000_000)
    return outcome(lambda: door.frame(subscribe=topic).selectExpr("cast(timestamp as double) time").collect())


@case(
    "`.schema(...)`",
    "only two columns",
    FAILS,
    klamm=["offset", "value"],
    why="Spark cannot prune columns of a Python source, so a schema does: fewer bytes, twice as fast",
)
def projection(door: Door) -> Any:
    reader = door.spark.read.format(door.format).schema("offset LONG, value BINARY")
    return outcome(lambda: reader.options(**door.options, subscribe=door.topic()).load().columns)


@case("subscribe", "two topics", ["a", "b"])
def subscribe(door: Door) -> Any:
    return door.read(subscribe=f"{door.filled('a')}, {door.filled('b')}")


@case("subscribe", "a topic that is not there", FAILS)
def subscribe_missing(door: Door) -> Any:
    return outcome(lambda: door.read(subscribe=f"{door.prefix}-nobody"))


@case("subscribe", "a topic without records", [])
def subscribe_empty(door: Door) -> Any:
    return door.read(subscribe=door.topic())


@case("subscribePattern", "part of the name", ["a", "b"])
def pattern(door: Door) -> Any:
    for value in "ab":
        door.produce(door.topic(suffix="-pattern"), value)
    return door.read(subscribePattern=f"{door.prefix}.*-patt")


@case(
    "subscribePattern",
    "Java's own syntax, `\\p{Digit}`",
    ["a"],
    klamm=FAILS,
    why="patterns are Python's; what Java alone has is refused by name",
)
def pattern_of_java(door: Door) -> Any:
    topic = door.filled("a")
    return outcome(lambda: door.read(subscribePattern=f"^{topic}$|\\p{{Digit}}nobody"))


@case("assign", "one of two partitions", ["b"])
def assign(door: Door) -> Any:
    topic = door.filled("a")
    door.produce(topic, "b", partition=1)
    return door.read(assign=json.dumps({topic: [1]}))


@case("assign", "a partition that is not there", ["a"], klamm=FAILS, why="Spark's leaves it out in silence")
def assign_missing(door: Door) -> Any:
    topic = door.filled("a")
    return outcome(lambda: door.read(assign=json.dumps({topic: [0, 7]})))


@case("assign, subscribe", "both, or none", [FAILS, FAILS])
def strategies(door: Door) -> Any:
    topic = door.topic()
    both = {"subscribe": topic, "assign": json.dumps({topic: [0]})}
    return outcomes([lambda: door.read(**both), lambda: door.read()])


@case("startingOffsets, endingOffsets", "by partition, -2 and -1 among them", ["b", "c", "x"])
def offsets(door: Door) -> Any:
    topic = door.filled("a", "b", "c", "d")
    door.produce(topic, "x", partition=1)
    return door.read(
        subscribe=topic, startingOffsets=by_partition(topic, 1, -2), endingOffsets=by_partition(topic, 3, -1)
    )


@case("startingOffsets", "not all partitions named", FAILS)
def offsets_incomplete(door: Door) -> Any:
    topic = door.filled("a")
    return outcome(lambda: door.read(subscribe=topic, startingOffsets=by_partition(topic, 0)))


@case("startingOffsets, endingOffsets", "latest at a batch's start, earliest at its end", [FAILS, FAILS])
def empty_ranges(door: Door) -> Any:
    topic = door.filled("a")
    return outcomes(
        [
            lambda: door.read(subscribe=topic, startingOffsets="latest"),
            lambda: door.read(subscribe=topic, endingOffsets="earliest"),
        ]
    )


@case("startingOffsets, endingOffsets", "a start behind the end", FAILS)
def crossed(door: Door) -> Any:
    topic = door.filled("a", "b", "c")
    crossing = {"startingOffsets": by_partition(topic, 2, 0), "endingOffsets": by_partition(topic, 1, 0)}
    return outcome(lambda: door.read(subscribe=topic, **crossing))


@case("endingOffsets", "in a stream", FAILS)
def stream_end(door: Door) -> Any:
    return outcome(door.stream(subscribe=door.topic(), endingOffsets="latest").run)


def timed(door: Door) -> str:
    """Writes a1, a2, a3 to partition 0 at 1, 2, 3 s, and b1 to partition 1 at 1 s. Retention would delete records of
    1970."""
    topic = door.topic(**{"retention.ms": "-1"})
    for second in (1, 2, 3):
        door.produce(topic, f"a{second}", timestamp=1000 * second)
    door.produce(topic, "b1", partition=1, timestamp=1000)
    return topic


@case("startingTimestamp, endingTimestamp", "from 1 s to 3 s", ["a1", "a2", "b1"])
def times(door: Door) -> Any:
    return door.read(subscribe=timed(door), startingTimestamp="1000", endingTimestamp="3000")


@case("startingOffsetsByTimestamp, endingOffsetsByTimestamp", "by partition", [["a2", "a3", "b1"], ["a1"]])
def times_by_partition(door: Door) -> Any:
    topic = timed(door)
    at = by_partition(topic, 2000, 1000)
    return [
        door.read(subscribe=topic, startingOffsetsByTimestamp=at),
        door.read(subscribe=topic, endingOffsetsByTimestamp=at),
    ]


@case("startingOffsetsByTimestampStrategy", "no record that late: error, latest", [FAILS, ["a3"]])
def strategy(door: Door) -> Any:
    late = {"subscribe": timed(door), "startingTimestamp": "3000"}
    return outcomes([lambda: door.read(**late), lambda: door.read(**late, startingOffsetsByTimestampStrategy="latest")])


@case("precedence", "time for all before times by partition before offsets", [["a1", "a2", "a3", "b1"], ["a3", "b1"]])
def precedence(door: Door) -> Any:
    topic = timed(door)
    both = {"startingOffsetsByTimestamp": by_partition(topic, 3000, 1000), "startingOffsets": "earliest"}
    return [door.read(subscribe=topic, startingTimestamp="1000", **both), door.read(subscribe=topic, **both)]


@case("failOnDataLoss", "batch: offsets that were deleted; true, false", [FAILS, ["d"]])
def deleted_in_batch(door: Door) -> Any:
    topic = door.filled("a", "b", "c", "d")
    door.delete_records(topic, 3)
    asked = {"subscribe": topic, "startingOffsets": by_partition(topic, 1, 0)}
    return outcomes([lambda: door.read(**asked), lambda: door.read(**asked, failOnDataLoss="false")])


@case("failOnDataLoss", "batch: an end that is not there yet; true, false", [FAILS, ["a"]])
def beyond_in_batch(door: Door) -> Any:
    topic = door.filled("a")
    asked = {"subscribe": topic, "endingOffsets": by_partition(topic, 5, 0), "kafkaConsumer.pollTimeoutMs": "3000"}
    return outcomes([lambda: door.read(**asked), lambda: door.read(**asked, failOnDataLoss="false")])


def after_loss(door: Door, lose: Callable[[str], None], **options: str) -> list[Any]:
    """Returns what a stream that has read a, b and c reads after the loss, with failOnDataLoss true and false."""
    found = []
    for fail in ("true", "false"):
        topic = door.filled("a", "b", "c")
        stream = door.stream(subscribe=topic, failOnDataLoss=fail, **options)
        stream.run()
        lose(topic)
        found.append(outcome(stream.run))
    return found


@case("failOnDataLoss", "stream: retention passed it by; true, false", [FAILS, ["f"]])
def retention(door: Door) -> Any:
    def lose(topic: str) -> None:
        door.produce(topic, "d", "e", "f")
        door.delete_records(topic, 5)

    return after_loss(door, lose)


@case(
    "failOnDataLoss",
    "stream: topic deleted and created again with fewer records; true, false",
    [FAILS, []],
    klamm=[FAILS, ["x"]],
    why="by its id it is another topic, and all of it is new",
)
def recreated_shorter(door: Door) -> Any:
    def lose(topic: str) -> None:
        door.delete(topic)
        door.create(topic)
        door.produce(topic, "x")

    return after_loss(door, lose)


@case(
    "failOnDataLoss",
    "stream: topic deleted and created again with more records; true, false",
    [["4"], ["4"]],
    klamm=[FAILS, ["1", "2", "3", "4"]],
    why="Spark's compares offsets only and leaves out records without a word",
)
def recreated_longer(door: Door) -> Any:
    def lose(topic: str) -> None:
        door.delete(topic)
        door.create(topic)
        door.produce(topic, "1", "2", "3", "4")

    return after_loss(door, lose)


@case(
    "failOnDataLoss",
    "stream: one of two topics deleted; true, false",
    [FAILS, FAILS],
    klamm=[FAILS, ["x"]],
    why="a stream that may lose records goes on with its other topics",
)
def one_deleted(door: Door) -> Any:
    found = []
    for fail in ("true", "false"):
        gone, kept = door.filled("a"), door.filled("b")
        stream = door.stream(subscribe=f"{gone},{kept}", failOnDataLoss=fail)
        stream.run()
        door.delete(gone)
        door.produce(kept, "x")
        found.append(outcome(stream.run))
    return found


@case(
    "subscribe",
    "stream: one of two topics taken out for a later run; failOnDataLoss true, false",
    [FAILS, ["x"]],
    klamm=[["x"], ["x"]],
    why="a topic that is no longer asked for is not lost, and a warning names the offsets where it was left",
)
def one_taken_out(door: Door) -> Any:
    found = []
    for fail in ("true", "false"):
        left, kept = door.filled("a"), door.filled("b")
        stream = door.stream(subscribe=f"{left},{kept}", failOnDataLoss=fail)
        stream.run()
        door.produce(kept, "x")
        found.append(outcome(lambda stream=stream, kept=kept: stream.run(subscribe=kept)))
    return found


@case("startingOffsets", "stream: later runs go on from the checkpoint", [["a"], ["b"]])
def checkpoint(door: Door) -> Any:
    topic = door.filled("a")
    stream = door.stream(subscribe=topic)
    first = stream.run()
    door.produce(topic, "b")
    return [first, stream.run(startingOffsets="latest")]


@case("startingOffsets", "stream: latest is the default, and is not forgotten before the first record", [[], ["b"]])
def latest_is_kept(door: Door) -> Any:
    topic = door.filled("a")
    stream = door.stream(subscribe=topic, startingOffsets="latest")
    first = stream.run()
    door.produce(topic, "b")
    return [first, stream.run()]


@case("new partitions", "stream: read from the start", ["b"])
def new_partitions(door: Door) -> Any:
    topic = door.filled("a")
    stream = door.stream(subscribe=topic)
    stream.run()
    door.grow(topic, 3)
    door.produce(topic, "b", partition=2)
    return stream.run()


@case("subscribePattern", "stream: new topics read from the start", ["b"])
def new_topics(door: Door) -> Any:
    door.produce(door.topic(suffix="-grows"), "a")
    stream = door.stream(subscribePattern=f"{door.prefix}.*-grows")
    stream.run()
    door.produce(door.topic(suffix="-grows"), "b")
    return stream.run()


@case("maxOffsetsPerTrigger", "batches of a stream over partitions of 8 and 2 records, 5 at a time", [5, 5])
def max_offsets(door: Door) -> Any:
    topic = door.filled(*map(str, range(8)))
    door.produce(topic, "x", "y", partition=1)
    stream = door.stream(subscribe=topic, maxOffsetsPerTrigger="5")
    stream.run()
    return stream.sizes


@case(
    "maxOffsetsPerTrigger",
    "over three partitions of 10 records, 10 at a time",
    [9, 9, 9, 3],
    klamm=[10, 10, 10],
    why="Spark's rounds each partition's share down",
)
def max_offsets_uneven(door: Door) -> Any:
    topic = door.topic(3)
    for partition in range(3):
        door.produce(topic, *map(str, range(10)), partition=partition)
    stream = door.stream(subscribe=topic, maxOffsetsPerTrigger="10")
    stream.run()
    return stream.sizes


@case("maxOffsetsPerTrigger", "over two partitions of one record, 1 at a time", [2])
def max_offsets_below_partitions(door: Door) -> Any:
    topic = door.filled("a")
    door.produce(topic, "b", partition=1)
    stream = door.stream(subscribe=topic, maxOffsetsPerTrigger="1")
    stream.run()
    return stream.sizes


@case("maxOffsetsPerTrigger", "with Trigger.Once: ignored", [10])
def once(door: Door) -> Any:
    stream = door.stream(subscribe=door.filled(*map(str, range(10))), maxOffsetsPerTrigger="4")
    stream.run("once")
    return stream.sizes


@case(
    "minOffsetsPerTrigger",
    "with Trigger.AvailableNow and a rest that is smaller",
    [4, 4],
    klamm=[4, 4, 2],
    why="what is available now is read to its end",
)
def min_offsets(door: Door) -> Any:
    stream = door.stream(
        subscribe=door.filled(*map(str, range(10))), maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4"
    )
    stream.run()
    return stream.sizes


@case("minOffsetsPerTrigger", "more than maxOffsetsPerTrigger", FAILS)
def min_above_max(door: Door) -> Any:
    stream = door.stream(subscribe=door.topic(), maxOffsetsPerTrigger="4", minOffsetsPerTrigger="5")
    return outcome(stream.run)


@case("maxOffsetsPerTrigger, minOffsetsPerTrigger", "in a batch: ignored", ["a", "b"])
def limits_in_batch(door: Door) -> Any:
    return door.read(subscribe=door.filled("a", "b"), maxOffsetsPerTrigger="1", minOffsetsPerTrigger="1")


@case("minPartitions", "6 tasks from two partitions of 600 records", 6)
def min_partitions(door: Door) -> Any:
    return door.frame(subscribe=two_of_600(door), minPartitions="6").rdd.getNumPartitions()


@case(
    "maxRecordsPerPartition",
    "at most 200 of 600 records in a task, in a batch",
    2,
    klamm=6,
    why="Spark's heeds it in streams only",
)
def max_records(door: Door) -> Any:
    return door.frame(subscribe=two_of_600(door), maxRecordsPerPartition="200").rdd.getNumPartitions()


@case(
    "tasks without options",
    "two partitions of 600 records",
    2,
    klamm=1,
    why="a Python task costs 20 ms: few records share one, up to `maxTasks`",
)
def tasks(door: Door) -> Any:
    return door.frame(subscribe=two_of_600(door)).rdd.getNumPartitions()


def two_of_600(door: Door) -> str:
    topic = door.topic()
    for partition in range(2):
        door.produce(topic, *map(str, range(600)), partition=partition)
    return topic


@case(
    "kafka.isolation.level",
    "committed, aborted and open transactions; read_committed, read_uncommitted",
    [["a"], ["a", "b", "c"]],
)
def isolation(door: Door) -> Any:
    topic = transactions(door)
    return [
        door.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"}),
        door.read(subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"}),
    ]


@case(
    "kafka.isolation.level",
    "by default",
    ["a", "b", "c"],
    klamm=["a"],
    why="read_committed, so that nothing is computed from what may be aborted yet",
)
def default_isolation(door: Door) -> Any:
    return door.read(subscribe=transactions(door))


@case("kafka.isolation.level", "stream, read_committed: ends at the open transaction", ["a"])
def isolation_of_stream(door: Door) -> Any:
    return door.stream(subscribe=transactions(door), **{"kafka.isolation.level": "read_committed"}).run()


def transactions(door: Door) -> str:
    """a committed, b aborted, c open."""
    topic = door.topic(1)
    door.transactional(topic, ("a", "commit"), ("b", "abort"), ("c", "leave"))
    return topic


@case("kafka.group.id, groupIdPrefix", "both", ["a"])
def groups(door: Door) -> Any:
    named = {"kafka.group.id": f"{door.prefix}-g", "groupIdPrefix": "p"}
    return door.read(subscribe=door.filled("a"), **named)


@case("kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries, fetchOffset.retryIntervalMs", "set", ["a"])
def patience(door: Door) -> Any:
    options = {
        "kafkaConsumer.pollTimeoutMs": "20000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "20",
    }
    return door.read(subscribe=door.filled("a"), **options)


@case("kafka.auto.offset.reset, kafka.enable.auto.commit, kafka.interceptor.classes", "set", [FAILS] * 3)
def forbidden(door: Door) -> Any:
    topic = door.topic()
    given = {"kafka.auto.offset.reset": "latest", "kafka.enable.auto.commit": "true", "kafka.interceptor.classes": "x"}
    return outcomes([lambda pair=pair: door.read(subscribe=topic, **dict([pair])) for pair in given.items()])


@case("a misspelt option", "`startingOfsets`", ["a"], klamm=FAILS, why="and the nearest name is offered")
def unknown(door: Door) -> Any:
    topic = door.filled("a")
    return outcome(lambda: door.read(subscribe=topic, startingOfsets="latest"))


@case("progress", "`endOffset` of a stream's progress", [{"0": 1, "1": 0}])
def progress(door: Door) -> Any:
    topic = door.filled("a")
    stream = door.stream(subscribe=topic)
    stream.run()
    ends = [each["endOffset"] for each in stream.ends]
    return [(each.get("offsets") or each)[topic] for each in ends]


@case(
    "progress",
    "`metrics` of a stream's source: offsets behind the latest",
    True,
    klamm=False,
    why="Spark asks only JVM sources for metrics; the same ones are in `latestOffset` and in `source_metrics(source)`",
)
def metrics(door: Door) -> Any:
    stream = door.stream(subscribe=door.filled("a"))
    stream.run()
    return "avgOffsetsBehindLatest" in (stream.ends[0].get("metrics") or {})


def kafka_rows(door: Door, columns: str, *rows: tuple[Any, ...]) -> Any:
    return door.spark.createDataFrame(list(rows), columns)


def written(door: Door, topic: str) -> list[Any]:
    found = door.frame(subscribe=topic, includeHeaders="true").selectExpr(
        "partition", "cast(key as string) key", "cast(value as string) value", "headers[0].key header"
    )
    return sorted((list(row) for row in found.collect()), key=str)


@case("sink: key, value, headers, partition", "every column, nulls too", [[0, None, None, None], [1, "k", "v", "h"]])
def sink_columns(door: Door) -> Any:
    topic = door.topic()
    columns = "topic STRING, key STRING, value STRING, partition INT, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    frame = kafka_rows(door, columns, (topic, "k", "v", 1, [("h", b"x")]), (topic, None, None, 0, None))
    door.write(frame, includeHeaders="true")
    return written(door, topic)


@case("sink: includeHeaders", "not set, with a column headers", "h")
def sink_headers(door: Door) -> Any:
    topic = door.topic()
    columns = "value STRING, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    door.write(kafka_rows(door, columns, ("v", [("h", b"x")])), topic=topic)
    return written(door, topic)[0][3]


@case("sink: topic", "the option goes before the column", ["v"])
def sink_topic(door: Door) -> Any:
    topic = door.topic()
    door.write(kafka_rows(door, "topic STRING, value STRING", (f"{door.prefix}-nobody", "v")), topic=topic)
    return door.read(subscribe=topic)


@case("sink: topic", "neither option nor column; a null in the column", [FAILS, FAILS])
def sink_without_topic(door: Door) -> Any:
    without, null = (
        kafka_rows(door, "value STRING", ("v",)),
        kafka_rows(door, "topic STRING, value STRING", (None, "v")),
    )
    return outcomes([lambda: door.write(without), lambda: door.write(null)])


@case("sink: value", "no such column; a number", [FAILS, FAILS])
def sink_values(door: Door) -> Any:
    topic = door.topic()
    bad = kafka_rows(door, "key STRING", ("k",)), kafka_rows(door, "value INT", (1,))
    return outcomes([lambda frame=frame: door.write(frame, topic=topic) for frame in bad])


@case("sink: partitioner", "records of a key where Kafka's producers put them", True)
def sink_partitions(door: Door) -> Any:
    topics = [door.topic(5), door.topic(5)]
    keys = [f"key {number}" for number in range(40)]
    door.write(kafka_rows(door, "key STRING, value STRING", *((key, key) for key in keys)), topic=topics[0])
    reference = kafka_rows(door, "key STRING, value STRING", *((key, key) for key in keys))
    reference.write.format("kafka").options(**door.kafka_options, topic=topics[1]).mode("append").save()
    return written(door, topics[0]) == written(door, topics[1])


def counts_to(door: Door, mode: str) -> Any:
    """A stream's counts by value, written in this output mode."""
    target = door.topic()
    frame = (
        door.spark.readStream.format(door.format)
        .options(**door.options, subscribe=door.filled("a", "b", "a"), startingOffsets="earliest")
        .load()
        .groupBy("value")
        .count()
        .selectExpr("value key", "cast(count as string) value")
    )
    query = (
        frame.writeStream.format(door.format)
        .options(**door.options, topic=target, checkpointLocation=str(door.directory / target))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(QUERY_TIMEOUT_S)
    return door.read(subscribe=target)


@case(
    "sink: output modes",
    "an aggregate in update mode",
    ["1", "2"],
    klamm=FAILS,
    why="Spark gives Python sinks append mode only; `foreachBatch` writes in any",
)
def sink_update(door: Door) -> Any:
    return outcome(lambda: counts_to(door, "update"))


@case("sink: streaming", "topic to topic, stopped and gone on with", ["a", "b"])
def sink_stream(door: Door) -> Any:
    source, target = door.filled("a"), door.topic()
    for value in (None, "b"):
        if value:
            door.produce(source, value)
        frame = door.spark.readStream.format(door.format).options(
            **door.options, subscribe=source, startingOffsets="earliest"
        )
        query = (
            frame.load()
            .select("key", "value")
            .writeStream.format(door.format)
            .options(**door.options, topic=target, checkpointLocation=str(door.directory / target))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(QUERY_TIMEOUT_S)
    return door.read(subscribe=target)
