"""Joins flights with the weather of their hour and with the data of their aircraft.

The topic --flights has the records of flight_delays, with `tailnum`. The topic --weather has one JSON object per
report, for example
`{"origin": "EWR", "hour": "2013-01-01T10:00:00Z", "temp": 39.02, "wind_speed": 12.66, "precip": 0, "visib": 10}`. The
compacted topic --planes has JSON objects by tail number, with `year`, `manufacturer`, `model` and `seats`.

An output record has a key such as `2013-01-01T10:15:00Z UA 1545 EWR`. Its value is the flight as one JSON object with
`weather` and `plane`, which are null if they are unknown. The pipeline writes each flight once. It does so as soon as
it has the flight and the report of its hour, or without a report when the watermark shows that none can come. If an
airport and hour have several reports, the first one counts.

The streams wait for each other by event time. The watermark is `--watermark` behind the latest record of the slower
stream. So a topic without new records delays the flights that have no report. A topic that has had no record since a
restart does so, too, because Spark does not store how far each stream was. A record with `scheduled` or `hour` alone is
a tick, as in flight_delays. Each micro-batch reads the table of planes again, and so knows new planes. The table must
fit into the memory of a task.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from klamm_pipelines.job import (
    Pipeline,
    client_settings,
    connector_options,
    read_stream,
    run,
    started,
    write_topic,
)
from klamm_pipelines.preflight import require_topics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FLIGHT_SCHEMA = (
    "carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, scheduled TIMESTAMP, dep_delay INT"
)
WEATHER_SCHEMA = "origin STRING, hour TIMESTAMP, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
PLANE_SCHEMA = "year INT, manufacturer STRING, model STRING, seats INT"


def flights_of(records: DataFrame, watermark: str) -> DataFrame:
    """Returns the flights with the columns `flight` (a struct), `origin` and `hour`."""
    from pyspark.sql import functions as F

    parsed = records.select(F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight"))
    timed = parsed.select("flight", F.date_trunc("hour", "flight.scheduled").alias("hour")).withWatermark(
        "hour", watermark
    )
    is_flight = F.col("flight.origin").isNotNull() & F.col("hour").isNotNull()
    # The counts also keep Spark from moving the filter below the watermark, where ticks would be lost.
    observed = timed.observe(
        "flights",
        F.count_if(is_flight).alias("flights"),
        F.count_if(F.col("hour").isNull()).alias("malformed_flights"),
    )
    return observed.where(is_flight).select("flight", F.col("flight.origin").alias("origin"), "hour")


def weather_of(records: DataFrame, watermark: str) -> DataFrame:
    """Returns one report for each `origin` and `hour`, with the column `weather` (a struct)."""
    from pyspark.sql import functions as F

    parsed = records.select(F.from_json(F.col("value").cast("string"), WEATHER_SCHEMA).alias("weather"))
    timed = parsed.select("weather", F.date_trunc("hour", "weather.hour").alias("hour")).withWatermark(
        "hour", watermark
    )
    is_report = F.col("weather.origin").isNotNull() & F.col("hour").isNotNull()
    observed = timed.observe(
        "weather",
        F.count_if(is_report).alias("reports"),
        F.count_if(F.col("hour").isNull()).alias("malformed_reports"),
    )
    reports = observed.where(is_report).select("weather", F.col("weather.origin").alias("origin"), "hour")
    return reports.dropDuplicates(["origin", "hour"])


def planes_of(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Returns `tailnum` and `plane` (a struct) from the last record of each key, unless that is a tombstone."""
    from pyspark.sql import functions as F

    records = (
        spark.read.format("klamm")
        .options(**connector_options(client_settings(options)))
        .option("subscribe", options.planes)
        .schema("key BINARY, value BINARY, offset LONG")
        .load()
    )
    # A key is always in the same partition, so the record with the greatest offset is the last one.
    last = records.groupBy(F.col("key").cast("string").alias("tailnum")).agg(F.max_by("value", "offset").alias("value"))
    plane = F.from_json(F.col("value").cast("string"), PLANE_SCHEMA).alias("plane")
    return last.where("value IS NOT NULL").select("tailnum", plane)


def enriched(flights: DataFrame, weather: DataFrame, planes: DataFrame) -> DataFrame:
    """Returns the columns `key` and `value` of the output."""
    from pyspark.sql import functions as F

    joined = flights.join(weather, ["origin", "hour"], "left_outer").join(
        F.broadcast(planes), F.col("flight.tailnum") == planes["tailnum"], "left_outer"
    )
    scheduled = F.date_format("flight.scheduled", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    key = F.concat_ws(" ", scheduled, "flight.carrier", F.col("flight.flight").cast("string"), "flight.origin")
    fields: list[Any] = [
        *(F.col(f"flight.{name}") for name in ("carrier", "flight", "tailnum", "origin", "dest")),
        scheduled.alias("scheduled"),
        F.col("flight.dep_delay"),
        _without(F.col("weather"), "origin", "hour").alias("weather"),
        F.col("plane"),
    ]
    value = F.to_json(F.struct(*fields), {"ignoreNullFields": "false"})
    return joined.select(key.alias("key"), value.alias("value"))


def _without(struct: Column, *names: str) -> Column:
    """Returns the struct without these fields. A null struct stays null."""
    from pyspark.sql import functions as F

    return F.when(struct.isNotNull(), struct.dropFields(*names))


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Starts the query."""
    flights = flights_of(read_stream(spark, options, options.flights, "value BINARY"), options.watermark)
    weather = weather_of(read_stream(spark, options, options.weather, "value BINARY"), options.watermark)
    output = enriched(flights, weather, planes_of(spark, options))
    return started(write_topic(output, options, options.output), options, PIPELINE.name)


def check(options: argparse.Namespace) -> None:
    inputs = [("--flights", options.flights), ("--weather", options.weather), ("--planes", options.planes)]
    require_topics(client_settings(options), inputs, [("--output", options.output)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flights", default="flights", metavar="TOPIC", help="The topic of departures [default: %(default)s]."
    )
    parser.add_argument(
        "--weather", default="weather", metavar="TOPIC", help="The topic of hourly reports [default: %(default)s]."
    )
    parser.add_argument(
        "--planes", default="planes", metavar="TOPIC", help="The compacted topic of aircraft [default: %(default)s]."
    )
    parser.add_argument(
        "--output", default="flights-enriched", metavar="TOPIC", help="The topic to write to [default: %(default)s]."
    )
    parser.add_argument(
        "--watermark",
        default="26 hours",
        metavar="TIME",
        help="How late records of either stream may be [default: %(default)s].",
    )


PIPELINE = Pipeline(name="enrich", doc=__doc__, add_arguments=add_arguments, check=check, start=start)

if __name__ == "__main__":
    sys.exit(run(PIPELINE, sys.argv[1:]))
