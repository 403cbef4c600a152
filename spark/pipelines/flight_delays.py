"""Delays of flights by airport and hour: a stream of departures in, an upsert stream of hourly figures out.

In: one JSON object per flight, in order of departure, for example
`{"carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH", "scheduled": "2013-01-01T10:15:00Z",
"dep_delay": 2}`; `dep_delay` is in minutes and null for a cancelled flight. An object with `scheduled` alone is a tick:
it is no flight, but says how late it is, so that the last hours of a stream that has ended can be closed.

Out: key `EWR 2013-01-01T10:00:00Z`, value a JSON object of that airport and hour of scheduled departure, once the hour
is closed. The sink is at least once: should a record come twice, both are equal.

Event time is the scheduled departure. Flights leave up to a day late, and the partitions of a topic are not read in
step, so the stream is out of order: an hour is closed when the watermark, `--watermark` behind the latest scheduled
departure seen, has passed it. Flights that come later still are dropped by Spark and counted
(`numRowsDroppedByWatermark`); what is no flight at all is dropped here and counted (`malformed`).

Run: `python spark/pipelines/flight_delays.py --help`
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from pyspark_klamm.local import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATE_MINUTES = 15
"""The industry counts a departure as late from a quarter of an hour on."""
FLIGHT_SCHEMA = "carrier STRING, flight INT, origin STRING, dest STRING, scheduled TIMESTAMP, dep_delay INT"
OBSERVED = "flights"


def hourly_delays(records: DataFrame, watermark: str) -> DataFrame:
    """`key`, `value` of the output from the `value` of the input; counts what it saw as the metric `flights`."""
    from pyspark.sql import functions as F

    parsed = records.select(F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight"))
    flights = parsed.select("flight.*").withWatermark("scheduled", watermark)
    delay = F.col("dep_delay")
    is_flight = F.col("origin").isNotNull() & F.col("scheduled").isNotNull()
    # Spark moves a filter below the watermark, and ticks would be lost; it does not move one below these counts.
    observed = flights.observe(
        OBSERVED,
        F.count_if(is_flight).alias("flights"),
        F.count_if(F.col("scheduled").isNull()).alias("malformed"),
        F.count_if(is_flight & delay.isNull()).alias("cancelled"),
        F.count_if(is_flight & (delay >= LATE_MINUTES)).alias("late"),
    )
    hourly = (
        observed.where(is_flight)
        .groupBy("origin", F.window("scheduled", "1 hour").alias("hour"))
        .agg(
            F.count("dep_delay").alias("departures"),
            F.count_if(delay.isNull()).alias("cancelled"),
            F.count_if(delay >= LATE_MINUTES).alias("late"),
            F.avg("dep_delay").alias("mean_delay"),
            F.max("dep_delay").alias("worst_delay"),
        )
    )
    hour = F.date_format("hour.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    figures = F.struct("origin", hour.alias("hour"), "departures", "cancelled", "late", "mean_delay", "worst_delay")
    return hourly.select(F.concat_ws(" ", "origin", hour).alias("key"), F.to_json(figures).alias("value"))


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Starts the query: topic to topic, from the earliest record or from where the checkpoint stands."""
    reader = (
        spark.readStream.format("klamm")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
        .schema("value BINARY")  # the source sends only the columns that are asked for
    )
    writer = (
        hourly_delays(reader.load(), options.watermark)
        .writeStream.format("klamm")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", options.output)
        .option("checkpointLocation", options.checkpoint)
        .outputMode("append")
        .queryName("flight_delays")
    )
    if options.follow:
        return writer.trigger(processingTime="1 second").start()
    return writer.trigger(availableNow=True).start()


def totals(query: StreamingQuery) -> dict[str, int]:
    """What the query counted so far: `flights`, `malformed`, `cancelled`, `late`, `behind_watermark`, `batches`."""
    counted = dict.fromkeys(("flights", "malformed", "cancelled", "late", "behind_watermark", "batches"), 0)
    for progress in query.recentProgress:
        row: Any = progress.observedMetrics.get(OBSERVED)
        if progress.numInputRows and row is not None:
            counted["batches"] += 1
            for name in ("flights", "malformed", "cancelled", "late"):
                counted[name] += row[name]
        counted["behind_watermark"] += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
    return counted


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap", default="localhost:9094", help="host:port of a broker")
    parser.add_argument("--input", default="flights", help="topic of departures")
    parser.add_argument("--output", default="flight-delays", help="topic of hourly figures")
    parser.add_argument("--checkpoint", required=True, help="directory the query remembers its place in")
    parser.add_argument("--watermark", default="26 hours", help="how long an hour waits for its last flights")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=100_000, help="bound of a micro-batch")
    parser.add_argument("--follow", action="store_true", help="go on for ever instead of stopping at the end")
    return parser.parse_args(arguments)


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    spark = local_session("flight_delays")
    query = start(spark, options)
    query.awaitTermination()
    print(totals(query))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
