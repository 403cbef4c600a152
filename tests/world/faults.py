"""Strikes a cluster with the faults of a schedule, within a budget that keeps the cluster recoverable.

A replica acknowledges records before it syncs them, as in Kafka. So a cluster loses records if several brokers lose
power at once, or if one loses power soon after others were killed. The budget allows a power cut only while all brokers
run and none was stopped shortly before. No broker is stopped until the one without power is in sync again.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from typing import Final

from klamm import AsyncAdmin, TopicPartition
from klamm.admin.types import ElectionType
from klamm.errors import KlammError
from tests.world.cluster import ClientRun, Cluster
from tests.world.kernel import SECOND_US
from tests.world.loads import PARTITIONS, TOPICS
from tests.world.options import Fault, FaultKind

SETTLED_US: Final = 15 * SECOND_US
"""The time after which a broker is in sync again."""
STOP_MAX_US: Final = 90 * SECOND_US
"""The longest orderly stop."""
SLOW_FSYNC_US: Final = (20_000, 400_000)
CLOCK_JUMPS_S: Final = (-3_600, -5, -0.5, 0.5, 5, 100)
OPERATION_TIMEOUT_MS: Final = 3_000


class Faults:
    """The faults of one run. `struck` are those that found a victim."""

    def __init__(self, cluster: Cluster, clients: Sequence[ClientRun], schedule: Sequence[Fault]) -> None:
        self.struck: list[str] = []
        self.hangs: list[str] = []
        """The servers that did not end after SIGTERM."""
        self._cluster = cluster
        self._world = cluster.world
        self._clients = clients
        self._down: set[str] = set()
        """The servers that were stopped or killed and will start again."""
        self._recovers_until_us = 0
        self._unclean_us = -SETTLED_US
        self._operations = 0
        self._strikes: dict[FaultKind, Callable[[random.Random, int], str | None]] = {
            FaultKind.KILL: self._kill,
            FaultKind.POWER: self._cut_power_of_broker,
            FaultKind.CONTROLLER_POWER: self._cut_power_of_controller,
            FaultKind.TERMINATE: self._terminate,
            FaultKind.PAUSE: self._pause_server,
            FaultKind.CLIENT_PAUSE: self._pause_client,
            FaultKind.CUT: self._cut_both_ways,
            FaultKind.ONE_WAY: self._cut_one_way,
            FaultKind.ISOLATE: self._isolate,
            FaultKind.RESET: self._reset,
            FaultKind.FULL_DISK: self._fill_disk,
            FaultKind.SLOW_DISK: self._slow_down_disk,
            FaultKind.CLOCK: self._jump_clock,
            FaultKind.ELECT: self._elect,
            FaultKind.MOVE: self._move,
        }
        for fault in schedule:
            self._world.at(int(fault.at_s * SECOND_US), self._strike, fault)

    def heal(self) -> None:
        """Ends everything that still goes wrong, and starts all servers."""
        for machine in self._cluster.machines.values():
            machine.files.capacity_bytes = 1 << 40
            machine.files.slow_sync_chance = machine.files.cold_chance = 0.0
        for name, machine in self._cluster.machines.items():
            process = machine.host.process
            if process is not None and process.is_paused:
                process.resume()
            self._restart(name)

    def _strike(self, fault: Fault) -> None:
        described = self._strikes[fault.kind](random.Random(fault.salt), int(fault.duration_s * SECOND_US))
        if described is not None:
            self.struck.append(f"{self._world.now_us / SECOND_US:.3f} {described} for {fault.duration_s} s")
            self._world.note("strike", described)

    # Victims

    def _running(self, kind: str = "") -> list[str]:
        """Returns the servers of a kind that run and are not about to stop."""
        machines = self._cluster.machines
        return [name for name in machines if name.startswith(kind) and self._is_whole(name)]

    def _is_whole(self, name: str) -> bool:
        return name not in self._down and self._cluster.is_running(name)

    def _restart(self, name: str) -> None:
        self._down.discard(name)
        if not self._cluster.is_running(name):
            self._cluster.start(name)

    def _may_stop(self, name: str) -> bool:
        return not name.startswith("broker") or self._world.now_us >= self._recovers_until_us

    # Ends of processes and machines

    def _kill(self, rng: random.Random, duration_us: int) -> str | None:
        name = _choice(rng, self._running())
        if name is None or not self._may_stop(name):
            return None
        if name.startswith("broker"):
            self._unclean_us = self._world.now_us
        self._down.add(name)
        self._cluster.kill(name)
        self._world.after(duration_us, self._restart, name)
        return f"kill {name}"

    def _cut_power_of_broker(self, rng: random.Random, duration_us: int) -> str | None:
        brokers, now_us = self._running("broker"), self._world.now_us
        is_settled = now_us >= self._recovers_until_us and now_us >= self._unclean_us + SETTLED_US
        if not is_settled or len(brokers) < self._cluster.size.brokers:
            return None
        self._recovers_until_us = now_us + duration_us + SETTLED_US
        self._unclean_us = now_us
        return self._cut_power(rng.choice(brokers), duration_us)

    def _cut_power_of_controller(self, rng: random.Random, duration_us: int) -> str | None:
        name = _choice(rng, self._running("controller"))
        return None if name is None else self._cut_power(name, duration_us)

    def _cut_power(self, name: str, duration_us: int) -> str:
        self._down.add(name)
        self._cluster.cut_power(name)
        self._world.after(duration_us, self._restart, name)
        return f"cut power of {name}"

    def _terminate(self, rng: random.Random, duration_us: int) -> str | None:
        name = _choice(rng, self._running())
        if name is None or not self._may_stop(name):
            return None
        process = self._cluster.process(name)
        if signal.SIGTERM not in process.loop.on_signal:
            return None
        if name.startswith("broker"):
            self._unclean_us = self._world.now_us
        self._down.add(name)
        self._cluster.stop(name)
        process.at_death.append(lambda: self._world.after(duration_us, self._restart, name))

        def check() -> None:
            if not process.is_dead:
                self.hangs.append(f"{name} did not end {STOP_MAX_US // SECOND_US} s after SIGTERM")
                process.die("kill -9")

        self._world.after(STOP_MAX_US, check)
        return f"terminate {name}"

    def _pause_server(self, rng: random.Random, duration_us: int) -> str | None:
        name = _choice(rng, self._running())
        if name is None or self._cluster.process(name).is_paused:
            return None
        process = self._cluster.process(name)
        process.pause()
        for connection in list(process.connections):
            connection.watch_keepalive()
        self._world.after(duration_us, process.resume)
        return f"pause {name}"

    def _pause_client(self, rng: random.Random, duration_us: int) -> str | None:
        running = [client.process for client in self._clients if not client.is_done and not client.process.is_paused]
        if not running:
            return None
        process = rng.choice(running)
        process.pause()
        self._world.after(duration_us, process.resume)
        return f"pause {process.name}"

    # The network

    def _cut_both_ways(self, rng: random.Random, duration_us: int) -> str:
        source, target = rng.sample(sorted(self._cluster.machines), 2)
        return self._cut([(source, target), (target, source)], duration_us, f"cut {source} and {target}")

    def _cut_one_way(self, rng: random.Random, duration_us: int) -> str:
        source, target = rng.sample(sorted(self._cluster.machines), 2)
        return self._cut([(source, target)], duration_us, f"cut {source} to {target}")

    def _isolate(self, rng: random.Random, duration_us: int) -> str:
        name = rng.choice(sorted(self._cluster.machines))
        return self._cut(self._cluster.network.links_of(name), duration_us, f"isolate {name}")

    def _cut(self, links: list[tuple[str, str]], duration_us: int, described: str) -> str:
        self._cluster.network.cut(links)
        self._world.after(duration_us, self._cluster.network.heal, links)
        return described

    def _reset(self, rng: random.Random, duration_us: int) -> str | None:
        connections = list(self._cluster.network.connections)
        if not connections:
            return None
        chosen = rng.sample(connections, min(len(connections), rng.choice((1, 3, 30))))
        for connection in chosen:
            connection.reset()
        return f"reset {len(chosen)} connections"

    # Disks and clocks

    def _fill_disk(self, rng: random.Random, duration_us: int) -> str | None:
        name = _choice(rng, self._running("broker"))
        if name is None:
            return None
        files = self._cluster.machines[name].files
        files.capacity_bytes = files.used_bytes + rng.choice((0, 10_000, 200_000))
        self._world.after(duration_us, setattr, files, "capacity_bytes", 1 << 40)
        return f"fill the disk of {name}"

    def _slow_down_disk(self, rng: random.Random, duration_us: int) -> str | None:
        name = _choice(rng, self._running())
        if name is None:
            return None
        files = self._cluster.machines[name].files
        files.fsync_us = SLOW_FSYNC_US
        self._world.after(duration_us, setattr, files, "fsync_us", self._world.timings.fsync_us)
        return f"slow down the disk of {name}"

    def _jump_clock(self, rng: random.Random, duration_us: int) -> str:
        name, jump_s = rng.choice(sorted(self._cluster.machines)), rng.choice(CLOCK_JUMPS_S)
        self._cluster.machines[name].host.clock_ahead_us += int(jump_s * SECOND_US)
        return f"move the clock of {name} by {jump_s} s"

    # What an operator does

    def _elect(self, rng: random.Random, duration_us: int) -> str:
        tp = TopicPartition(rng.choice(TOPICS), rng.randrange(PARTITIONS))
        self._operate(elect_preferred, self._cluster.bootstrap_servers, tp)
        return f"elect the preferred leader of {tp}"

    def _move(self, rng: random.Random, duration_us: int) -> str:
        tp = TopicPartition(rng.choice(TOPICS), rng.randrange(PARTITIONS))
        replicas = rng.sample(range(1, self._cluster.size.brokers + 1), self._cluster.size.brokers)
        self._operate(move, self._cluster.bootstrap_servers, tp, replicas, rng.choice((2, 3)))
        return f"move {tp} to {replicas}"

    def _operate(self, program: Callable[..., object], *arguments: object) -> None:
        self._operations += 1
        self._cluster.client(f"operator-{self._operations}", program, *arguments)  # type: ignore[arg-type]


def _choice(rng: random.Random, names: Sequence[str]) -> str | None:
    return rng.choice(names) if names else None


async def elect_preferred(bootstrap_servers: str, tp: TopicPartition) -> None:
    async with AsyncAdmin(bootstrap_servers=bootstrap_servers) as admin:
        try:
            await admin.elect_leaders(ElectionType.PREFERRED, [tp], timeout_ms=OPERATION_TIMEOUT_MS)
        except KlammError:
            return  # the cluster is being struck


async def move(bootstrap_servers: str, tp: TopicPartition, replicas: Sequence[int], count: int) -> None:
    """Reassigns a partition to the first `count` replicas."""
    async with AsyncAdmin(bootstrap_servers=bootstrap_servers) as admin:
        try:
            await admin.alter_partition_reassignments({tp: replicas[:count]}, timeout_ms=OPERATION_TIMEOUT_MS)
        except KlammError:
            return  # the cluster is being struck
