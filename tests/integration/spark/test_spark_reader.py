"""Tests the Spark source's readers against a real cluster, called as Spark calls them but without Spark.

The tests cover where queries begin and end, how streams continue, and the errors if records are deleted.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, StructType

from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm.errors import ConfigError, IllegalStateError
from pyspark_klamm import cluster_access
from pyspark_klamm.cluster_access import accesses
from pyspark_klamm.source import KlammBatchReader
from pyspark_klamm.source_options import source_options
from pyspark_klamm.stream_source import COMPANY_BATCHES, COMPANY_WAIT_MS, IDLE_WAIT_MS, KlammStreamReader
from tests.support.klamm_process import KlammProcess
from tests.support.waiting import wait_until

VALUE = StructType().add("value", BinaryType())
Offset = dict[str, Any]


@pytest.fixture(autouse=True)
def topics_are_given_up_soon(monkeypatch) -> None:
    """Three tests delete a topic, and would otherwise wait half a minute."""
    monkeypatch.setattr(cluster_access, "TOPIC_WAIT_MS", 1_000)


@pytest.fixture
def admin(cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin, request) -> str:
    """Creates a topic with two partitions for this test only."""
    name = request.node.name.replace("[", "-").replace("]", "")
    admin.create_topics([NewTopic(name, partition_count=2, configs={"retention.ms": "-1"})])  # some records are old
    return name


class Query:
    """A streaming query as its driver runs it: batch after batch, with the checkpoint in memory."""

    def __init__(self, cluster: KlammProcess, **options: str) -> None:
        self._options = {"kafka.bootstrap.servers": cluster.bootstrap, "startingOffsets": "earliest", **options}
        self.checkpoint: list[Offset] = []
        self.start()

    def start(self) -> None:
        """Starts the query, or restarts it as a new process that has the checkpoint."""
        options = source_options(self._options, streaming=True)
        self.reader = KlammStreamReader(options, VALUE)
        self.shipped = pickle.dumps(self.reader)
        self.initial = self.reader.initialOffset() if not self.checkpoint else None

    def restart_with(self, **options: str) -> None:
        """Restarts the query with another subscription."""
        common = {name: self._options[name] for name in ("kafka.bootstrap.servers", "startingOffsets")}
        self._options = {**common, **options}
        self.start()

    @property
    def at(self) -> Offset:
        return json.loads(json.dumps(self.checkpoint[-1] if self.checkpoint else self.initial))

    def latest(self, limit: Any = None) -> Offset:
        return self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())

    def batch(self, limit: Any = None) -> list[str] | None:
        """Returns the values of the next batch, or None if there is none yet."""
        begin, end = self.at, self.latest(limit)
        if end == begin:
            return None
        tasks = self.reader.partitions(begin, end)
        values = rows(self.shipped, tasks)
        self.checkpoint.append(end)
        return values


def rows(shipped: bytes, tasks: list) -> list[str]:
    """Runs each task with a reader of its own. Returns the sorted values."""
    found = [pickle.loads(shipped).read(pickle.loads(pickle.dumps(task))) for task in tasks]
    return sorted(value.decode() for batches in found for batch in batches for value in batch.column(0).to_pylist())


def batch_reader(cluster: KlammProcess, **options: str) -> KlammBatchReader:
    return KlammBatchReader(
        source_options({"kafka.bootstrap.servers": cluster.bootstrap, **options}, streaming=False), VALUE
    )


def read(cluster: KlammProcess, **options: str) -> list[str]:
    reader = batch_reader(cluster, **options)
    tasks = reader.partitions()
    return rows(pickle.dumps(reader), tasks)


def produce(cluster: KlammProcess, topic: str, *values: str, partition: int = 0, at_ms: int | None = None) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for value in values:
            producer.send(topic, value.encode(), partition=partition, timestamp_ms=at_ms)
        producer.flush()


def recreate(admin: Admin, name: str, partition_count: int = 2) -> None:
    admin.delete_topics([name])
    admin.create_topics([NewTopic(name, partition_count=partition_count)])


def test_assign_reads_just_those_partitions(cluster, topic):
    produce(cluster, topic, "a", partition=0)
    produce(cluster, topic, "b", partition=1)
    assert read(cluster, assign=json.dumps({topic: [1]})) == ["b"]
    with pytest.raises(ConfigError, match=f"assign names partitions that do not exist: {topic}-7"):
        read(cluster, assign=json.dumps({topic: [1, 7]}))


def test_a_subscribe_pattern_reads_every_matching_topic(cluster, admin):
    for name in ("pattern-a", "pattern-b", "other"):
        admin.create_topics([NewTopic(name, partition_count=1)])
        produce(cluster, name, name)
    assert read(cluster, subscribePattern="tern-[ab]") == ["pattern-a", "pattern-b"]
    assert read(cluster, subscribePattern="matches-nothing") == []


def test_timestamps_choose_the_starting_and_ending_offsets(cluster, topic):
    for second in (1, 2, 3):
        produce(cluster, topic, f"a{second}", partition=0, at_ms=second * 1000)
    produce(cluster, topic, "b1", partition=1, at_ms=1000)
    read_topic = {"subscribe": topic, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(cluster, **read_topic, startingTimestamp="2000") == ["a2", "a3"]
    assert read(cluster, **read_topic, startingTimestamp="2000", endingTimestamp="3000") == ["a2"]
    assert read(cluster, **read_topic, endingTimestamp="2000") == ["a1", "b1"]
    by_partition = json.dumps({topic: {"0": 3000, "1": 1000}})
    assert read(cluster, **read_topic, startingOffsetsByTimestamp=by_partition) == ["a3", "b1"]
    assert read(cluster, **read_topic, endingOffsetsByTimestamp=by_partition) == ["a1", "a2"]
    with pytest.raises(ConfigError, match=f"startingTimestamp: {topic}-1 has no record at 2000 ms or later"):
        read(cluster, subscribe=topic, startingTimestamp="2000")
    with pytest.raises(
        ConfigError, match=f"startingTimestamp is offset 2 of {topic}-0, behind endingTimestamp, offset 1"
    ):
        read(cluster, **read_topic, startingTimestamp="3000", endingTimestamp="2000")


def test_an_ending_offset_beyond_the_log_end_counts_as_data_loss(cluster, topic):
    produce(cluster, topic, "a")
    wanted = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 5, "1": 0}})}
    with pytest.raises(IllegalStateError, match=f"{topic}-0 ends at offset 1, but endingOffsets is 5"):
        read(cluster, **wanted)
    assert read(cluster, **wanted, failOnDataLoss="false") == ["a"]


def test_min_partitions_and_max_records_per_partition_add_tasks(cluster, topic):
    produce(cluster, topic, *map(str, range(10)))
    for option, count in (("minPartitions", 3), ("maxRecordsPerPartition", 4)):
        reader = batch_reader(cluster, subscribe=topic, **{option: str(count)})
        tasks = reader.partitions()
        assert len(tasks) == 3
        assert rows(pickle.dumps(reader), tasks) == sorted(map(str, range(10)))


def test_a_stream_finds_new_partitions_and_topics_and_reads_them_from_the_start(cluster, admin):
    admin.create_topics([NewTopic("grow-a", partition_count=1)])
    query = Query(cluster, subscribePattern="^grow-", startingOffsets="latest")
    assert query.batch() == []  # the first batch stores where the query began
    admin.create_partitions({"grow-a": 2})
    admin.create_topics([NewTopic("grow-b", partition_count=1)])
    produce(cluster, "grow-a", "a1", partition=1)
    produce(cluster, "grow-b", "b0")
    found: list[str] = []
    wait_until(lambda: len(found) >= 2, lambda: found, between=lambda: found.extend(query.batch() or []))
    assert sorted(found) == ["a1", "b0"]


def test_max_offsets_per_trigger_is_shared_by_partitions_and_ignored_by_read_all_available(cluster, topic):
    produce(cluster, topic, *(f"a{number}" for number in range(8)), partition=0)
    produce(cluster, topic, "b0", "b1", partition=1)
    query = Query(cluster, subscribe=topic, maxOffsetsPerTrigger="5")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert query.batch() == ["a0", "a1", "a2", "a3", "b0"]
    assert query.batch(ReadAllAvailable()) == ["a4", "a5", "a6", "a7", "b1"]


def test_a_stream_with_a_limit_below_its_partitions_reads_one_record_of_each(cluster, topic):
    produce(cluster, topic, "a", partition=0)
    produce(cluster, topic, "b", partition=1)
    assert Query(cluster, subscribe=topic, maxOffsetsPerTrigger="1").batch() == ["a", "b"]


def test_min_offsets_per_trigger_delays_a_batch_until_max_trigger_delay(cluster, topic):
    patient = Query(cluster, subscribe=topic, minOffsetsPerTrigger="3")
    hasty = Query(cluster, subscribe=topic, minOffsetsPerTrigger="3", maxTriggerDelay="1s")
    assert patient.reader.getDefaultReadLimit() == ReadMinRows(3)
    produce(cluster, topic, "1")
    assert patient.batch() == hasty.batch() == ["1"]  # the first batch does not wait
    produce(cluster, topic, "2", "3")
    assert patient.batch() is None
    found = None
    while found is None:
        found = hasty.batch()
    assert found == ["2", "3"]
    produce(cluster, topic, "4")
    assert patient.batch() == ["2", "3", "4"]


def test_available_now_ends_at_the_offsets_of_its_start_and_ignores_the_minimum(cluster, topic):
    produce(cluster, topic, "1", "2", "3")
    query = Query(cluster, subscribe=topic, maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2")
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == ["1", "2"]
    produce(cluster, topic, "too late")
    assert query.batch() == ["3"]
    assert query.batch() is None
    assert query.reader.reportLatestOffset()["offsets"] == {topic: {"0": 3, "1": 0}}


def test_a_first_batch_that_failed_does_not_move_the_start(cluster, topic):
    produce(cluster, topic, "before")
    query = Query(cluster, subscribe=topic, startingOffsets="latest")
    query.checkpoint.append(query.latest())  # planned and logged; then the query died
    produce(cluster, topic, "while it was down")
    query.start()
    again = query.reader.initialOffset()  # Spark does this for a Python source
    tasks = query.reader.partitions(again, query.at)
    assert rows(query.shipped, tasks) == []
    assert query.batch() == ["while it was down"]


def test_an_idle_stream_waits_at_the_brokers_and_wakes_at_once(cluster, topic):
    query = Query(cluster, subscribe=topic)
    assert query.batch() == []
    began_s = time.monotonic()
    assert query.batch() is None
    assert time.monotonic() - began_s >= 0.9 * IDLE_WAIT_MS / 1000
    query.latest()
    producing = threading.Thread(target=produce, args=(cluster, topic, "news"))
    producing.start()
    found = None
    while found is None:
        found = query.batch()
    producing.join()
    assert found == ["news"]


def test_a_source_without_new_records_does_not_delay_other_sources(cluster, topic, monkeypatch):
    waits_ms: list[int] = []

    def wait_for_records(access, positions, timeout_ms):
        waits_ms.append(timeout_ms)
        return real_wait(access, positions, timeout_ms)

    real_wait = cluster_access.ClusterAccess.wait_for_records
    monkeypatch.setattr(cluster_access.ClusterAccess, "wait_for_records", wait_for_records)
    query = Query(cluster, subscribe=topic)
    assert query.batch() == []  # the first batch, which is empty too
    for _ in range(COMPANY_BATCHES):
        assert query.batch() is None
        assert query.reader.partitions(query.at, query.at) == []  # a batch for another source
    assert waits_ms == [IDLE_WAIT_MS] * (COMPANY_BATCHES - 1) + [COMPANY_WAIT_MS]


def test_an_idle_stream_does_not_wake_for_records_of_an_open_transaction(cluster, topic):
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        query = Query(cluster, subscribe=topic)
        dirty = Query(cluster, subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result()
        assert query.batch() == []
        assert dirty.batch() == ["open"]
        began_s = time.monotonic()
        assert query.batch() is None
        assert time.monotonic() - began_s >= 0.9 * IDLE_WAIT_MS / 1000
        producer.commit_transaction()
        assert query.batch() == ["open"]


def test_records_deleted_before_a_batch_fail_the_stream_or_are_skipped(cluster, admin, topic):
    produce(cluster, topic, "1", "2", "3", "4")
    strict = Query(cluster, subscribe=topic, maxOffsetsPerTrigger="1")
    lax = Query(cluster, subscribe=topic, maxOffsetsPerTrigger="1", failOnDataLoss="false")
    assert strict.batch() == lax.batch() == ["1"]
    admin.delete_records({TopicPartition(topic, 0): 3})
    with pytest.raises(IllegalStateError, match=f"{topic}-0: the query was at offset 1, but the log starts at 3 and"):
        strict.batch()
    assert lax.batch() == ["4"]


def test_records_deleted_between_plan_and_task_fail_the_task_or_are_skipped(cluster, admin, topic):
    produce(cluster, topic, "1", "2", "3", "4")
    strict, lax = Query(cluster, subscribe=topic), Query(cluster, subscribe=topic, failOnDataLoss="false")
    plans = [query.reader.partitions(query.at, query.latest()) for query in (strict, lax)]
    admin.delete_records({TopicPartition(topic, 0): 3})
    with pytest.raises(IllegalStateError, match=r"at offset 0, but the log starts at 3 .*failOnDataLoss"):
        rows(strict.shipped, plans[0])
    assert rows(lax.shipped, plans[1]) == ["4"]


def test_a_deleted_topic_fails_the_stream_or_is_skipped(cluster, admin, topic):
    kept = f"{topic}-kept"
    admin.create_topics([NewTopic(kept, partition_count=1)])
    produce(cluster, topic, "1")
    strict = Query(cluster, subscribe=f"{topic},{kept}")
    lax = Query(cluster, subscribe=f"{topic},{kept}", failOnDataLoss="false")
    assert strict.batch() == lax.batch() == ["1"]
    plan = strict.reader.partitions(strict.initial, strict.at)
    admin.delete_topics([topic])
    produce(cluster, kept, "2")
    with pytest.raises(IllegalStateError, match=f"topic '{topic}' was deleted"):
        strict.batch()
    assert lax.batch() == ["2"]
    assert rows(lax.shipped, plan) == []  # tasks that are late
    admin.create_topics([NewTopic(topic, partition_count=1)])
    produce(cluster, topic, "new")
    found: list[str] = []
    while not found:
        found = lax.batch() or []
    assert found == ["new"]


@pytest.mark.parametrize("left", ["subscribe", "subscribePattern", "assign"])
def test_a_topic_taken_out_of_the_subscription_is_no_loss_and_costs_no_wait(
    cluster, admin, topic, left, monkeypatch, caplog
):
    kept = f"{topic}-kept"
    admin.create_topics([NewTopic(kept, partition_count=1)])
    produce(cluster, topic, "1")
    produce(cluster, kept, "2")
    query = Query(cluster, subscribe=f"{topic},{kept}")
    assert query.batch() == ["1", "2"]
    produce(cluster, topic, "unwanted")
    produce(cluster, kept, "3")
    # A look-up that waited for the topic would not end.
    monkeypatch.setattr(cluster_access, "TOPIC_WAIT_MS", 3_600_000)
    values = {"subscribe": kept, "subscribePattern": f"^{kept}$", "assign": json.dumps({kept: [0]})}
    query.restart_with(**{left: values[left]})
    assert query.batch() == ["3"]
    (warning,) = [record.getMessage() for record in caplog.records if "no longer reads" in record.getMessage()]
    assert warning.startswith(
        f"the query no longer reads {topic}-0 (it was at offset 1), {topic}-1 (it was at offset 0)"
    )
    query.restart_with(subscribe=kept)
    assert query.batch() is None


def test_a_partition_taken_out_of_assign_is_no_loss(cluster, topic):
    produce(cluster, topic, "a", partition=0)
    produce(cluster, topic, "b", partition=1)
    query = Query(cluster, assign=json.dumps({topic: [0, 1]}), maxOffsetsPerTrigger="1")
    assert query.batch() == ["a", "b"]
    produce(cluster, topic, "unwanted", partition=0)
    produce(cluster, topic, "c", partition=1)
    query.restart_with(assign=json.dumps({topic: [1]}), maxOffsetsPerTrigger="1")
    assert query.batch() == ["c"]


def test_a_batch_that_runs_again_reads_a_topic_that_was_taken_out_since(cluster, admin, topic):
    kept = f"{topic}-kept"
    admin.create_topics([NewTopic(kept, partition_count=1)])
    produce(cluster, topic, "1")
    produce(cluster, kept, "2")
    query = Query(cluster, subscribe=f"{topic},{kept}")
    begin = query.at
    assert query.batch() == ["1", "2"]
    query.restart_with(subscribe=kept)
    assert rows(query.shipped, query.reader.partitions(begin, query.at)) == ["1", "2"]


@pytest.mark.parametrize("limit", [None, "1"])
def test_available_now_goes_on_if_a_topic_is_deleted_while_it_runs(cluster, admin, topic, limit):
    kept = f"{topic}-kept".replace(".", "-")
    admin.create_topics([NewTopic(kept, partition_count=1)])
    produce(cluster, topic, "1", "2", "3")
    produce(cluster, kept, "a", "b", "c")
    limits = {} if limit is None else {"maxOffsetsPerTrigger": limit}
    strict = Query(cluster, subscribe=f"{topic},{kept}", **limits)
    lax = Query(cluster, subscribe=f"{topic},{kept}", failOnDataLoss="false", **limits)
    for query in (strict, lax):
        query.reader.prepareForTriggerAvailableNow()
        planned = query.latest() if limit is None else None
        if planned is None:
            assert query.batch() == ["1", "a"]
    admin.delete_topics([topic])
    with pytest.raises(IllegalStateError, match=f"topic '{topic}' was deleted"):
        strict.batch()
    found = []
    while (values := lax.batch()) is not None:
        found += values
    assert found == (["a", "b", "c"] if limit is None else ["b", "c"])


def test_a_topic_that_was_deleted_and_created_again_fails_the_stream_or_is_read_from_the_start(cluster, admin, topic):
    produce(cluster, topic, "old 1", "old 2")
    strict, lax = Query(cluster, subscribe=topic), Query(cluster, subscribe=topic, failOnDataLoss="false")
    assert strict.batch() == lax.batch() == ["old 1", "old 2"]
    plans = [query.reader.partitions(query.initial, query.at) for query in (strict, lax)]
    recreate(admin, topic)
    produce(cluster, topic, "new 1", "new 2", "new 3")
    with pytest.raises(IllegalStateError, match="created again while it was read"):
        rows(strict.shipped, plans[0])
    with pytest.raises(IllegalStateError, match=f"topic '{topic}' was deleted and created again"):
        strict.batch()
    assert lax.batch() == ["new 1", "new 2", "new 3"]


def test_the_progress_of_a_stream_is_committed_as_a_groups_offsets(cluster, admin, topic):
    produce(cluster, topic, "1", "2", "3")
    query = Query(cluster, subscribe=topic, maxOffsetsPerTrigger="2", commitOffsetsToGroup=topic)
    query.batch()
    query.batch()
    assert query.batch() is None
    committed = admin.list_group_offsets(topic)
    assert {tp: each.offset for tp, each in committed.items()} == {
        TopicPartition(topic, 0): 3,
        TopicPartition(topic, 1): 0,
    }


def test_the_same_settings_share_one_connection(cluster, topic):
    settings = {"bootstrap.servers": cluster.bootstrap}
    assert accesses.get(settings) is accesses.get(dict(settings))
