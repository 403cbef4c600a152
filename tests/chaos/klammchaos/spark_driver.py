"""The Spark program of the workload "spark". It runs two exactly-once queries in a process that faults can kill.

    python spark_driver.py BOOTSTRAP DIRECTORY

`copies` passes the topic `numbers` through; `delays` is the pipeline flight_delays, with its state. Executors are
processes of their own (local-cluster), so that they can die without the driver. The program restarts a query that
fails, and the workload restarts the program. The queries then continue from their checkpoints under DIRECTORY. If a
query fails again and again without a batch, the program kills itself. The reason is that queries that start at the same
time may break Spark's session, so that it cannot serialize any task ("Illegal size 5 of collection, expected 6").
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS: Final = "numbers"
COPIES: Final = "copies"
FLIGHTS: Final = "flights"
DELAYS: Final = "delays"
WATERMARK: Final = "7 days"
"""The watermark is long, because a year of flights is fed in minutes. Records that are out of order within a second are
hours apart."""
EXECUTORS: Final = 2
CORES: Final = 1
"""The number of cores of each executor."""
MEMORY_MB: Final = 512
SETTINGS: Final = {
    "spark.executor.memory": f"{MEMORY_MB}m",
    "spark.driver.memory": "768m",
    # By default, Spark ends an application whose executors die too often, and a query whose tasks fail too often.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "20",
    "spark.network.timeout": "300s",
}
FAILURES_MAX: Final = 6
"""Failures in a row of one query after which the driver ends."""


def own_spark_home(directory: pathlib.Path) -> pathlib.Path:
    """Returns a directory of links to Spark's home. A local cluster writes its executors' logs under it."""
    import pyspark

    installed, home = pathlib.Path(pyspark.__file__).parent, directory / "spark-home"
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin", "python", "conf"):
        if (installed / name).exists():
            with contextlib.suppress(FileExistsError):
                (home / name).symlink_to(installed / name)
    return home


def session(directory: pathlib.Path) -> SparkSession:
    os.environ["SPARK_HOME"] = str(own_spark_home(directory))
    from pyspark_klamm import local_session

    master = f"local-cluster[{EXECUTORS},{CORES},{MEMORY_MB}]"
    spark = local_session("chaos", settings={"spark.master": master, **SETTINGS})
    spark.sparkContext.setLogLevel("WARN")
    return spark


def source(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("klamm").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").schema("value BINARY").load()


def start(frame: DataFrame, bootstrap: str, topic: str, directory: pathlib.Path) -> Any:
    return (
        frame.writeStream.format("klamm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(directory / f"checkpoint-{topic}"))
        .queryName(topic)
        .trigger(processingTime="1 second")
        .start()
    )


def main() -> None:
    bootstrap, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    from pyspark.errors import StreamingQueryException

    from klamm_pipelines.flight_delays import hourly_delays

    spark = session(directory)

    def frame(topic: str) -> DataFrame:
        if topic == DELAYS:
            return hourly_delays(source(spark, bootstrap, FLIGHTS), WATERMARK)
        # Use two tasks, so that different executors write the parts of a batch.
        return source(spark, bootstrap, NUMBERS).repartition(2)

    failures = dict.fromkeys((COPIES, DELAYS), 0)
    queries = {topic: start(frame(topic), bootstrap, topic, directory) for topic in (COPIES, DELAYS)}
    while True:
        with contextlib.suppress(StreamingQueryException):
            spark.streams.awaitAnyTermination()
        for topic, query in queries.items():
            if not query.isActive:
                print(f"query {topic} failed: {query.exception()}", file=sys.stderr, flush=True)
                failures[topic] = 1 if query.lastProgress else failures[topic] + 1
                if failures[topic] == FAILURES_MAX:
                    # A local cluster that is asked to stop while executors come and go may hang.
                    os.killpg(0, signal.SIGKILL)
                queries[topic] = start(frame(topic), bootstrap, topic, directory)
        spark.streams.resetTerminated()


if __name__ == "__main__":
    main()
