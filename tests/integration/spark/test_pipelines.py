"""Tests the data pipelines on a real Spark and a real cluster, on real data where available."""

from __future__ import annotations

import datetime
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest

from demo import nycflights
from klamm import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.arrow.record_packing import pack
from klamm_pipelines import archive, compact, dedup_and_dead_letter, enrich, flight_delays, mirror, replay
from klamm_pipelines.archive_store import ArchiveStore, read_archive
from klamm_pipelines.job import Pipeline, run_in
from pyspark_klamm import sink_columns
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.topic_reading import read_topics
from tests.support.violation import verdict

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory) -> Iterator[KlammProcess]:
    settings = {"transaction.state.log.num.partitions": "5"}
    with running_cluster(tmp_path_factory.mktemp("other"), settings) as running:
        yield running


@pytest.fixture
def run(spark, cluster, tmp_path):
    """Returns a function that runs a pipeline to the end of its topics and returns its counts."""

    def run(pipeline: Pipeline, *arguments: str) -> dict[str, Any]:
        common = ["--bootstrap", cluster.bootstrap]
        if pipeline.start is not None:
            common += ["--checkpoint", str(tmp_path / "checkpoint")]
        return run_in(spark, pipeline, pipeline.parse([*common, *arguments]))

    return run


def create_topics(cluster: KlammProcess, *names: str, **configs: str) -> None:
    """Creates topics of two partitions each, for records of any age. The names in `configs` have underscores for
    dots."""
    dotted = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in configs.items()}}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=2, configs=dotted) for name in names])


def produce(cluster: KlammProcess, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Produces records, each given as arguments of `Producer.send`."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        futures = [producer.send(topic, **record) for record in records]
        producer.flush()
        for future in futures:
            future.result()


class Seen(NamedTuple):
    """A record that was read from any source."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def read(cluster: KlammProcess, *topics: str) -> list[Seen]:
    """Returns the committed records of topics, by topic, partition and offset."""
    return [
        Seen(*topic[:3], topic.key, topic.value, topic.timestamp, tuple(topic.headers))
        for topic in read_topics(cluster.bootstrap, *topics)
    ]


def read_rows(frame: Any) -> list[Seen]:
    """Returns the same for rows with the columns of a source."""
    rows = [
        Seen(
            *(row.topic, row.partition, row.offset, row.key and bytes(row.key)),
            None if row.value is None else bytes(row.value),
            round(row.timestamp.timestamp() * 1000),
            tuple((header.key, header.value and bytes(header.value)) for header in row.headers or ()),
        )
        for row in frame.collect()
    ]
    return sorted(rows, key=lambda row: row[:3])


def documents(rows: list[Seen]) -> dict[str, Any]:
    """Returns the JSON values of records by key. Each key must have one record."""
    found = {bytes(row.key or b"").decode(): json.loads(row.value or b"null") for row in rows}
    assert len(found) == len(rows)
    return found


def test_flight_delays_counts_departures_by_origin_and_hour(cluster, run):
    create_topics(cluster, "departures", "delays")
    flights = [
        {"origin": "EWR", "scheduled": "2013-01-01T10:15:00Z", "dep_delay": 2},
        {"origin": "EWR", "scheduled": "2013-01-01T10:45:00Z", "dep_delay": 40},
        {"origin": "EWR", "scheduled": "2013-01-01T10:50:00Z", "dep_delay": None},
        {"origin": "JFK", "scheduled": "2013-01-01T11:00:00Z", "dep_delay": -3},
        {"origin": "EWR", "scheduled": "2013-01-01T11:59:00Z", "dep_delay": 15},
        {"scheduled": "2013-01-03T00:00:00Z"},
    ]
    values = [*map(json.dumps, flights), "not a flight", '{"origin": "LGA"}']
    produce(cluster, "departures", [{"value": value.encode(), "partition": 0} for value in values])
    assert run(flight_delays.PIPELINE, "--input", "departures", "--output", "delays") == {
        "batches": 1, "rows": 8, "flights": 5, "malformed": 2, "cancelled": 1, "late": 2, "behind_watermark": 0,
    }  # fmt: skip
    hours = documents(read(cluster, "delays"))
    assert hours["EWR 2013-01-01T10:00:00Z"] == {
        "origin": "EWR", "hour": "2013-01-01T10:00:00Z", "departures": 2, "cancelled": 1, "late": 1,
        "mean_delay": 21.0, "worst_delay": 40,
    }  # fmt: skip
    assert set(hours) == {"EWR 2013-01-01T10:00:00Z", "JFK 2013-01-01T11:00:00Z", "EWR 2013-01-01T11:00:00Z"}


def known(value: Any) -> Any:
    return None if pd.isna(value) else value


def test_enrich_joins_flights_with_weather_and_planes_as_pandas_does(cluster, run):
    flights, weather, planes = nycflights.read_flights(2), nycflights.read_weather(2), nycflights.read_planes()
    planes = planes.iloc[::2]
    weather = weather.iloc[10:]
    nycflights.create_topics(cluster.bootstrap, ("flights", "weather", "planes", "flights-enriched"))
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("planes", b'{"year": 1900}', key=planes.iloc[0].tailnum.encode())
        producer.send("planes", b'{"year": 1900}', key=b"N0TAIL")
        producer.send("planes", None, key=b"N0TAIL")
        nycflights.fill_planes(producer, planes)
        nycflights.fill_weather(producer, weather)
        nycflights.fill_flights(producer, flights)
    counted = run(enrich.PIPELINE, "--watermark", "7 days")
    assert counted["flights"] == len(flights)
    assert (counted["reports"], counted["malformed_flights"], counted["behind_watermark"]) == (len(weather), 0, 0)
    expected = flights.merge(weather, left_on=["origin", "hour_start"], right_on=["origin", "hour"], how="left").merge(
        planes, on="tailnum", how="left", suffixes=("", "_plane"), indicator="plane"
    )
    got = documents(read(cluster, "flights-enriched"))
    assert len(got) == len(flights)
    for row in expected.itertuples(index=False):
        scheduled = row.scheduled.strftime("%Y-%m-%dT%H:%M:%SZ")
        reports = {name: known(getattr(row, name)) for name in ("temp", "wind_speed", "precip", "visib")}
        plane = {name: known(getattr(row, name)) for name in ("manufacturer", "model", "seats")}
        assert got[f"{scheduled} {row.carrier} {row.flight} {row.origin}"] == {
            "carrier": row.carrier, "flight": row.flight, "tailnum": known(row.tailnum), "origin": row.origin,
            "dest": row.dest, "scheduled": scheduled, "dep_delay": known(row.dep_delay),
            "weather": None if pd.isna(row.hour_y) else reports,
            "plane": {"year": known(row.year_plane), **plane} if row.plane == "both" else None,
        }  # fmt: skip
    assert expected["hour_y"].isna().any()
    assert (expected["plane"] == "both").any()


def test_duplicates_and_malformed_records_become_dead_letters_and_others_go_on(cluster, run, tmp_path):
    create_topics(cluster, "raw", "clean", "dead", message_timestamp_after_max_ms=str(2**62))
    flights = nycflights.read_flights(1)
    rows = list(flights[nycflights.FLIGHT_COLUMNS].itertuples(index=False))

    def record(row: Any, **changed: Any) -> dict[str, Any]:
        value = {**nycflights.flight_value(row), **changed}
        key = None if pd.isna(row.tailnum) else row.tailnum.encode()
        stamp = int(row.scheduled.timestamp() * 1000)
        return {"value": json.dumps(value).encode(), "key": key, "timestamp_ms": stamp, "headers": [("h", b"1")]}

    good = [record(row) for row in rows]
    duplicates = [record(row, dep_delay=999) for row in rows[::10]]
    late = {**record(rows[0], flight=1), "timestamp_ms": good[0]["timestamp_ms"] - 5 * 86_400_000}
    ahead = {**record(rows[0], flight=2), "timestamp_ms": 4_102_444_800_000}
    bad = [{"value": b"no JSON"}, {"value": None}, record(rows[0], origin=None), record(rows[0], flight="one"), ahead]
    produce(cluster, "raw", [*good, *duplicates[:20], *bad])
    arguments = (
        *("--input", "raw", "--output", "clean", "--dead-letter", "dead", "--window", "2 days"),
        *("--schema", "carrier STRING, flight INT, origin STRING, scheduled STRING, dep_delay INT"),
        *("--require", "carrier,flight,origin,scheduled"),
        *("--id", "concat_ws(' ', value.scheduled, value.carrier, value.flight, value.origin)"),
    )
    counted = run(dedup_and_dead_letter.PIPELINE, *arguments, "--max-offsets-per-trigger", "500")
    assert counted == {
        "batches": 2, "rows": len(good) + 25, "passed": len(good), "malformed": 5, "duplicates": 20, "late": 0,
        "behind_watermark": 0,
    }  # fmt: skip
    # The seen keys outlive the query. A batch whose end was not recorded runs again without an effect.
    produce(cluster, "raw", [*duplicates[20:], late])
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    (tmp_path / "checkpoint" / "commits" / str(last)).unlink()
    assert run(dedup_and_dead_letter.PIPELINE, *arguments)["late"] == 1
    clean, raw = read(cluster, "clean"), read(cluster, "raw")
    stamps = {each["value"]: (each["key"], each["timestamp_ms"]) for each in good}
    assert {row.value: (row.key, row.timestamp_ms) for row in clean} == stamps
    assert len(clean) == len(good)
    assert {row.headers for row in clean} == {(("h", b"1"),)}
    order = {row.value: index for index, row in enumerate(raw)}
    by_key: dict[bytes | None, list[int]] = {}
    for row in clean:
        by_key.setdefault(row.key, []).append(order[row.value])
    assert all(indices == sorted(indices) for key, indices in by_key.items() if key), "what shares a key stays in order"
    origins = {(row.topic, row.partition, row.offset): row for row in raw}
    reasons = []
    for row in read(cluster, "dead"):
        why = {name.removeprefix("dead-letter."): bytes(value or b"").decode() for name, value in row.headers[-4:]}
        origin = origins[why["topic"], int(why["partition"]), int(why["offset"])]
        assert (row.key, row.value, row.timestamp_ms) == (origin.key, origin.value, origin.timestamp_ms)
        assert row.headers[:-4] == origin.headers
        reasons.append(why["reason"])
    assert {reason: reasons.count(reason) for reason in reasons} == {
        "duplicate": len(duplicates), "late": 1, "malformed: not a JSON object": 3, "malformed: no origin": 1,
        "malformed: timestamp in the future": 1,
    }  # fmt: skip


NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def records_of_two_hours() -> list[dict[str, Any]]:
    """Returns records of all kinds, a minute apart, in two partitions."""
    return [
        {
            "key": None if number % 7 == 0 else f"k{number}".encode(),
            "value": None if number % 11 == 0 else f"v{number}".encode(),
            "partition": number % 2,
            "timestamp_ms": int(NOON.timestamp() * 1000) + number * 60_000,
            "headers": [("h", b"%d" % number), ("h", None)] if number % 3 else [],
        }
        for number in range(120)
    ]


def without_offsets(rows: Iterable[Seen]) -> list[tuple[Any, ...]]:
    """Returns the fields that a copy of the records must have, in order."""
    return [(row.partition, row.key, row.value, row.timestamp_ms, row.headers) for row in rows]


def test_an_archive_holds_each_record_once_and_can_replay_it(spark, cluster, run, tmp_path):
    create_topics(cluster, "orders", "payments")
    for topic in ("orders", "payments"):
        produce(cluster, topic, records_of_two_hours())
    root = tmp_path / "archive"
    arguments = ("--topics", "orders,payments", "--archive", str(root))
    counted = run(archive.PIPELINE, *arguments, "--max-offsets-per-trigger", "80")
    assert (counted["batches"], counted["records"]) == (3, 240)
    expected = read(cluster, "orders", "payments")
    assert read_rows(read_archive(spark, str(root))) == expected
    hours = {path.relative_to(root).parts[:3] for path in root.glob("topic=*/**/*.parquet")}
    assert hours == set(
        itertools.product(("topic=orders", "topic=payments"), ("date=2026-01-31",), ("hour=12", "hour=13"))
    )
    store = ArchiveStore(spark, str(root))
    before = store.contents()
    counted = run(compact.PIPELINE, "--archive", str(root), "--min-files", "2")
    after = store.contents()
    assert counted == {"files_merged": len(before.files), "files_written": 4, "files_deleted": 0}
    with verdict():
        assert sum(file.rows for file in after.files.values()) == 240
    merged, older = (read_rows(store.read(each.files.values())) for each in (after, before))
    with verdict():
        assert merged == expected
        assert older == expected, "readers of an older version go on"
    left = root / "topic=orders" / "date=2026-01-31" / "hour=12" / "left-by-a-batch-that-failed.parquet"
    left.touch()
    counted = run(compact.PIPELINE, "--archive", str(root), "--retain", "0 seconds")
    assert counted["files_deleted"] == len(before.files) + 1
    assert len(list(root.glob("topic=*/**/*.parquet"))) == 4
    between = ("--from", "2026-01-31T12:30:00Z", "--until", "2026-01-31T13:10:00Z")
    counted = run(replay.PIPELINE, "--archive", str(root), "--topic", "payments", "--to", "payments-again", *between)
    assert counted == {"records": 40}
    start_ms, until_ms = ((NOON.timestamp() + minutes * 60) * 1000 for minutes in (30, 70))
    some = [row for row in read(cluster, "payments") if start_ms <= row.timestamp_ms < until_ms]
    assert without_offsets(read(cluster, "payments-again")) == without_offsets(some)


def test_a_mirror_copies_records_and_translates_offsets(cluster, other_cluster, run):
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("stock", partition_count=2, configs={"retention.ms": "-1"})])
    produce(cluster, "stock", records_of_two_hours()[:60])
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="gap") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("stock", b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    produce(cluster, "stock", records_of_two_hours()[60:])
    committed = {TopicPartition("stock", 0): OffsetAndMetadata(40), TopicPartition("stock", 1): OffsetAndMetadata(60)}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_group_offsets("billing", committed)
        admin.alter_group_offsets("other", committed)
    arguments = ("--topics", "sto.*", "--target-bootstrap", other_cluster.bootstrap, "--groups", "bill.*")
    arguments += ("--beside-interval", "0.5")  # the counts are sums over all rounds of translation
    counted = run(mirror.PIPELINE, *arguments, "--max-offsets-per-trigger", "50")
    assert (counted["rows"], counted["groups_translated"], counted["offsets_translated"]) == (120, 1, 2)
    there = read(other_cluster, "stock")
    here = read(cluster, "stock")
    assert without_offsets(there) == without_offsets(here)
    with Admin(bootstrap_servers=other_cluster.bootstrap) as admin:
        translated = {tp: group_offset.offset for tp, group_offset in admin.list_group_offsets("billing").items()}
        assert "other" not in admin.list_groups()
    assert left_to_read(there, translated) == left_to_read(here, {tp: each.offset for tp, each in committed.items()})
    # Another run keeps the order and the offsets of groups.
    produce(cluster, "stock", records_of_two_hours()[:30])
    committed = {TopicPartition("stock", 0): OffsetAndMetadata(70), TopicPartition("stock", 1): OffsetAndMetadata(75)}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_group_offsets("billing", committed)
    run(mirror.PIPELINE, *arguments)
    there, here = read(other_cluster, "stock"), read(cluster, "stock")
    assert without_offsets(there) == without_offsets(here)
    with Admin(bootstrap_servers=other_cluster.bootstrap) as admin:
        translated = {tp: group_offset.offset for tp, group_offset in admin.list_group_offsets("billing").items()}
    assert left_to_read(there, translated) == left_to_read(here, {tp: each.offset for tp, each in committed.items()})


def test_a_mirror_gives_a_record_without_a_timestamp_the_time_of_its_copy(cluster, other_cluster, run):
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("timeless", partition_count=1, configs={"retention.ms": "-1"})])
    columns = {"value": pa.array([b"v"]), "timestamp": pa.array([-1_000], pa.timestamp("us", tz="UTC"))}
    rows = sink_columns.rows(columns, "timeless", now_ms=0, partition_count=None)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for topic, _, records in pack(rows, 1_000):
            producer.send_packed(topic, records, partition=0).result()
    begin_ms = time.time_ns() // 1_000_000
    run(mirror.PIPELINE, "--topics", "timeless", "--target-bootstrap", other_cluster.bootstrap)
    ((here,), (there,)) = (read(each, "timeless") for each in (cluster, other_cluster))
    assert (here.timestamp_ms, here.value) == (-1, b"v")
    assert there.value == b"v"
    assert there.timestamp_ms >= begin_ms


def left_to_read(rows: Iterable[Seen], offsets: Mapping[TopicPartition, int]) -> list[tuple[Any, ...]]:
    """Returns the records that a group has not read."""
    return without_offsets(row for row in rows if row.offset >= offsets[TopicPartition(row.topic, row.partition)])
