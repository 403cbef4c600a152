"""Tests the data source on a real Spark and a real cluster: batch and streaming, source and sink."""

from __future__ import annotations

import datetime
import json

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm.errors import ConfigError
from pyspark_klamm import offsets_behind_latest, source_metrics
from tests.support.klamm_process import KlammProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

UTC = datetime.UTC


@pytest.fixture
def topic(cluster, request) -> str:
    """Creates a topic with two partitions for this test only."""
    name = request.node.name.replace("[", "-").replace("]", "")
    create_topic(cluster, name)
    return name


def create_topic(cluster: KlammProcess, name: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=2, configs={"retention.ms": "-1"})])  # some records are old


def produce(cluster: KlammProcess, topic: str, values: list[str], partition: int = 0) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        futures = [producer.send(topic, value.encode(), partition=partition) for value in values]
        producer.flush()
        for future in futures:
            future.result()


def reader(spark, cluster, topic, **options):
    return spark.read.format("klamm").options(
        **{"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options}
    )


def read_values(spark, cluster, topic, **options) -> list[str]:
    rows = reader(spark, cluster, topic, **options).schema("value BINARY").load().collect()
    return sorted(bytes(row.value).decode() for row in rows)


def stream(spark, cluster, topic, **options):
    return (
        spark.readStream.format("klamm")
        .options(**{"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options})
        .load()
    )


def to_topic(frame, cluster, topic, checkpoint):
    return (
        frame.writeStream.format("klamm")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
    )


def run_to_end(writer):
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_every_column_of_every_kind_of_record_arrives(spark, cluster, topic):
    at = datetime.datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type="zstd") as producer:
        stamp = int(at.timestamp() * 1000)
        producer.send(topic, b"v0", key=b"k0", partition=0, timestamp_ms=stamp, headers=[("h", b"1"), ("n", None)])
        producer.send(topic, None, key=b"k1", partition=0, timestamp_ms=stamp)
        producer.send(topic, b"", key=None, partition=1, timestamp_ms=stamp)
    frame = reader(spark, cluster, topic, includeHeaders="true").load()
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    rows = [row.asDict(recursive=True) for row in frame.orderBy("partition", "offset").collect()]
    common = {"topic": topic, "timestamp": at.replace(tzinfo=None), "timestampType": 0}
    for row in rows:
        row["timestamp"] = row["timestamp"].astimezone(UTC).replace(tzinfo=None)
    headers = [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert rows == [
        {**common, "key": b"k0", "value": b"v0", "partition": 0, "offset": 0, "headers": headers},
        {**common, "key": b"k1", "value": None, "partition": 0, "offset": 1, "headers": None},
        {**common, "key": None, "value": b"", "partition": 1, "offset": 0, "headers": None},
    ]


def test_a_batch_reads_just_the_offsets_asked_for(spark, cluster, topic):
    produce(cluster, topic, [f"a{number}" for number in range(10)], partition=0)
    produce(cluster, topic, [f"b{number}" for number in range(10)], partition=1)
    start = json.dumps({topic: {"0": 3, "1": -2}})
    end = json.dumps({topic: {"0": 5, "1": -1}})
    values = read_values(spark, cluster, topic, startingOffsets=start, endingOffsets=end)
    assert values == ["a3", "a4", *sorted(f"b{number}" for number in range(10))]


def test_a_topic_without_records_is_an_empty_table(spark, cluster, topic):
    assert read_values(spark, cluster, topic) == []


def test_large_reads_are_split_and_complete(spark, cluster, topic):
    values = [f"{number:06}" for number in range(30_000)]
    produce(cluster, topic, values, partition=1)
    frame = reader(spark, cluster, topic, maxTasks="3").schema("offset LONG, value BINARY").load()
    assert frame.rdd.getNumPartitions() == 3
    rows = sorted((row.offset, bytes(row.value).decode()) for row in frame.collect())
    assert rows == list(enumerate(values))


def test_rows_become_records_with_the_topic_partition_key_and_headers_of_their_columns(spark, cluster, topic):
    schema = "topic STRING, key STRING, value STRING, partition INT, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    rows = [(topic, "k", "v", 1, [("h", b"x")]), (topic, None, None, 0, None)]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("klamm").option("kafka.bootstrap.servers", cluster.bootstrap).mode("append").save()
    found = reader(spark, cluster, topic, includeHeaders="true").load().orderBy("partition").collect()
    assert [(row.partition, row.key, row.value, row.headers) for row in found] == [
        (0, None, None, None),
        (1, b"k", b"v", [(("h"), b"x")]),
    ]


def test_a_record_has_the_timestamp_of_its_row_with_the_option_include_timestamp(spark, cluster, topic):
    at = datetime.datetime(2013, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)
    frame = spark.createDataFrame([("v", at), ("now", None)], "value STRING, timestamp TIMESTAMP").coalesce(1)
    writer = frame.write.format("klamm").option("kafka.bootstrap.servers", cluster.bootstrap).option("topic", topic)
    writer.mode("append").save()
    writer.option("includeTimestamp", "true").mode("append").save()
    rows = reader(spark, cluster, topic).schema("value BINARY, timestamp TIMESTAMP").load().collect()
    times = sorted(row.timestamp.astimezone(UTC) for row in rows)
    assert times[0] == at.replace(microsecond=123_000)
    assert len([time for time in times if time.year > 2013]) == 3


def test_a_stream_goes_on_where_its_checkpoint_ended(spark, cluster, topic, tmp_path):
    out = f"{topic}-out"
    create_topic(cluster, out)
    produce(cluster, topic, [f"first {number}" for number in range(100)])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}

    def run():
        return run_to_end(to_topic(stream(spark, cluster, topic, **options), cluster, out, tmp_path / "checkpoint"))

    query = run()
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [30, 30, 30, 10]
    produce(cluster, topic, [f"second {number}" for number in range(5)], partition=1)
    run()
    expected = [*(f"first {number}" for number in range(100)), *(f"second {number}" for number in range(5))]
    assert read_values(spark, cluster, out) == sorted(expected)


def test_starting_offsets_latest_is_the_end_at_the_first_start_even_if_the_first_batch_failed(
    spark, cluster, topic, tmp_path
):
    """Spark does not store a Python source's initial offset. A failed first batch must not change it."""
    produce(cluster, topic, ["before"])
    seen: list[str] = []

    def start(fail):
        def collect(frame, batch_id):
            if fail:
                raise RuntimeError("planned")
            seen.extend(bytes(row.value).decode() for row in frame.select("value").collect())

        return (
            stream(spark, cluster, topic, startingOffsets="latest")
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )

    with pytest.raises(Exception, match="planned"):
        start(fail=True).start().awaitTermination()
    produce(cluster, topic, ["while it was down"])
    run_to_end(start(fail=False))
    assert seen == ["while it was down"]


def test_deleted_records_fail_the_query_unless_fail_on_data_loss_is_false(spark, cluster, topic):
    produce(cluster, topic, [str(number) for number in range(10)])
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4})
    start = json.dumps({topic: {"0": 2, "1": 0}})
    with pytest.raises(Exception, match="was at offset 2, but the log starts at 4 and ends at 10: 2 records"):
        read_values(spark, cluster, topic, startingOffsets=start)
    values = read_values(spark, cluster, topic, startingOffsets=start, failOnDataLoss="false")
    assert values == ["4", "5", "6", "7", "8", "9"]


def test_a_stream_commits_its_offsets_to_a_group_and_reads_only_the_columns_of_its_schema(
    spark, cluster, topic, tmp_path
):
    produce(cluster, topic, [str(number) for number in range(7)])

    def run():
        frame = (
            spark.readStream.format("klamm")
            .schema("offset LONG, value BINARY")
            .options(**{"kafka.bootstrap.servers": cluster.bootstrap, "assign": json.dumps({topic: [0]})})
            .options(startingOffsets="earliest", maxOffsetsPerTrigger="3", commitOffsetsToGroup=topic)
        )
        loaded = frame.load()
        assert loaded.columns == ["offset", "value"]
        return run_to_end(loaded.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")))

    query = run()
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [3, 3, 1]
    assert json.loads(query.lastProgress.sources[0].latestOffset)["offsets"] == {topic: {"0": 7}}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        committed = admin.list_group_offsets(topic)
    assert {tp: each.offset for tp, each in committed.items()} == {TopicPartition(topic, 0): 7}


def test_the_progress_of_a_stream_shows_how_far_it_is_behind(spark, cluster, topic, tmp_path):
    produce(cluster, topic, [str(number) for number in range(7)])
    frame = stream(spark, cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query = run_to_end(frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")))
    first, last = (each.sources[0] for each in query.recentProgress if each.numInputRows)
    assert offsets_behind_latest(first) == {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0}
    assert source_metrics(first) == json.loads(first.latestOffset)["metrics"]
    assert source_metrics(first) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "3",
        "avgOffsetsBehindLatest": "1.5",
    }
    assert set(source_metrics(last).values()) == {"0", "0.0"}


def test_from_klamm_parses_json_values_with_and_without_confluents_header(spark, cluster, topic):
    from pyspark_klamm import from_klamm

    header = b"\0\0\0\0\7"
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in (header + b'{"delay": 5}', b'{"delay": 6}', None):
            producer.send(topic, value, partition=0)
    spark.sql(
        f"create or replace temporary view raw using klamm options ('kafka.bootstrap.servers' '{cluster.bootstrap}',"
        f" subscribe '{topic}')"
    )
    frame = spark.table("raw").select("offset", "value")
    rows = from_klamm(frame, schema="delay INT", confluent_header=True).orderBy("offset").collect()
    assert [row.value and row.value.delay for row in rows] == [5, None, None]
    (row,) = from_klamm(frame.where("offset = 1"), schema="delay INT").collect()
    assert row.value.delay == 6
    with pytest.raises(Exception, match="does not begin with Confluent's header"):
        from_klamm(frame, schema="delay INT", confluent_header=True, options={"mode": "FAILFAST"}).collect()
    with pytest.raises(ConfigError, match=r"spark.jars.packages to org.apache.spark:spark-avro_2.13:4"):
        from_klamm(frame, format="avro", schema='"int"', confluent_header=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        ({"startingOffsets": "whenever"}, "whenever"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
    ],
)
def test_the_error_for_a_bad_option_names_the_option(spark, cluster, topic, options, named):
    with pytest.raises(Exception, match=named):
        reader(spark, cluster, topic, **options).load().collect()


def shown(error) -> str:
    return str(error.value).partition("klamm.errors.ConfigError: ")[2].partition("\n")[0]


def test_a_wrong_option_is_one_sentence_when_a_frame_is_loaded(spark, cluster, topic):
    sentence = "unknown option 'startingofsets'; did you mean startingOffsets?"
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOfsets": "latest"}
    for reader_of in (spark.read, spark.readStream):
        with pytest.raises(AnalysisException) as error:
            reader_of.format("klamm").options(**given).load()
        assert shown(error) == sentence
        assert "Traceback" not in str(error.value)


def test_a_wrong_option_beside_a_schema_of_the_user_is_one_sentence_when_the_query_starts(
    spark, cluster, topic, tmp_path
):
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOfsets": "latest"}
    batch, streaming = (
        each.format("klamm").schema("value BINARY").options(**given).load() for each in (spark.read, spark.readStream)
    )
    writer = streaming.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    for kind, run in ((AnalysisException, batch.collect), (StreamingQueryException, lambda: run_to_end(writer))):
        with pytest.raises(kind) as error:
            run()
        assert shown(error) == "unknown option 'startingofsets'; did you mean startingOffsets?"
        assert "Traceback" not in str(error.value)


def test_a_wrong_option_of_a_streaming_sink_is_one_sentence(spark, cluster, topic, tmp_path):
    produce(cluster, topic, ["a"])
    frame = stream(spark, cluster, topic, startingOffsets="earliest")
    with pytest.raises(StreamingQueryException) as error:
        run_to_end(to_topic(frame, cluster, topic, tmp_path / "checkpoint").option("sinkIdd", "x"))
    assert shown(error) == "unknown option 'sinkidd'; did you mean sinkId?"
    assert "Traceback" not in str(error.value)


def test_lost_records_are_one_sentence(spark, cluster, topic):
    produce(cluster, topic, ["a", "b"])
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 1})
    with pytest.raises(AnalysisException, match="the query was at offset 0") as error:
        read_values(spark, cluster, topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0}}))
    assert "Traceback" not in str(error.value)


def test_a_write_without_a_topic_is_refused(spark, cluster):
    frame = spark.createDataFrame([("v",)], "value STRING")
    with pytest.raises(Exception, match='set the option "topic" or add a column named "topic"'):
        frame.write.format("klamm").option("kafka.bootstrap.servers", cluster.bootstrap).mode("append").save()


def test_spark_names_a_kafka_listener_and_a_listener_without_tls_at_load_and_save(spark, cluster):
    at_kafka = {"kafka.bootstrap.servers": cluster.kafka_bootstrap, "subscribe": "flights"}
    encrypted = {**at_kafka, "kafka.bootstrap.servers": cluster.bootstrap, "kafka.security.protocol": "SSL"}
    kafka_listener = "this is a Kafka listener of Klamm; clients of the gRPC API connect to"
    for options, sentence in ((at_kafka, kafka_listener), (encrypted, "it does not speak TLS")):
        for reader_of in (spark.read, spark.readStream):
            with pytest.raises(AnalysisException, match=sentence) as error:
                reader_of.format("klamm").options(**options).load()
            assert "Traceback" not in str(error.value)
        with pytest.raises(AnalysisException, match=sentence):
            spark.read.format("klamm").schema("value BINARY").options(**options).load().collect()
        clients = {name: value for name, value in options.items() if name.startswith("kafka.")}
        rows = spark.createDataFrame([("v",)], "value STRING")
        with pytest.raises(AnalysisException, match=sentence):
            rows.write.format("klamm").options(**clients, topic="flights").mode("append").save()
