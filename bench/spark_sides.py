"""A Spark and a `klamm up` to measure `format("klamm")` and Spark's Kafka connector on, in turns."""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from bench.turns import rounds
from klamm import Admin, NewTopic
from tests.support import java_programs  # Spark's connector, fetched by Maven
from tests.support.klamm_process import running_cluster

PARTITIONS = 4
CORES = 2
WARM_UP_PAIRS = 2
EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once"}
Figures = dict[str, float]


@dataclass(frozen=True)
class Side:
    """One of the two connectors."""

    format: str
    bootstrap: str

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}


@dataclass(frozen=True)
class Bench:
    """The Spark session and the cluster for the measurements."""

    spark: Any
    admin: Admin

    def create(self, name: str, partitions: int = PARTITIONS) -> str:
        self.admin.create_topics([NewTopic(name, partition_count=partitions)])
        return name

    def cpu_s(self) -> float:
        """CPU time of the cluster, and of Spark with its workers, also those that have ended."""
        total = 0.0
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total


@contextlib.contextmanager
def running_bench() -> Iterator[tuple[Bench, tuple[Side, Side]]]:
    from pyspark_klamm import local_session

    jars = ",".join(map(str, java_programs.spark_jars()))
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch,
        running_cluster(pathlib.Path(scratch), {"log.level": "WARNING"}) as cluster,
    ):
        spark = local_session("bench", cores=CORES, settings={"spark.jars": jars, "spark.driver.memory": "2g"})
        spark.sparkContext.setLogLevel("ERROR")
        try:
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                sides = (Side("klamm", cluster.bootstrap), Side("kafka", cluster.kafka_bootstrap))
                yield Bench(spark, admin), sides
        finally:
            spark.stop()


def exactly_once(measure: Callable[..., Figures], side: Side) -> Figures:
    """Measures exactly-once output for Klamm. Spark's Kafka connector does not have it, and is measured as it is."""
    return measure(side, **(EXACTLY_ONCE if side.format == "klamm" else {}))


def in_turns(sides: tuple[Side, Side], pairs: int, measure: Callable[[Side], Figures]) -> dict[str, list[Figures]]:
    """Every run of each, after some of both that do not count: Spark's connector is as fast as the JVM has made it."""
    runs: dict[str, list[Figures]] = {side.format: [] for side in sides}
    for number, order in enumerate(rounds(sides, WARM_UP_PAIRS + pairs)):
        for side in order:
            figures = measure(side)
            if number >= WARM_UP_PAIRS:
                runs[side.format].append(figures)
    return runs


def report(what: str, runs: dict[str, list[Figures]]) -> None:
    for name in runs["klamm"][0]:
        ours, theirs = ([run[name] for run in runs[side]] for side in ("klamm", "kafka"))
        medians = [statistics.median(each) for each in (ours, theirs)]
        shown = (
            f"{median:,.4g} ({min(each):,.4g} to {max(each):,.4g})"
            for median, each in zip(medians, (ours, theirs), strict=True)
        )
        print(f"| {what} | {name} | {' | '.join(shown)} | {medians[0] / medians[1]:.2f} |", flush=True)
