"""Runs seeds of a simulated cluster: three controllers, three brokers and two coordinators, under loads and faults.

Run: python tests/world/run.py --start 1 --seeds 20 [--jobs 2] [--twice] [--verbose] [--trace FILE] [--without 3,7]
     [--plant NAME] [--shrink]

Each seed runs in a process of its own. `--twice` runs each seed twice, and fails if the two differ. `--without` leaves
out faults of the schedule, by their numbers. `--plant` plants a bug (`plants.py`), and ends with the first seed that
finds it. `--shrink` leaves out faults of the first seed that fails, as long as it fails in the same way.

The runner starts Python again with a fixed seed of its hashes and with addresses that do not move, because sets of
strings and of objects are ordered by them. It uses the pure Python of the client, because the compiled core reads the
clock of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import logging
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.world.seed_run import Result

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXED = {"PYTHONHASHSEED": "0", "KLAMM_CORE": "pure"}
SHOWN_LINES = 40
SHRINK_MAX_S = 240
SAME_CHARACTERS = 40
"""Two failures whose texts begin with the same characters are the same."""


def start_fixed() -> None:
    """Replaces this process by one with the fixed environment, unless it has that already."""
    if all(os.environ.get(name) == value for name, value in FIXED.items()):
        return
    still = ["setarch", "-R"] if shutil.which("setarch") else []
    command = [*still, sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, **FIXED})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--start", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no seed after so many seconds")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="the log of all processes")
    parser.add_argument("--trace", type=pathlib.Path, help="where every event is written")
    parser.add_argument("--without", default="", help="the numbers of faults to leave out")
    parser.add_argument("--plant", default="", help="a bug that the seeds should find")
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    start_fixed()
    failed = 0
    ends_s = time.monotonic() + options.seconds
    seeds = (seed for seed in range(options.start, options.start + options.seeds) if time.monotonic() < ends_s)
    for result in results(seeds, options):
        failed += bool(result["failure"])
        report(result, options)
        if failed and options.shrink:
            print_shrunk(int(str(result["seed"])), str(result["failure"]), options)
        if failed and (options.plant or options.shrink):
            break
    sys.exit(failed == 0 if options.plant else failed > 0)


def results(seeds: Iterator[int], options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yields the results of the seeds, of which `--jobs` run at a time."""
    from tests.world.seed_run import SeedRun  # noqa: F401 - loads all code once, before the processes are forked

    gc.collect()
    gc.freeze()
    running: dict[int, int] = {}
    """The pipes of the running seeds, by their processes."""
    for seed in seeds:
        for _ in range(2 if options.twice else 1):
            if len(running) == options.jobs:
                yield finish(running)
            pid, pipe = fork(seed, options)
            running[pid] = pipe
    while running:
        yield finish(running)


def print_shrunk(seed: int, failure: str, options: argparse.Namespace) -> None:
    """Prints the faults that are enough for the failure, and the command that runs the seed with them alone."""
    from tests.world.options import draw
    from tests.world.shrink import shrink

    schedule = draw(seed).schedule
    ends_s = time.monotonic() + SHRINK_MAX_S

    def fails(numbers: Sequence[int]) -> bool:
        left_out = ",".join(str(number) for number in range(len(schedule)) if number not in numbers)
        pid, pipe = fork(seed, argparse.Namespace(**{**vars(options), "without": left_out, "trace": None}))
        return str(finish({pid: pipe})["failure"])[:SAME_CHARACTERS] == failure[:SAME_CHARACTERS]

    kept = shrink([fault.kind for fault in schedule], fails, lambda: time.monotonic() < ends_s)
    left_out = ",".join(str(number) for number in range(len(schedule)) if number not in kept)
    plant = f" --plant {options.plant}" if options.plant else ""
    print(*(f"  {schedule[number]}" for number in kept), sep="\n")
    print(f"  python tests/world/run.py --start {seed}{plant} --without {left_out} --verbose", flush=True)


def fork(seed: int, options: argparse.Namespace) -> tuple[int, int]:
    """Starts the process of a seed. Returns it, and the pipe for its result."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    try:
        result = run_seed(seed, options)
        with os.fdopen(writing, "w") as pipe:
            json.dump(dataclasses.asdict(result), pipe)
    finally:
        os._exit(0)  # Without a clean-up, which would run what is left of dead processes.
    raise AssertionError


def run_seed(seed: int, options: argparse.Namespace) -> Result:
    from tests.world.options import draw
    from tests.world.plants import plant_of
    from tests.world.seed_run import SeedRun

    gc.disable()
    left_out = {int(number) for number in options.without.split(",") if number}
    schedule = [fault for number, fault in enumerate(draw(seed).schedule) if number not in left_out]
    level = logging.INFO if options.verbose else logging.WARNING
    run = SeedRun(seed, level, schedule, keeps_trace=options.trace is not None)
    with plant_of(options.plant).planted() if options.plant else contextlib.nullcontext():
        result = run.run()
    if options.trace is not None:
        options.trace.write_text("\n".join(run.cluster.world.trace or ()) + "\n")
    return result


def finish(running: dict[int, int]) -> dict[str, object]:
    """Returns the result of the seed that was started first."""
    pid = next(iter(running))
    with os.fdopen(running.pop(pid)) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    result: dict[str, object] = json.loads(text) if text else {"seed": -1, "failure": "the process of the seed died"}
    return result


_checksums: dict[object, object] = {}


def report(result: dict[str, object], options: argparse.Namespace) -> None:
    """Prints a line about a seed, and how to run it again if it failed."""
    before = _checksums.setdefault(result["seed"], result.get("checksum"))
    if before != result.get("checksum"):
        result["failure"] = f"another story the second time: {before} and {result.get('checksum')}"
    keys = ("checksum", "virtual_s", "real_s", "events", "whole_s", "counts")
    facts = " ".join(f"{key}={_shown(result.get(key))}" for key in keys)
    struck = result.get("struck") or []
    assert isinstance(struck, list)
    print(f"seed {result['seed']}: {'FAILED' if result['failure'] else 'ok'} {facts} faults={len(struck)}", flush=True)
    log = result.get("log") or []
    assert isinstance(log, list)
    if options.verbose:
        print(*struck, *log, sep="\n")
    if result["failure"]:
        print(f"  {result['failure']}\n  python tests/world/run.py --start {result['seed']} --verbose", flush=True)
        if not options.verbose:
            print(*(f"  {line}" for line in [*struck, *log[-SHOWN_LINES:]]), sep="\n")


def _shown(value: object) -> object:
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), *(str(ROOT / "services" / name) for name in os.listdir(ROOT / "services"))]
    main()
