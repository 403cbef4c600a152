"""What the gate measures: one run of a cell takes about a second, and returns its figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench import kafka_produce
from bench.gate_verdict import RATE
from bench.peer_servers import Peer
from bench.peer_workload import Load, consume, create_topic, delete_topic, in_a_process, produce
from bench.servers import ROOT

PARTITIONS = 4
SMALL = next(load for load in kafka_produce.LOADS if load.name == "1 KiB, 16 under way, acks=all")
CLIENT_US = "client CPU us"
SERVER_US = "server CPU us"
Figures = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Side:
    """A client, and the server that it uses."""

    name: str
    client: str
    """As `client_sides.py` names it."""
    server: Peer
    client_address: str
    """The server's address for that client. librdkafka uses the one of `server`."""
    python_path: str = ""
    """Where the client's process finds its modules before those of the environment."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measurement, of `count` records."""

    name: str
    peer: str
    """The side that is measured besides this tree and the base."""
    load: Load
    run: Callable[[Side, Load], Figures]
    is_read: bool
    """Whether it reads a topic that was filled before. Otherwise each run writes to a topic of its own."""


def client_cell(name: str, peer: str, size_bytes: int, count: int) -> Cell:
    """A cell of `client_sides.py`."""

    def run(side: Side, load: Load) -> Figures:
        arguments = (name, side.client, load.size_bytes, load.count, load.topic, side.client_address)
        command = [sys.executable, "-P", str(ROOT / "bench" / "client_sides.py"), *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": side.python_path}
        cpu_s = side.server.cpu_s()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}, {side.name}: {done.stderr}"
        figures = json.loads(done.stdout.splitlines()[-1])
        server_us = (side.server.cpu_s() - cpu_s) * 1e6 / load.count
        return {RATE: figures["rate"], CLIENT_US: figures["us"], SERVER_US: server_us}

    load = _load(size_bytes, count)
    return Cell(name=f"{name} {size_bytes} B", peer=peer, load=load, run=run, is_read="consume" in name)


def broker_cell(verb: str, settings: str, count: int) -> Cell:
    """librdkafka produces or consumes records of 1 KiB."""
    work = {"produce": produce, "consume": consume}[verb]

    def run(side: Side, load: Load) -> Figures:
        cpu_s = side.server.cpu_s()
        took_s = in_a_process(work, side.server.bootstrap, load)
        return {RATE: load.count / took_s, SERVER_US: (side.server.cpu_s() - cpu_s) * 1e6 / load.count}

    load = replace(_load(1_024, count), settings=settings)
    return Cell(name=f"broker {verb} 1 KiB {settings}", peer="kafka", load=load, run=run, is_read=verb == "consume")


def small_produces(side: Side, load: Load) -> Figures:
    """Produce requests of 1 KiB from a plain socket, which does not repeat a request. So librdkafka, which does, waits
    before until each partition has a leader."""
    in_a_process(produce, side.server.bootstrap, replace(load, count=1))
    cost = kafka_produce.measure(side.server, SMALL, load.count, topic=load.topic)
    return {RATE: cost.requests_per_s, SERVER_US: cost.user_us + cost.system_us}


def _load(size_bytes: int, count: int) -> Load:
    return Load(topic="", partitions=PARTITIONS, size_bytes=size_bytes, count=count, acks="all", settings="defaults")


SMALL_LOAD = replace(_load(1_024, 20_000), partitions=kafka_produce.PARTITIONS)
CELLS = (
    client_cell("produce", "confluent", 100, 2_000_000),
    client_cell("produce", "confluent", 1_024, 400_000),
    client_cell("consume", "confluent", 100, 3_000_000),
    client_cell("consume", "confluent", 1_024, 800_000),
    client_cell("async-produce", "aiokafka", 100, 400_000),
    client_cell("async-consume", "aiokafka", 100, 3_000_000),
    broker_cell("produce", "defaults", 800_000),
    broker_cell("consume", "tuned", 800_000),
    Cell(name="small produces", peer="kafka", load=SMALL_LOAD, run=small_produces, is_read=False),
)


def run_cell(cell: Cell, side: Side, topic: str) -> Figures:
    """Runs it once. A reading cell reads the topic that `fill` filled; another writes to a fresh one."""
    load = replace(cell.load, topic=topic)
    if cell.is_read:
        return cell.run(side, load)
    create_topic(side.server.bootstrap, topic, load.partitions, 1)
    # The kernel writes the pages of earlier runs to the disk now, and not during this run.
    os.sync()
    try:
        return cell.run(side, load)
    finally:
        delete_topic(side.server.bootstrap, topic)


def fill(cell: Cell, server: Peer, topic: str) -> None:
    """Creates the topic that a reading cell reads."""
    create_topic(server.bootstrap, topic, PARTITIONS, 1)
    in_a_process(produce, server.bootstrap, replace(cell.load, topic=topic, settings="defaults"))
