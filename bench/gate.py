"""Compares this tree with the last recorded commit and with the peers, and fails where it is slower. Ten minutes.

Run: make bench-gate, or python bench/gate.py [--base COMMIT] [--rounds 9] [--cells "consume 100"] [--record]

This tree and the base are installed from their wheels. Each has a `klamm up` of its own, which its own client uses.
confluent-kafka and aiokafka use the server of this tree. librdkafka drives Apache Kafka and both of Klamm's servers for
what is the broker's alone. All servers run all the time, and those that are not measured are idle. A round runs every
side of a cell once, in a random order. `gate_verdict.py` says what counts as slower. A cell that looks slower is
measured a second time; the gate fails if it looks slower again.

`--record` adds the figures to `history.jsonl`, a JSON object in each line. The base of the next run is the commit of
its last line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from bench.gate_cells import CELLS, Cell, Figures, Side, fill, run_cell
from bench.gate_verdict import Runs, slower_figures, speed
from bench.gate_wheels import head, install, is_clean
from bench.peer_servers import Peer, kafka
from bench.peer_workload import delete_topic, first_produce, in_a_process
from bench.servers import free_port, klamm_up
from bench.turns import rounds

HISTORY = pathlib.Path(__file__).with_name("history.jsonl")
NOW, BASE = "now", "base"
START_S = 60


def last_commit() -> str:
    """Returns the commit of the last recorded run. Raises SystemExit if there is none."""
    lines = HISTORY.read_text().splitlines() if HISTORY.exists() else []
    if not lines:
        raise SystemExit(f"{HISTORY.name} has no line; name the commit to compare with: --base COMMIT")
    commit: str = json.loads(lines[-1])["commit"]
    return commit


@contextlib.contextmanager
def running_sides(base: str, directory: pathlib.Path) -> Iterator[dict[str, Side]]:
    """Starts the servers, and yields the sides by their names."""
    with contextlib.ExitStack() as stack:
        sides: dict[str, Side] = {}
        for name, commit in ((NOW, None), (BASE, base)):
            python_path = install(commit, directory / name)
            kafka_port = free_port()
            options = ("--kafka-port", str(kafka_port))
            running = stack.enter_context(klamm_up(options=options, environment={"PYTHONPATH": python_path}))
            peer = Peer(name, f"127.0.0.1:{kafka_port}", [running.process])
            address = running.bootstrap
            sides[name] = Side(name=name, client="klamm", server=peer, client_address=address, python_path=python_path)
        ours = sides[NOW].server
        for name in ("confluent", "aiokafka"):
            sides[name] = Side(name=name, client=name, server=ours, client_address=ours.bootstrap)
        theirs = stack.enter_context(kafka(directory))
        sides["kafka"] = Side(name="kafka", client="", server=theirs, client_address="")
        for server in (ours, sides[BASE].server, theirs):
            in_a_process(first_produce, server.bootstrap, "ready", START_S)
        yield sides


def measure(cell: Cell, sides: Sequence[Side], count: int, rng: random.Random) -> dict[str, Runs]:
    """Returns the runs of each side. A first round warms up, and does not count."""
    topic = f"gate-{time.monotonic_ns()}"
    servers = {side.server.name: side.server for side in sides}.values() if cell.is_read else ()
    for server in servers:
        fill(cell, server, topic)
    found: dict[str, list[Figures]] = {side.name: [] for side in sides}
    for number, order in enumerate(rounds(sides, count + 1, rng)):
        for side in order:
            # A server may hold on to a deleted topic for a while, so each round has its own.
            found[side.name].append(run_cell(cell, side, topic if cell.is_read else f"{topic}-{number}"))
    for server in servers:
        delete_topic(server.bootstrap, topic)
    return {name: {each: [run[each] for run in runs[1:]] for each in runs[0]} for name, runs in found.items()}


def judged(cell: Cell, sides: dict[str, Side], count: int, rng: random.Random) -> tuple[dict[str, Any], bool]:
    """Measures a cell, prints its lines, and returns what the history keeps of it, and whether it became slower."""
    chosen = [sides[name] for name in (NOW, BASE, cell.peer)]
    runs = measure(cell, chosen, count, rng)
    slower = slower_figures(runs[NOW], runs[BASE])
    if slower:
        print(f"{cell.name}: {', '.join(slower)} look worse, so the cell is measured again", flush=True)
        runs = measure(cell, chosen, count, rng)
        slower = sorted(set(slower) & set(slower_figures(runs[NOW], runs[BASE])))
    kept: dict[str, Any] = {"medians": {}, "speed": {}}
    for name, of_side in runs.items():
        kept["medians"][name] = {each: round(statistics.median(values), 3) for each, values in of_side.items()}
        common = [figure for figure in runs[NOW] if figure in of_side]
        kept["speed"][name] = {each: round(speed(each, runs[NOW], of_side), 3) for each in common}
        beside = ", ".join(f"{each} {kept['medians'][name][each]:,} ({kept['speed'][name][each]})" for each in common)
        print(f"{cell.name:28} {name:10} {beside}", flush=True)
    return {**kept, "slower": slower}, bool(slower)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a commit; otherwise that of the last line of the history")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cells", default="", help="only those whose names have this")
    parser.add_argument("--record", action="store_true", help="adds the figures to the history")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    if options.record and not is_clean():
        parser.error("--record needs a working tree without changes, because a line of the history names a commit")
    commit, base = head(), options.base or last_commit()
    load, began_s = os.getloadavg()[0], time.monotonic()
    print(f"{commit[:12]} beside {base[:12]}, seed {options.seed}, load {load:.1f}; in parentheses: how many times")
    print("as fast this tree is, by that figure (the median of the rounds' ratios)", flush=True)
    rng, cells, failed = random.Random(options.seed), {}, []
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-", ignore_cleanup_errors=True) as scratch,
        running_sides(base, pathlib.Path(scratch)) as sides,
    ):
        for cell in CELLS:
            if options.cells in cell.name:
                cells[cell.name], is_slower = judged(cell, sides, options.rounds, rng)
                failed += [cell.name] * is_slower
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "base": base,
        "rounds": options.rounds,
        "seed": options.seed,
        "seconds": round(time.monotonic() - began_s),
        "load": round(load, 2),
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }
    if options.record:
        with HISTORY.open("a") as history:
            history.write(json.dumps({**about, "cells": cells}) + "\n")
    print(f"{about['seconds']} s; " + (f"slower: {', '.join(failed)}" if failed else "nothing is slower"))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
