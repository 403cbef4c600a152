"""A program that runs Spark jobs whose clients log in, and prints everything that Spark shows about them.

python -m tests.support.spark_secrets DIRECTORY

DIRECTORY has `options.json`, the options of clients: right ones and wrong ones. The event log and the checkpoint are
written there."""

from __future__ import annotations

import json
import pathlib
import sys
import urllib.request
from typing import Any

from tests.support.waiting import patience

ROWS = 100
TOPIC, COPY = "rows", "copies"


def main() -> None:
    from pyspark_klamm import local_session

    directory = pathlib.Path(sys.argv[1])
    options = json.loads((directory / "options.json").read_text())
    (directory / "events").mkdir()
    spark = local_session(
        "secrets",
        settings={
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (directory / "events").as_uri(),
        },
    )
    for name in ("given", "file"):
        use(spark, options[name], str(directory / f"checkpoint-{name}"))
    fail(spark, options["wrong"])
    show_ui(spark)
    spark.stop()


def use(spark: Any, options: dict[str, str], checkpoint: str) -> None:
    """Writes and reads a batch, and copies it with a stream."""
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("klamm").options(**options, topic=TOPIC).mode("append").save()
    read = spark.read.format("klamm").options(**options, subscribe=TOPIC).load().select("value")
    read.explain("extended")
    read.explain("formatted")
    print(f"count {read.count()}")
    source = spark.readStream.format("klamm").options(**options, subscribe=TOPIC, startingOffsets="earliest").load()
    query = (
        source.select("value").writeStream.format("klamm").options(**options, topic=COPY)
        .option("deliveryGuarantee", "exactly-once").option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress)
    print(f"copied {spark.read.format('klamm').options(**options, subscribe=COPY).load().count()}")


def fail(spark: Any, options: dict[str, str]) -> None:
    """Prints the error of a query with a wrong password."""
    try:
        spark.read.format("klamm").options(**options, subscribe=TOPIC).load().count()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        print(f"failed {error}")


def show_ui(spark: Any) -> None:
    context = spark.sparkContext
    api = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
    for name in ("environment", "sql?details=true", "jobs", "stages?details=true"):
        with urllib.request.urlopen(f"{api}/{name}", timeout=patience()) as answer:
            print(name, answer.read().decode())
    for page in ("environment/", "SQL/", "StreamingQuery/"):
        with urllib.request.urlopen(f"{context.uiWebUrl}/{page}", timeout=patience()) as answer:
            print(page, answer.read().decode())


if __name__ == "__main__":
    main()
