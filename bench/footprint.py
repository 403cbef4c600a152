"""Measures how soon `klamm up` serves clients, and how much memory it uses when it is idle.

Run: python bench/footprint.py [--runs 5]

Start-up is measured from the command to the first acknowledged produce of a process that was already waiting to
connect, on an empty data directory and on the same directory again. Memory is the resident set of the idle process.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import psutil

from bench.servers import compile_klamm, free_port
from klamm import KlammError, Producer

IDLE_S = 10


def first_produce_s(data_dir: pathlib.Path) -> tuple[float, float, float]:
    """Seconds to "ready", seconds to the first acknowledged produce, idle resident MB."""
    port = free_port()
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(data_dir), "--port", str(port)]
    with Producer(bootstrap_servers=f"127.0.0.1:{port}", linger_ms=0, retry_backoff_ms=10) as producer:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        ready_s = time.perf_counter() - started
        while True:
            try:
                producer.send("first", b"hello").result(timeout=30)
                break
            except KlammError:
                continue
        produced_s = time.perf_counter() - started
    time.sleep(IDLE_S)
    rss_mb = psutil.Process(process.pid).memory_info().rss / 1e6
    process.terminate()
    process.wait(30)
    process.stdout.close()
    return ready_s, produced_s, rss_mb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    options = parser.parse_args()
    compile_klamm()
    fresh, again = [], []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as scratch:
            data_dir = pathlib.Path(scratch, "klamm-data")
            fresh.append(first_produce_s(data_dir))
            again.append(first_produce_s(data_dir))
    results = {
        name: {
            "ready_s": round(statistics.median(run[0] for run in runs), 2),
            "first_produce_s": round(statistics.median(run[1] for run in runs), 2),
            "idle_rss_mb": round(statistics.median(run[2] for run in runs), 1),
        }
        for name, runs in (("empty directory", fresh), ("restart", again))
    }
    if options.json:
        print(json.dumps(results))
        return
    for name, medians in results.items():
        print(f"{name:16} {'  '.join(f'{key}={value}' for key, value in medians.items())}")


if __name__ == "__main__":
    main()
