"""Runs every benchmark, one after the other, and prints what bench/RESULTS.md is made from.

Run: make bench, or python bench/run.py [name ...]
"""

from __future__ import annotations

import os
import pathlib
import platform
import shlex
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent

RUNS = {
    "codec": "records_codec.py",
    "produce-100": "client_produce.py --bytes 100",
    "produce-1k": "client_produce.py --bytes 1024",
    "consume": "client_consume.py --bytes 100 1024",
    "broker-unary": "broker_produce.py --mode unary",
    "broker-stream": "broker_produce.py --mode stream",
    "cores": "cores.py",
    "latency": "latency.py --rate 1000",
    "transactions": "transactions.py",
    "compaction": "compaction.py",
    "replication": "replication.py",
    "footprint": "footprint.py",
    "command-line": "command_line.py",
    "controller": "controller.py",
    "coordinator": "coordinator.py",
    "shard-load": "shard_load.py",
    "coordinator-failover": "coordinator_failover.py",
    "metadata-scale": "metadata_scale.py --partitions 100000",
    "embedded-cluster": "embedded_cluster.py",
    "spark": "spark.py",
    "security": "security.py",
}


def main() -> int:
    wanted = sys.argv[1:] or list(RUNS)
    if unknown := set(wanted) - set(RUNS):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}", file=sys.stderr)
        return 2
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}\n", flush=True)
    failed = False
    for name in wanted:
        script, *arguments = shlex.split(RUNS[name])
        print(f"## {name}: python bench/{RUNS[name]}", flush=True)
        failed |= subprocess.run([sys.executable, BENCH / script, *arguments], check=False).returncode != 0
        print(flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
