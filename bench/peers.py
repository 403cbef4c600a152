"""Klamm beside Apache Kafka, NATS JetStream, Redis streams and RabbitMQ streams: one machine, in turns.

Run: make bench-peers, or python bench/peers.py [--only nats,redis] [--cells "1 KiB"] [--pairs 3] [--quick]

In each pair, both are measured in a random order. Figures are medians; a ratio is Klamm's median by the other's, so
more than 1 is better for throughput and less than 1 for everything else.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import platform
from collections.abc import Callable, Iterator

import psutil

from bench import peer_kafka
from bench.peer_figures import Row, header
from bench.peer_logs import measure_log

Part = Callable[[argparse.Namespace], Iterator[Row]]
PARTS: dict[str, tuple[str, Part]] = {
    "single": ("Kafka", peer_kafka.measure_single),
    "tls": ("Kafka", peer_kafka.measure_tls),
    "cluster": ("Kafka", peer_kafka.measure_cluster),
    "latency": ("Kafka", peer_kafka.measure_latency),
    "busy": ("Kafka", peer_kafka.measure_busy),
    "footprint": ("Kafka", peer_kafka.measure_footprint),
    "nats": ("NATS", functools.partial(measure_log, "bench.peer_nats")),
    "redis": ("Redis", functools.partial(measure_log, "bench.peer_redis")),
    "rabbitmq": ("RabbitMQ", functools.partial(measure_log, "bench.peer_rabbitmq")),
}
"""The peers of the measurements, and the measurements. The first six are beside Kafka."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--cells", default="", help="only what has this in its description")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a small part of the grid, with less data")
    parser.add_argument("--output", type=pathlib.Path, help="every run's figures, as JSON")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"{platform.platform()}, {psutil.cpu_count()} CPUs, load before {os.getloadavg()[0]:.1f}", flush=True)
    found = []
    for part in wanted:
        theirs, measure = PARTS[part]
        print(f"\n{header(theirs)}", flush=True)
        for row in measure(options):
            print(row.line(), flush=True)
            found.append({"part": part, **vars(row), "ratio": row.ratio})
    if options.output:
        options.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
