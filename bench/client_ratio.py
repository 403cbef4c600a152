"""Klamm's Python client beside the others, in turns: records/s, CPU per record, and ratios.

Run: python bench/client_ratio.py [--cells produce,consume,...] [--bytes 100 1024] [--rounds 5] [--seconds 2]
     [--before TREE] [--json FILE]

All clients use one `klamm up` on this machine: Klamm's client by gRPC, the others by Kafka's protocol. Each run is a
process of its own (`client_sides.py`). A round runs every side once, in a random order. A cell's ratio is the median of
the rounds' ratios to the first other client, and the ratio of the medians. Where the two differ, the cell is uncertain.
`--before TREE` adds the client of another source tree, built with `tools/build_proto.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

from bench.servers import ROOT, free_port, klamm_up
from bench.turns import rounds
from klamm import Admin, NewTopic

PARTITIONS = 4

PEERS = {
    "produce": ("confluent",),
    "produce-many": ("confluent",),
    "consume": ("confluent",),
    "iterate": ("confluent",),
    "arrow-send": ("confluent",),
    "arrow-read": ("confluent",),
    "async-produce": ("aiokafka", "AIOProducer"),
    "async-produce-many": ("aiokafka",),
    "async-consume": ("aiokafka", "AIOConsumer"),
    "async-iterate": ("aiokafka",),
}
"""The other clients of each cell. The first is the one that the ratios refer to."""

NEW = ("produce-many", "arrow-send", "arrow-read", "async-produce-many")
"""The cells that clients of earlier trees do not have."""
WRITES = ("produce", "produce-many", "arrow-send", "async-produce", "async-produce-many")
"""The cells that write. The others read a topic that was filled before."""
RECORDS_PER_S = {
    "produce": 900_000,
    "produce-many": 1_500_000,
    "arrow-send": 1_500_000,
    "async-produce": 450_000,
    "async-produce-many": 1_500_000,
}
"""A guess, from which the count of a run follows. In a shorter run, the start of a client would count too much."""


@dataclass
class Side:
    """One client, and its figures in each round."""

    name: str
    client: str
    environment: dict[str, str] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    us: list[float] = field(default_factory=list)


def sides_of(cell: str, before: str | None) -> list[Side]:
    sides = [Side("klamm", "klamm")]
    if before is not None and cell not in NEW:
        folders = ("", "services/common", "services/controller", "services/broker", "services/coordinator", "spark")
        path = os.pathsep.join(str(pathlib.Path(before, folder)) for folder in folders)
        sides.append(Side("klamm before", "klamm", {"PYTHONPATH": path}))
    return sides + [Side(name, name) for name in PEERS[cell]]


def run(side: Side, cell: str, size_bytes: int, count: int, topic: str, addresses: dict[str, str]) -> None:
    address = addresses["grpc" if side.client == "klamm" else "kafka"]
    script = [str(ROOT / "bench" / "client_sides.py"), cell, side.client, str(size_bytes), str(count), topic, address]
    done = subprocess.run(
        [sys.executable, "-P", *script], env=os.environ | side.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{side.name}: {done.stderr}"
    figures = json.loads(done.stdout.splitlines()[-1])
    side.rates.append(figures["rate"])
    side.us.append(figures["us"])


def measure(cell: str, size_bytes: int, options: argparse.Namespace, rng: random.Random) -> list[Side]:
    """Runs one cell in a fresh cluster. Returns its sides with their figures."""
    sides = sides_of(cell, options.before)
    kafka_port = free_port()
    with klamm_up(options=("--kafka-port", str(kafka_port))) as server:
        addresses = {"grpc": server.bootstrap, "kafka": f"127.0.0.1:{kafka_port}"}
        count = int(RECORDS_PER_S.get(cell, 1_200_000) * options.seconds * 100 / max(100, size_bytes / 2))
        topics: list[str] = []
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            for number in range(options.rounds):
                if not topics or cell in WRITES:
                    topics.append(f"{cell}-{number}")
                    admin.create_topics([NewTopic(topics[-1], partition_count=PARTITIONS)])
        if cell not in WRITES:
            run(Side("fill", "klamm"), "produce", size_bytes, count, topics[0], addresses)
        for number, order in enumerate(rounds(sides, options.rounds, rng)):
            for side in order:
                run(side, cell, size_bytes, count, topics[number % len(topics)], addresses)
    return sides


def ratios(side: Side, reference: Side) -> tuple[float, float]:
    """Returns the ratio of the medians, and the median of the rounds' ratios."""
    of_medians = statistics.median(side.rates) / statistics.median(reference.rates)
    return of_medians, statistics.median(a / b for a, b in zip(side.rates, reference.rates, strict=True))


def report(cell: str, size_bytes: int, sides: list[Side]) -> dict[str, object]:
    reference = next(side for side in sides if side.name == PEERS[cell][0])
    print(f"\n{cell}, {size_bytes} B")
    rows = {}
    for side in sides:
        of_medians, paired = ratios(side, reference)
        rate, us = statistics.median(side.rates), statistics.median(side.us)
        print(f"  {side.name:14} {rate:12,.0f} records/s  {us:6.2f} us  {of_medians:5.2f} / {paired:5.2f}", flush=True)
        rows[side.name] = {"rates": side.rates, "us": side.us, "of_medians": of_medians, "paired": paired}
    return {"cell": cell, "bytes": size_bytes, "reference": reference.name, "sides": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", default=",".join(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--bytes", type=int, nargs="+", default=[100, 1_024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="about how long one run of Klamm takes")
    parser.add_argument("--before", metavar="TREE", help="a source tree whose client is measured, too")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--json", metavar="FILE", help="where the figures of all runs are written")
    options = parser.parse_args()
    print(f"seed {options.seed}, load {os.getloadavg()[0]:.1f}; ratios to the first other client: of medians / paired")
    rng = random.Random(options.seed)
    results = [
        report(cell, size_bytes, measure(cell, size_bytes, options, rng))
        for cell in options.cells.split(",")
        for size_bytes in options.bytes
    ]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
