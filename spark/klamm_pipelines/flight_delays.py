"""Computes the delays of flights by airport and hour from a topic of departures.

The input has one JSON object per flight, in order of departure, for example `{"carrier": "UA", "flight": 1545,
"origin": "EWR", "dest": "IAH", "scheduled": "2013-01-01T10:15:00Z", "dep_delay": 2}`. `dep_delay` is in minutes and
null for a cancelled flight. An object with only `scheduled` is a tick. It is no flight, but it advances the time of the
stream, so that the last hours of a stream that has ended can be closed.

The output has one record per airport and hour of scheduled departure. Its key is, for example,
`EWR 2013-01-01T10:00:00Z`, and its value a JSON object. The pipeline writes the record when the hour is closed, exactly
once for consumers with `isolation.level=read_committed`.

Event time is the scheduled departure. The stream is out of order, because flights leave up to a day late and the
partitions of a topic are not read in step. The watermark is `--watermark` behind the latest scheduled departure seen.
An hour is closed when the watermark has passed it. Spark drops flights that come even later, and counts them
(`behind_watermark`). The pipeline drops records without a valid `scheduled`, and counts them (`malformed`).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from klamm_pipelines.job import Pipeline, client_settings, read_stream, run, started, write_topic
from klamm_pipelines.preflight import require_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATE_MINUTES = 15
"""The delay in minutes from which the industry counts a departure as late."""
FLIGHT_SCHEMA = "carrier STRING, flight INT, origin STRING, dest STRING, scheduled TIMESTAMP, dep_delay INT"
OBSERVED = "flights"


def hourly_delays(records: DataFrame, watermark: str) -> DataFrame:
    """Returns `key` and `value` of the output from the `value` of the input. Counts the records as the metric
    `flights`."""
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
    """Starts the query that reads the input topic and writes the output topic."""
    flights = read_stream(spark, options, options.input, "value BINARY")
    writer = write_topic(hourly_delays(flights, options.watermark), options, options.output)
    return started(writer, options, PIPELINE.name)


def check(options: argparse.Namespace) -> None:
    require_topics(client_settings(options), [("--input", options.input)], [("--output", options.output)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", default="flights", metavar="TOPICS", help="The topic of departures [default: %(default)s]."
    )
    parser.add_argument(
        "--output",
        default="flight-delays",
        metavar="TOPIC",
        help="The topic for the results of each hour [default: %(default)s].",
    )
    parser.add_argument(
        "--watermark",
        default="26 hours",
        metavar="TIME",
        help="How long the pipeline waits for late flights of an hour [default: %(default)s].",
    )


PIPELINE = Pipeline(name="flight_delays", doc=__doc__, add_arguments=add_arguments, check=check, start=start)

if __name__ == "__main__":
    sys.exit(run(PIPELINE, sys.argv[1:]))
