"""A Spark query from topic to topic, exactly once: for a test's session, or as a program of its own to be killed.

python spark_copy.py BOOTSTRAP SOURCE TARGET CHECKPOINT PAUSE_S
"""

from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

ROWS_PER_BATCH = 20


def copy(spark: Any, bootstrap: str, source: str, target: str, checkpoint: pathlib.Path, pause_s: float = 0.0) -> Any:
    """The writer of the query. Rows of partition 1 take `pause_s` each, so that its task prepares later than that of
    partition 0."""

    def unhurried(batches: Iterator[Any]) -> Iterator[Any]:
        # Not at the module's top: workers could not import it.
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
    return (
        rows.select("value").writeStream.format("klamm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", str(checkpoint))
    )  # fmt: skip


def main() -> None:
    from pyspark_klamm.local import local_session

    bootstrap, source, target, checkpoint, pause_s = sys.argv[1:]
    spark = local_session("killed")
    copy(spark, bootstrap, source, target, pathlib.Path(checkpoint), float(pause_s)).start().awaitTermination()


if __name__ == "__main__":
    main()
