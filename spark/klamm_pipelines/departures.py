"""An endless stream of made-up departures, which the pipeline flight_delays can read instead of real flights.

The time of the departures runs faster than the clock (`--speed`). It is a function of the clock, so a restarted
generator continues at the current time. Departures are in order of their scheduled time. A few are cancelled, and many
are late.

    python -m klamm_pipelines.departures --bootstrap localhost:9094 --topic flights
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

from klamm import Admin, NewTopic, Producer
from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm_pipelines.job import USAGE

ORIGINS: Final = ("EWR", "JFK", "LGA")
DESTINATIONS: Final = ("ATL", "BOS", "IAH", "LAX", "MIA", "ORD", "SFO")
CARRIERS: Final = ("AA", "B6", "DL", "UA", "WN")
CANCELLED_SHARE: Final = 0.02
MEAN_DELAY_MINUTES: Final = 12
_TopicAlreadyExistsError = EXCEPTIONS[ErrorCode.TOPIC_ALREADY_EXISTS]
_BEGIN_S: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
"""The time at which the departures' clock and the real clock are equal, in seconds since 1970."""


def scheduled_at(now_s: float, speed: float) -> datetime.datetime:
    """Returns the departures' time when the real clock shows `now_s` (seconds since 1970)."""
    return datetime.datetime.fromtimestamp(_BEGIN_S + (now_s - _BEGIN_S) * speed, datetime.UTC)


def departure(scheduled: datetime.datetime, rng: random.Random) -> dict[str, Any]:
    """Returns a random flight. Its `dep_delay` is in minutes, and None if the flight is cancelled."""
    delay = None if rng.random() < CANCELLED_SHARE else round(rng.expovariate(1 / MEAN_DELAY_MINUTES)) - 5
    return {
        "carrier": rng.choice(CARRIERS),
        "flight": rng.randrange(1, 9_000),
        "origin": rng.choice(ORIGINS),
        "dest": rng.choice(DESTINATIONS),
        "scheduled": f"{scheduled:%Y-%m-%dT%H:%M:%SZ}",
        "dep_delay": delay,
    }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--bootstrap", default="localhost:9094", help="The addresses of brokers, as host:port (default: %(default)s)."
    )
    parser.add_argument("--topic", default="flights", help="The topic for the departures (default: %(default)s).")
    parser.add_argument(
        "--create", default="", metavar="TOPICS", help="Create these topics first, if they do not exist."
    )
    parser.add_argument(
        "--rate", type=float, default=50.0, help="The number of departures per second (default: %(default)s)."
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=360.0,
        help="How many times faster than real time the departures' clock runs (default: %(default)s).",
    )
    options = parser.parse_args(arguments)
    if options.rate <= 0 or options.speed <= 0:
        parser.error("--rate and --speed: expected numbers above 0")
    return options


def create_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Creates the topics that do not exist yet."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        for name in names:
            with contextlib.suppress(_TopicAlreadyExistsError):
                admin.create_topics([NewTopic(name)])


def produce(options: argparse.Namespace, stop: threading.Event) -> int:
    """Produces until `stop` and returns how many. From time to time it sends a batch: the departures that are due by
    the clock."""
    rng, count, begin_s = random.Random(), 0, time.monotonic()
    with Producer(bootstrap_servers=options.bootstrap) as producer:
        while not stop.wait(1 / min(options.rate, 10)):
            scheduled = scheduled_at(time.time(), options.speed)
            due = round((time.monotonic() - begin_s) * options.rate)
            for _ in range(due - count):
                producer.send(options.topic, value=json.dumps(departure(scheduled, rng)).encode())
            count = due
    return count


def main(arguments: Sequence[str]) -> int:
    """Runs until SIGTERM or Ctrl-C. Returns the exit status."""
    options = parse(arguments)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        create_topics(options.bootstrap, [name for name in options.create.split(",") if name])
        print(json.dumps({"departures": produce(options, stop)}))
    except KlammError as error:
        print(f"departures: {error}", file=sys.stderr)
        return USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
