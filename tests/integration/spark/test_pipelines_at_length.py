"""Tests the pipelines at length (`make pipelines-test`): a whole year, killed drivers, signals, and a Spark cluster."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyspark
import pytest

import klamm_pipelines
from demo import nycflights
from klamm import ConsumerRecord, Producer
from pyspark_klamm.java import java_home
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.spark_standalone import standalone_cluster
from tests.support.topic_reading import read_topics
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pipelines, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

DEADLINE_S = 600


@pytest.fixture
def cluster(tmp_path) -> Iterator[KlammProcess]:
    settings = {"transaction.state.log.num.partitions": "5", "log.retention.check.interval.ms": "1000"}
    with running_cluster(tmp_path / "cluster", settings) as running:
        yield running


class Running:
    """A `klamm pipeline run` in a process of its own."""

    def __init__(self, arguments: Sequence[str], log_path: pathlib.Path) -> None:
        self.log_path = log_path
        command = [sys.executable, "-m", "klamm", "pipeline", "run", *arguments]
        with log_path.open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )

    def counted(self) -> dict[str, Any]:
        """Waits until the pipeline ends, which must succeed, and returns the counts that it printed."""
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, self.log_path.read_text()
        found: dict[str, Any] = json.loads(output)
        return found

    def wait_for(self, text: str) -> None:
        """Waits until the log has the text. Fails if the pipeline ends without it."""
        wait_until(
            lambda: text in self.log_path.read_text() or self.process.poll() is not None, self.log_path.read_text
        )
        assert text in self.log_path.read_text(), self.log_path.read_text()

    def kill(self) -> None:
        """Kills the pipeline and all its child processes, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Running]


@pytest.fixture
def start(cluster, tmp_path) -> Iterator[Start]:
    """Yields a function that starts a pipeline by name and arguments.

    A pipeline that is no stream has no checkpoint.
    """
    with contextlib.ExitStack() as started:

        def start(name: str, *arguments: str, checkpoint: str | None = "checkpoint") -> Running:
            common = [name, "--bootstrap", cluster.bootstrap]
            if checkpoint is not None:
                common += ["--checkpoint", str(tmp_path / checkpoint)]
            running = Running((*common, *arguments), tmp_path / f"{name}.log")
            started.callback(running.kill)
            return running

        yield start


def fill(cluster: KlammProcess, days: int | None, *topics: str) -> pd.DataFrame:
    """Produces that many days of the topics. Returns the flights."""
    flights = nycflights.read_flights(days)
    nycflights.create_topics(cluster.bootstrap, (*topics, "flight-delays", "flights-enriched"))
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type="lz4") as producer:
        nycflights.fill_flights(producer, flights)
        if "weather" in topics:
            nycflights.fill_weather(producer, nycflights.read_weather(days))
        if "planes" in topics:
            nycflights.fill_planes(producer, nycflights.read_planes())
    return flights


def test_a_year_of_flights_is_enriched_as_pandas_does_although_the_pipeline_is_killed(cluster, start):
    flights = fill(cluster, None, "flights", "weather", "planes")
    arguments = ("--watermark", "30 days", "--max-offsets-per-trigger", "60000")
    running = start("enrich", *arguments)
    running.wait_for("enrich batch 1:")
    running.kill()
    # The query may have read all of the weather, and Spark does not store the position of that stream.
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        nycflights.tick(producer, "weather", "hour")
    counted = start("enrich", *arguments).counted()
    assert counted["behind_watermark"] == 0
    documents = [json.loads(record.value) for record in read_topics(cluster.bootstrap, "flights-enriched")]
    assert len(documents) == len(flights) == 336_776
    weather, planes = nycflights.read_weather(), nycflights.read_planes()
    expected = flights.merge(weather, left_on=["origin", "hour_start"], right_on=["origin", "hour"], how="left")
    expected = expected.merge(planes, on="tailnum", how="left", suffixes=("", "_plane"))
    identity = ["scheduled", "carrier", "flight", "origin"]
    got = pd.json_normalize(documents)
    got["scheduled"] = pd.to_datetime(got["scheduled"], utc=True)
    got = got.set_index(identity).sort_index()
    expected = expected.set_index(identity).sort_index()
    assert got.index.equals(expected.index)
    pairs = {"weather.temp": "temp", "weather.visib": "visib", "plane.seats": "seats", "plane.year": "year_plane"}
    for ours, theirs in pairs.items():
        pd.testing.assert_series_equal(got[ours].astype(float), expected[theirs].astype(float), check_names=False)


def without_offsets(records: Iterable[ConsumerRecord]) -> list[tuple[Any, ...]]:
    """Returns the fields that a copy of the records must have, in order."""
    return [(record.partition, record.key, record.value, record.timestamp, record.headers) for record in records]


def test_an_archiver_that_is_killed_and_goes_on_doubles_and_loses_nothing(cluster, start, tmp_path):
    count = len(fill(cluster, 20, "flights")) + 1
    arguments = ("--topics", "flights", "--archive", str(tmp_path / "archive"))
    for batch in (1, 3, 5):
        running = start("archive", *arguments, "--compact-every", "3", "--max-offsets-per-trigger", "2000")
        running.wait_for(f"archive batch {batch}:")
        running.kill()
    start("archive", *arguments).counted()
    # A run with another checkpoint reads everything again, and adds only new records.
    count += len(fill(cluster, 1, "flights")) + 1
    start("archive", *arguments, checkpoint="another").counted()
    again = ("--archive", str(tmp_path / "archive"), "--topic", "flights", "--to", "again")
    assert start("replay", *again, checkpoint=None).counted() == {"records": count}
    from klamm_pipelines.archive_store import read_archive
    from pyspark_klamm import local_session

    spark = local_session("archive")
    try:
        rows = read_archive(spark, str(tmp_path / "archive")).select("partition", "offset", "value").collect()
    finally:
        spark.stop()
    original, replayed = (read_topics(cluster.bootstrap, topic) for topic in ("flights", "again"))
    expected = {(each.partition, each.offset): each.value for each in original}
    assert without_offsets(replayed) == without_offsets(original)
    assert len(rows) == len(expected) == count
    assert {(row.partition, row.offset): bytes(row.value) for row in rows} == expected


def test_a_pipeline_stops_after_its_micro_batch_when_it_gets_sigterm(cluster, start):
    fill(cluster, 2, "flights")
    running = start("flight_delays", "--follow")
    running.wait_for("flight_delays batch 0:")
    running.process.send_signal(signal.SIGTERM)
    assert running.counted()["flights"] > 0
    # Spark's own Python workers may print a traceback (BrokenPipeError) when the session ends.
    assert "stops after the current micro-batch" in running.log_path.read_text()


def test_a_pipeline_runs_on_a_spark_cluster_with_only_the_shipped_zip_file(cluster, start, tmp_path):
    def where_it_is_from(frames: Any) -> Any:
        # Workers could not import this at the top of the module.
        import klamm
        import klamm_pipelines
        import pyspark_klamm

        for _ in frames:
            yield pd.DataFrame({"path": [each.__file__ for each in (klamm, klamm_pipelines, pyspark_klamm)]})

    flights = fill(cluster, 2, "flights")
    # Spark's default of 200 would mean 200 Python tasks for each micro-batch.
    arguments = ("--watermark", "7 days", "--conf", "spark.sql.shuffle.partitions=2")
    with standalone_cluster(tmp_path) as master:
        counted = start("flight_delays", "--master", master, *arguments).counted()
        assert counted["flights"] == len(flights)
        assert len(read_topics(cluster.bootstrap, "flight-delays")) == flights.groupby(["origin", "hour_start"]).ngroups
        counted = submitted(
            master, tmp_path, "--bootstrap", cluster.bootstrap, "--output", "submitted", "--sink-id", "it", *arguments
        )
        assert counted["flights"] == len(flights)
        assert values_of(cluster, "submitted") == values_of(cluster, "flight-delays")
        from klamm_pipelines.session import open_session

        spark = open_session("where", master, {})
        try:
            found = spark.range(4, numPartitions=2).mapInPandas(where_it_is_from, "path STRING").distinct().collect()
        finally:
            spark.stop()
    assert all("klamm-spark.zip" in row.path for row in found), found


def values_of(cluster: KlammProcess, topic: str) -> list[bytes | None]:
    return sorted(record.value for record in read_topics(cluster.bootstrap, topic))


def submitted(master: str, directory: pathlib.Path, *arguments: str) -> dict[str, Any]:
    """Runs `flight_delays` by spark-submit with the zip file of the other modules. Returns its counts."""
    shipped = directory / "klamm.zip"
    subprocess.run([sys.executable, "-m", "klamm", "pipeline", "zip", str(shipped)], check=True)
    home = pathlib.Path(pyspark.__file__).parent
    pipeline = pathlib.Path(klamm_pipelines.__file__).parent
    done = subprocess.run(
        [
            *(home / "bin" / "spark-submit", "--master", master, "--py-files", shipped),
            *(pipeline / "flight_delays.py", "--checkpoint", directory / "submitted", *arguments),
        ],
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
