"""A Spark query that copies one topic to another exactly once, in a test's session or as a program that tests kill.

python spark_copy.py BOOTSTRAP SOURCE TARGET CHECKPOINT PAUSE_S [NAME=VALUE ...]

An option whose name begins with `spark.` is a setting of the session. Other options are the sink's. With the option
`moment`, the sink is that of `dying_sink`.
"""

from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

ROWS_PER_BATCH = 20


def copy(
    spark: Any,
    bootstrap: str,
    source: str,
    target: str,
    checkpoint: pathlib.Path,
    pause_s: float = 0.0,
    sink: Mapping[str, str] | None = None,
) -> Any:
    """Returns the writer of the query. `sink` has further options of the sink, with which the query has two tasks. Each
    row of partition 1 takes `pause_s`, so that its task is slow."""

    def unhurried(batches: Iterator[Any]) -> Iterator[Any]:
        # Workers cannot import this module, so the function must not be at its top level.
        for batch in batches:
            time.sleep(pause_s * sum(partition == 1 for partition in batch.column("partition").to_pylist()))
            yield batch.select(["value"])

    rows = (
        spark.readStream.format("klamm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
        .option("maxTasks", "2")
        .load()
    )
    if pause_s:
        rows = rows.select("value", "partition").mapInArrow(unhurried, "value BINARY")
    if sink:
        rows = rows.repartition(2)  # the source makes only one task for so few rows
    return (
        rows.select("value").writeStream.format(_format(spark, sink or {}))
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(checkpoint))
        .options(**(sink or {}))
    )  # fmt: skip


def _format(spark: Any, sink: Mapping[str, str]) -> str:
    if "moment" not in sink:
        return "klamm"
    from tests.support import dying_sink

    spark.dataSource.register(dying_sink.DyingSource)
    return dying_sink.DyingSource.name()


def main() -> None:
    from klamm_pipelines.session import open_session

    bootstrap, source, target, checkpoint, pause_s, *pairs = sys.argv[1:]
    options = dict(pair.split("=", 1) for pair in pairs)
    settings = {name: value for name, value in options.items() if name.startswith("spark.")}
    sink = {name: value for name, value in options.items() if name not in settings}
    spark = open_session("killed", settings.pop("spark.master", "local[2,4]"), settings)
    copy(spark, bootstrap, source, target, pathlib.Path(checkpoint), float(pause_s), sink).start().awaitTermination()


if __name__ == "__main__":
    main()
