"""One seed: a cluster under loads and faults, the end of the faults, and all checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm import AsyncAdmin
from klamm.errors import KlammError
from klamm_embedded.layout import ClusterSize
from tests.world.cluster import Cluster
from tests.world.faults import Faults
from tests.world.file_system import FileSystem
from tests.world.loads import PARTITIONS, TOPICS, Loads
from tests.world.logs import WorldLog
from tests.world.options import FAULTS_UNTIL_S, Fault, FaultKind, draw
from tests.world.process import SimProcess

SIZE: Final = ClusterSize(controllers=3, brokers=3, coordinators=2)
HEALED_AFTER_S: Final = 20.0
"""The time after the last strike after which the faults have ended."""
WHOLE_MAX_S: Final = 120
"""The time after the faults within which every partition has a leader and all replicas in sync."""
STOP_MAX_S: Final = 90
EXPLAINED: Final = {FaultKind.FULL_DISK: ("is full", "no space left")}
"""Parts of the errors in the log that a fault explains."""
QUIET_S: Final = 2.0


@dataclass
class Result:
    """What happened in one run."""

    seed: int
    failure: str = ""
    checksum: str = ""
    virtual_s: float = 0.0
    real_s: float = 0.0
    events: int = 0
    whole_s: float = 0.0
    """How long the cluster took to be whole after the faults."""
    counts: dict[str, int] = field(default_factory=dict)
    struck: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class SeedRun:
    """The run of one seed. `schedule` replaces the seed's own faults."""

    def __init__(
        self, seed: int, log_level: int, schedule: Sequence[Fault] | None = None, *, keeps_trace: bool = False
    ) -> None:
        options = draw(seed)
        self.cluster = Cluster(seed, SIZE, options.settings, options.timings, keeps_trace=keeps_trace)
        self.log = WorldLog(self.cluster.world, log_level)
        self.result = Result(seed)
        self._options = options
        self._schedule = options.schedule if schedule is None else schedule
        for machine in self.cluster.machines.values():
            machine.files.slow_sync_chance = options.slow_sync_chance
            machine.files.cold_chance = options.cold_chance

    def run(self) -> Result:
        """Runs the seed. A failure is in the result."""
        began_s = time.perf_counter()
        result, world = self.result, self.cluster.world
        self.log.install()
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the result tells it
            result.failure = f"{type(error).__name__}: {error}"
        result.checksum = f"{world.checksum:08x}"
        result.virtual_s = world.now_us / 1e6
        result.events = world.event_count
        result.real_s = time.perf_counter() - began_s
        result.log = self.log.lines
        return result

    def _run(self) -> None:
        cluster, result = self.cluster, self.result
        loads = Loads(cluster, self._options.group_protocol)
        cluster.start()
        loads.begin()
        faults = Faults(cluster, loads.runs, self._schedule)
        result.struck = faults.struck
        cluster.run(FAULTS_UNTIL_S + HEALED_AFTER_S - cluster.world.now_us / 1e6)
        faults.heal()
        result.whole_s = self._wait_until_whole()
        loads.end()
        result.counts = loads.counts
        loads.check()
        cluster.run(QUIET_S)
        check_same_replicas({name: machine.files for name, machine in cluster.machines.items() if "broker" in name})
        assert not faults.hangs, "; ".join(faults.hangs)
        self._stop_all()
        kinds = {fault.kind for fault in self._schedule}
        logged = [line for line in self.log.errors if not _is_explained(line, kinds)]
        unexplained = [*cluster.world.errors, *cluster.world.deaths, *logged]
        assert not unexplained, f"errors that no fault explains: {unexplained[:3]}"

    def _wait_until_whole(self) -> float:
        began_us = self.cluster.world.now_us
        waiting = self.cluster.client("watcher", wait_until_whole, self.cluster.bootstrap_servers, SIZE.brokers)
        self.cluster.finish(waiting, seconds=WHOLE_MAX_S + 10)
        return (self.cluster.world.now_us - began_us) / 1e6

    def _stop_all(self) -> None:
        """Stops all servers, coordinators first. Raises AssertionError if one hangs or leaves something behind."""
        for kind in ("coordinator", "broker", "controller"):
            for name in self.cluster.machines:
                if name.startswith(kind):
                    self._stop(name)

    def _stop(self, name: str) -> None:
        machine, process = self.cluster.machines[name], self.cluster.process(name)
        open_files: list[str] = []
        process.at_death.insert(0, lambda: open_files.extend(file.path for file in machine.files.open_files.values()))
        self.cluster.stop(name)
        is_dead = self.cluster.run(STOP_MAX_S, lambda: process.is_dead)
        assert is_dead, f"{name} does not stop in {STOP_MAX_S} s: {describe_tasks(process)}"
        assert not machine.leaked_tasks, f"{name} left tasks: {machine.leaked_tasks}"
        assert not open_files, f"{name} left open files: {open_files[:5]}"


def _is_explained(line: str, kinds: Collection[FaultKind]) -> bool:
    return any(part in line for kind in kinds for part in EXPLAINED.get(kind, ()))


async def wait_until_whole(bootstrap_servers: str, brokers: int) -> None:
    """Waits until every partition of the loads has a leader, and all its replicas are in sync."""
    story = "no broker answers"
    async with AsyncAdmin(bootstrap_servers=bootstrap_servers) as admin:
        try:
            async with asyncio.timeout(WHOLE_MAX_S):
                while True:
                    try:
                        topics = await admin.list_topics(include_internal=True)
                    except KlammError as error:
                        story = str(error)
                    else:
                        missing = [
                            f"{name}-{part.partition} leader={part.leader} isr={part.isr} of={part.replicas}"
                            for name, topic in topics.items()
                            if name in TOPICS or name.startswith("__")
                            for part in topic.partitions
                            if part.leader < 0 or set(part.isr) != set(part.replicas)
                        ]
                        if not missing:
                            return
                        story = "; ".join(missing[:4])
                    await asyncio.sleep(0.25)
        except TimeoutError:
            raise AssertionError(f"not whole {WHOLE_MAX_S} s after the faults: {story}") from None


def check_same_replicas(files: dict[str, FileSystem]) -> None:
    """Raises AssertionError if the replicas of a partition differ in a byte."""
    for topic in TOPICS:
        for number in range(PARTITIONS):
            logs = {name: content for name, disk in files.items() if (content := _log(disk, f"{topic}-{number}"))}
            sizes = {name: len(content) for name, content in logs.items()}
            assert len(set(logs.values())) <= 1, f"the replicas of {topic}-{number} differ, sizes={sizes}"


def _log(disk: FileSystem, partition: str) -> bytes:
    """Returns the bytes of all segments of a replica."""
    below = f"/data/broker/{partition}/"
    paths = sorted(path for path in disk.names if path.startswith(below) and path.endswith(".log"))
    return b"".join(bytes(disk.names[path].content) for path in paths)


def describe_tasks(process: SimProcess) -> str:
    """Returns the tasks of a process, each with the chain of what it awaits."""
    return "; ".join(sorted(_describe(task) for task in asyncio.all_tasks(process.loop)))


def _describe(task: asyncio.Task[object]) -> str:
    chain: list[str] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(chain) < 12:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        frame = frame or getattr(awaited, "ag_frame", None)
        if frame is not None:
            chain.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        awaited = (
            getattr(awaited, "cr_await", None)
            or getattr(awaited, "gi_yieldfrom", None)
            or getattr(awaited, "ag_await", None)
        )
    return f"{task.get_name()} [{' > '.join(chain)}]"
