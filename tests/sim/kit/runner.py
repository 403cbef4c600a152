"""Runs seeds of a simulation on every core, reports failures, and plants bugs to prove that they would be found.

A simulation is a `Model`. tests/sim/run.py is the command.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tests.sim.kit.mutation import Mutation

CHUNK_SEEDS = 5
PROGRESS_SEEDS = 500
FAILURES_MAX = 10
"""More of them say nothing new: the run ends."""


class Outcome(Protocol):
    """The figures of one seed."""

    @property
    def event_count(self) -> int: ...

    @property
    def committed_count(self) -> int: ...


def no_stories(mutation: str) -> Iterator[tuple[str, str | None]]:
    """A model without scripted scenarios has none."""
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A simulation."""

    name: str
    mutations: Mapping[str, Mutation]
    """Bugs to plant, by name."""
    run_seed: Callable[[int, deque[str] | None], Outcome]
    """Runs a seed, and raises any exception if it fails."""
    describe: Callable[[int], str]
    """A seed's options, in one line."""
    minimise: Callable[[int, str | None], None] | None = None
    """Prints a short story of a failing seed."""
    stories: Callable[[str], Iterator[tuple[str, str | None]]] = no_stories
    """The scripted scenarios that are about that bug, and what each of them says of it, None: nothing."""

    def planted(self, mutation: str | None) -> AbstractContextManager[None]:
        """Returns a context in which the code has that bug, or no bug."""
        return self.mutations[mutation].planted() if mutation else nullcontext()

    @property
    def command(self) -> str:
        """The command line, from the project's root."""
        return f"python tests/sim/run.py {self.name}"

    def rerun_command(self, seed: int, mutation: str | None = None) -> str:
        """Returns the command line that runs that seed again."""
        bug = f" --mutation {mutation}" if mutation else ""
        return f"{self.command} --start {seed} --seeds 1{bug}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One seed to run."""

    seed: int
    mutation: str | None
    trace_lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one seed."""

    seed: int
    event_count: int
    committed_count: int
    cpu_s: float
    failure: str | None


def run_one(model: Model, task: Task) -> Result:
    """Runs one seed in this process. A failure is returned as text, because it must be sent to the parent process."""
    trace: deque[str] | None = deque(maxlen=task.trace_lines) if task.trace_lines else None
    begin_s = time.process_time()
    event_count, committed_count, failure = 0, 0, None
    with model.planted(task.mutation):
        try:
            outcome = model.run_seed(task.seed, trace)
            event_count, committed_count = outcome.event_count, outcome.committed_count
        except Exception as error:  # noqa: BLE001 - mutated code may break anywhere; all of it counts as found
            failure = "\n".join([*(trace or ()), describe_failure(error)])
    return Result(
        seed=task.seed,
        event_count=event_count,
        committed_count=committed_count,
        cpu_s=time.process_time() - begin_s,
        failure=failure,
    )


def describe_failure(error: Exception) -> str:
    """The message, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {os.path.basename(frame.filename)}:{frame.lineno} {frame.name}: {error}"


def main(model: Model, arguments: argparse.Namespace) -> int:
    """Runs the command, and returns its exit status."""
    if arguments.mutations:
        return _list_mutations(model)
    rerun = f"{model.command} --start {arguments.start} --seeds {arguments.seeds or 'N'}"
    print(f"seeds from {arguments.start} on {arguments.processes} processes; again: {rerun}", flush=True)
    if arguments.seeds == 1:
        print(model.describe(arguments.start), flush=True)
    results, failures = _run_all(model, arguments)
    _report(results, failures)
    if failures and model.minimise is not None:
        model.minimise(failures[0].seed, arguments.mutation)
    for failure in failures:
        print(f"again: {model.rerun_command(failure.seed, arguments.mutation)}")
    if not failures:
        print(f"again: {rerun}")
    return int(bool(failures) != bool(arguments.mutation))


def run_slice(model: Model, start: int, seed_count: int) -> None:
    """Runs seeds in this process. Raises what a violation raises, and says what to run again."""
    print(f"{seed_count} seeds from {start}; again: {model.command} --start {start} --seeds {seed_count}")
    committed_count = 0
    for seed in range(start, start + seed_count):
        try:
            committed_count += model.run_seed(seed, None).committed_count
        except BaseException:
            print(f"again: {model.rerun_command(seed)}")
            raise
    assert committed_count > 0


def parse_arguments(description: str | None, models: Mapping[str, Model]) -> argparse.Namespace:
    """The command's arguments, `model` among them: one of `models`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=list(models))
    parser.add_argument("--seeds", type=int, help="how many (default 200, or as many as --minutes allow)")
    parser.add_argument("--start", type=int, help="the first one (default: random)")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--trace", type=int, default=0, help="lines to print of what led to a failure")
    parser.add_argument("--mutation", help="plant this bug; stop when it is found")
    parser.add_argument("--mutations", action="store_true", help="list the planted bugs, and what finds each")
    arguments = parser.parse_args()
    bugs = models[arguments.model].mutations
    if arguments.mutation is not None and arguments.mutation not in bugs:
        parser.error(f"{arguments.model} has no planted bug {arguments.mutation!r}; it has {', '.join(sorted(bugs))}")
    if arguments.seeds is None and arguments.minutes is None:
        arguments.seeds = 200
    if arguments.start is None:
        arguments.start = random.SystemRandom().randrange(1_000_000_000)
    return arguments


def _tasks(arguments: argparse.Namespace) -> Iterator[Task]:
    """Seeds until there are enough, or the time is up."""
    end_s = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    end_seed = arguments.start + arguments.seeds if arguments.seeds else None
    for seed in itertools.count(arguments.start):
        if seed == end_seed or time.monotonic() >= end_s:
            return
        yield Task(seed=seed, mutation=arguments.mutation, trace_lines=arguments.trace)


def _list_mutations(model: Model) -> int:
    """Every planted bug, the seed and the scenarios that find it, and as what."""
    missed = 0
    for name, mutation in model.mutations.items():
        print(f"{name}: {mutation.what}", flush=True)
        found = list(model.stories(name))
        if mutation.known_seed is not None:
            task = Task(seed=mutation.known_seed, mutation=name)
            found.append((f"seed {mutation.known_seed}", run_one(model, task).failure))
        missed += not found or None in (failure for _, failure in found)
        for where, failure in found:
            print(f"    {where}: {failure or 'NOT FOUND'}", flush=True)
    print(f"{len(model.mutations)} planted bugs, {missed} not found")
    return int(missed > 0)


def _run_all(model: Model, arguments: argparse.Namespace) -> tuple[list[Result], list[Result]]:
    """Returns all results, and the failures among them. A planted bug needs to be found only once."""
    results: list[Result] = []
    failures: list[Result] = []
    # Forked: a model and its planted bugs, which are functions, cannot be sent to another process.
    with multiprocessing.get_context("fork").Pool(arguments.processes, _Seeds.begin, (model,)) as pool:
        work = _tasks(arguments)
        for batch in iter(lambda: list(itertools.islice(work, arguments.processes * CHUNK_SEEDS)), []):
            for result in pool.imap_unordered(_Seeds.run, batch):
                results.append(result)
                if len(results) % PROGRESS_SEEDS == 0:
                    _report(results, failures)
                if result.failure is not None:
                    failures.append(result)
                    print(f"seed {result.seed}: {result.failure}", flush=True)
            if len(failures) >= (1 if arguments.mutation else FAILURES_MAX):
                break
    return results, failures


class _Seeds:
    """The work of a process of the pool."""

    _model: ClassVar[Model]

    @classmethod
    def begin(cls, model: Model) -> None:
        cls._model = model

    @classmethod
    def run(cls, task: Task) -> Result:
        return run_one(cls._model, task)


def _report(results: list[Result], failures: list[Result]) -> None:
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
