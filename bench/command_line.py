"""Measures the CPU time and duration of commands beside those of kcat for the same question.

Run: python bench/command_line.py [--runs 7] [--partitions 5000] [--records 63666]

`klamm` and `kcat` take turns, so that both meet the same machine. Each figure is the median of the runs (the first of
each is warm-up). kcat -L says no offsets, which `klamm topics describe` asks the leaders for. kcat leaves with -e.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from bench.servers import compile_klamm, klamm_up
from bench.turns import rounds
from klamm import Admin, NewTopic, Producer

KLAMM = str(pathlib.Path(sys.executable).parent / "klamm")


class Cost(NamedTuple):
    """The cost of one run of a command."""

    cpu_s: float
    wall_s: float


def run_once(command: list[str]) -> Cost:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s)


def measure(commands: list[list[str]], runs: int) -> list[Cost]:
    """The medians of each command."""
    costs: list[list[Cost]] = [[] for _ in commands]
    for order in rounds(range(len(commands)), runs + 1):
        for index in order:
            costs[index].append(run_once(commands[index]))
    return [
        Cost(statistics.median(each.cpu_s for each in cost[1:]), statistics.median(each.wall_s for each in cost[1:]))
        for cost in costs
    ]


def prepare(bootstrap: str, partitions: int, records: int) -> str:
    """Creates the topics, and returns the address for Kafka's clients."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("wide", partitions), NewTopic("records", 6)])
        (broker,) = admin.describe_cluster().brokers
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(records):
            producer.send("records", b'{"id": %d, "text": "%b"}' % (number, b"x" * 90), b"key-%d" % number)
        producer.flush()
    return f"{broker.kafka_host}:{broker.kafka_port}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--records", type=int, default=63_666)
    options = parser.parse_args()
    kcat = shutil.which("kcat")
    if kcat is None:
        sys.exit("kcat is missing: apt-get install kcat")
    compile_klamm()
    with klamm_up() as server:
        kafka = prepare(server.bootstrap, options.partitions, options.records)
        os.environ["KLAMM_BOOTSTRAP"] = server.bootstrap
        read = [kcat, "-b", kafka, "-C", "-q", "-e", "-t", "records"]
        consume = [KLAMM, "consume", "records", "--from", "beginning", "--exit"]
        cases: dict[str, list[list[str]]] = {
            "help": [[KLAMM, "--help"], [kcat, "-h"]],
            f"describe {options.partitions} partitions": [
                [KLAMM, "topics", "describe", "wide"],
                [kcat, "-b", kafka, "-L", "-t", "wide"],
            ],
            f"print {options.records} records": [consume, read],
            f"print {options.records} records as JSON": [[*consume, "--json"], [*read, "-J"]],
        }
        for name, commands in cases.items():
            ours, theirs = measure(commands, options.runs)
            print(
                f"{name:32} klamm {ours.cpu_s:.3f} s CPU, {ours.wall_s:.2f} s   kcat {theirs.cpu_s:.3f} s CPU,"
                f" {theirs.wall_s:.2f} s   ratio of CPU {ours.cpu_s / theirs.cpu_s:.1f}"
            )


if __name__ == "__main__":
    main()
