"""Runs seeds of the simulated quorum on every core and reports what was found.

    python tests/sim/raft_sim.py --seeds 5000
    python tests/sim/raft_sim.py --minutes 30 --start 100000
    python tests/sim/raft_sim.py --start 42 --seeds 1 --trace 200      one seed again, and its last 200 lines
    python tests/sim/raft_sim.py --mutation vote-not-persisted         how soon a planted bug is found
    python tests/sim/raft_sim.py --mutations                           all of them, each by the seed known to find it

Ends with status 1 if any seed violated anything (with --mutation: if none did).
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from raftsim.decisions import Decision
from raftsim.mutations import MUTATIONS
from raftsim.options import Options
from raftsim.run import run_seed
from raftsim.shrink import kind_of, replay, shrink

CHUNK_SEEDS = 5
PROGRESS_SEEDS = 500
MINIMISE_S = 30
FAILURES_MAX = 10
"""More of them say nothing new: the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One seed to run."""

    seed: int
    mutation: str | None
    trace_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One seed."""

    seed: int
    event_count: int
    committed_count: int
    cpu_s: float
    failure: str | None


def rerun_command(seed: int, mutation: str | None) -> str:
    """What to type to see that seed again."""
    bug = f" --mutation {mutation}" if mutation else ""
    return f"python tests/sim/raft_sim.py --start {seed} --seeds 1{bug}"


def run_one(task: Task) -> Result:
    """One seed in this process; failures come back as text, for they have to cross to the parent."""
    seed, mutation = task.seed, task.mutation
    trace: deque[str] | None = deque(maxlen=task.trace_lines) if task.trace_lines else None
    begin_s = time.process_time()
    event_count, committed_count, failure = 0, 0, None
    with planted(mutation):
        try:
            outcome = run_seed(seed, trace)
            event_count, committed_count = outcome.event_count, outcome.committed_count
        except Exception as error:  # noqa: BLE001 - a mutated core may break anywhere; all of it counts as found
            failure = "\n".join([*(trace or ()), describe_failure(error)])
    return Result(
        seed=seed,
        event_count=event_count,
        committed_count=committed_count,
        cpu_s=time.process_time() - begin_s,
        failure=failure,
    )


def describe_failure(error: Exception) -> str:
    """The message, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {os.path.basename(frame.filename)}:{frame.lineno} {frame.name}: {error}"


def tasks(arguments: argparse.Namespace) -> Iterator[Task]:
    """Seeds until there are enough, or the time is up."""
    end_s = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    end_seed = arguments.start + arguments.seeds if arguments.seeds else None
    for seed in itertools.count(arguments.start):
        if seed == end_seed or time.monotonic() >= end_s:
            return
        yield Task(seed=seed, mutation=arguments.mutation, trace_lines=arguments.trace)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help="how many (default 200, or as many as --minutes allow)")
    parser.add_argument("--start", type=int, help="the first one (default: random)")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--trace", type=int, default=0, help="lines to print of what led to a failure")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="plant this bug; stop when it is found")
    parser.add_argument("--mutations", action="store_true", help="list the planted bugs, and what finds each")
    arguments = parser.parse_args()
    if arguments.seeds is None and arguments.minutes is None:
        arguments.seeds = 200
    if arguments.start is None:
        arguments.start = random.SystemRandom().randrange(1_000_000_000)
    return arguments


def main() -> int:
    """See the module."""
    arguments = parse_arguments()
    if arguments.mutations:
        return list_mutations()
    rerun = f"python tests/sim/raft_sim.py --start {arguments.start} --seeds {arguments.seeds or 'N'}"
    print(f"seeds from {arguments.start} on {arguments.processes} processes; again: {rerun}", flush=True)
    if arguments.seeds == 1:
        print(Options.draw(random.Random(arguments.start)).describe(), flush=True)
    results, failures = run_all(arguments)
    report(results, failures)
    if failures:
        minimise(failures[0].seed, arguments.mutation)
    for failure in failures:
        print(f"again: {rerun_command(failure.seed, arguments.mutation)}")
    if not failures:
        print(f"again: {rerun}")
    return int(bool(failures) != bool(arguments.mutation))


def minimise(seed: int, mutation: str | None) -> None:
    """Prints the shortest story found that breaks the same rule."""
    decisions: list[Decision] = []
    with planted(mutation):
        try:
            run_seed(seed, decisions=decisions)
        except Exception as error:  # noqa: BLE001 - as in run_one
            kind = kind_of(error)
        else:
            return
        kept = shrink(seed, decisions, kind, MINIMISE_S)
        trace: deque[str] = deque()
        if replay(seed, kept, trace) != kind:
            print(f"seed {seed}: {kind}: has no form without a clock, see --trace")
            return
    print(f"seed {seed}: {kind}: {len(decisions)} decisions, {len(kept)} of them break it as well:")
    print("\n".join(f"    {line}" for line in trace))


def planted(mutation: str | None) -> AbstractContextManager[object]:
    """With that bug in the core, or none."""
    return MUTATIONS[mutation].planted() if mutation else nullcontext()


def list_mutations() -> int:
    """Every planted bug, the seed that finds it, and as what."""
    missed = 0
    for name, mutation in MUTATIONS.items():
        result = run_one(Task(seed=mutation.known_seed, mutation=name, trace_lines=0))
        missed += result.failure is None
        print(f"{name}: {mutation.what}\n    seed {result.seed}: {result.failure or 'NOT FOUND'}", flush=True)
    print(f"{len(MUTATIONS)} planted bugs, {missed} not found")
    return int(missed > 0)


def run_all(arguments: argparse.Namespace) -> tuple[list[Result], list[Result]]:
    """All results, and the failures among them; a planted bug needs to be found only once."""
    results: list[Result] = []
    failures: list[Result] = []
    with multiprocessing.Pool(arguments.processes) as pool:
        work = tasks(arguments)
        for batch in iter(lambda: list(itertools.islice(work, arguments.processes * CHUNK_SEEDS)), []):
            for result in pool.imap_unordered(run_one, batch):
                results.append(result)
                if len(results) % PROGRESS_SEEDS == 0:
                    report(results, failures)
                if result.failure is not None:
                    failures.append(result)
                    print(f"seed {result.seed}: {result.failure}", flush=True)
            if len(failures) >= (1 if arguments.mutation else FAILURES_MAX):
                break
    return results, failures


def report(results: list[Result], failures: list[Result]) -> None:
    """The figures. CPU seconds, so that a busy machine does not look like a slow simulation."""
    event_count = sum(result.event_count for result in results)
    cpu_s = sum(result.cpu_s for result in results if result.failure is None)
    committed_count = sum(result.committed_count for result in results)
    rate = round(60 * event_count / cpu_s) if cpu_s else 0
    print(
        f"{len(results)} seeds, {event_count} events, {committed_count} entries committed,"
        f" {rate} events per minute and core, {len(failures)} violations",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
