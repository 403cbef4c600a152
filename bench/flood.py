"""Whether a flood of connections, on a machine with too much to do, costs a broker its session.

Run: python bench/flood.py [--busy 30] [--floods 4] [--seconds 30]

Three brokers and three controllers as `klamm up` starts them. Beside them are `--busy` processes that only compute, and
`--floods` processes that connect to the brokers' Kafka listeners, ask one ApiVersions, and close, as fast as they can.
A real client produces one record after the other all the while, with acks=all. What the controllers log of fencing is
counted: a broker whose heartbeats come too late is fenced.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.sharedctypes import Synchronized

from bench.connections import ACTIVE_TOPIC, acknowledged_ms, percentiles
from bench.peer_workload import create_topic, first_produce, in_a_process
from bench.servers import compile_klamm

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Version 0, without a client id."""
FENCED = re.compile(r"broker=\d+ fenced")


@contextlib.contextmanager
def cluster(directory: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields the Kafka listeners and the file with the logs of all processes."""
    log = directory / "up.log"
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(directory / "data"), "--port", "0"]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--brokers", "3", "--controllers", "3"], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert process.stdout is not None
    try:
        ready = re.search(r"Kafka clients at (\S+), data", process.stdout.readline())
        assert ready, log.read_text()
        yield ready[1], log
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def flood(bootstrap: str, until_s: float, connected: Synchronized[int]) -> None:
    """Connects to one broker after the other, and adds up the connections that were answered."""
    addresses = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in bootstrap.split(","))]
    count = 0
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError), socket.create_connection(addresses[count % len(addresses)], 5) as one:
            one.sendall(API_VERSIONS)
            if one.recv(4):
                count += 1
    with connected.get_lock():
        connected.value += count


def compute(until_s: float) -> None:
    while time.monotonic() < until_s:
        pass


def measure(options: argparse.Namespace, bootstrap: str, log: pathlib.Path) -> None:
    in_a_process(first_produce, bootstrap, "ready", 60)
    create_topic(bootstrap, ACTIVE_TOPIC, 1, 3)
    context = multiprocessing.get_context("fork")
    connected: Synchronized[int] = context.Value("q", 0)
    logged_before = len(FENCED.findall(log.read_text()))
    until_s = time.monotonic() + options.seconds
    processes = [context.Process(target=compute, args=(until_s,)) for _ in range(options.busy)]
    processes += [context.Process(target=flood, args=(bootstrap, until_s, connected)) for _ in range(options.floods)]
    for process in processes:
        process.start()
    took_ms = in_a_process(acknowledged_ms, bootstrap, options.seconds - 1)
    load = os.getloadavg()[0]
    for process in processes:
        process.join()
    fenced = len(FENCED.findall(log.read_text())) - logged_before
    print(
        f"load {load:.0f}, {connected.value / options.seconds:.0f} connections/s, {fenced} times a broker was fenced;"
        f" {len(took_ms)} records, {percentiles(took_ms)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--busy", type=int, default=30)
    parser.add_argument("--floods", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    compile_klamm()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch, cluster(pathlib.Path(scratch)) as (at, log):
        measure(options, at, log)


if __name__ == "__main__":
    main()
