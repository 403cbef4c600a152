"""The faults of the workload "spark": the processes that write, decide or keep records are killed, also at the moments
that matter."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import psutil

from klamm.errors import KlammError
from tests.chaos.klammchaos.partition_cluster import BROKERS, CONTROLLERS, PartitionCluster
from tests.chaos.klammchaos.partition_strike import HOLD_S
from tests.chaos.klammchaos.spark_program import Part, SparkProgram, find

COORDINATORS: Final = (21, 22)
"""The nodes of the coordinators. They are also their ids."""
PATIENCE_S: Final = 300.0
"""The longest wait for a process to strike. Spark starts slowly."""
ZOMBIE_S: Final = (5.0, 15.0)


@dataclass(kw_only=True)
class SparkStrike:
    """One fault that is about to strike."""

    cluster: PartitionCluster
    program: SparkProgram
    rng: random.Random
    kills: int = 0
    """The number of processes that it has killed."""
    healing: list[Callable[[], None]] = field(default_factory=list)

    async def hold(self, for_s: tuple[float, float] = HOLD_S) -> None:
        await asyncio.sleep(self.rng.uniform(*for_s))

    async def kill_nodes(self, nodes: Sequence[int]) -> None:
        """Kills servers. `heal` starts them again."""
        await asyncio.to_thread(self.cluster.kill, nodes)
        self.kills += len(nodes)
        self.healing.append(lambda: self.cluster.restart(nodes))

    async def kill_part(self, part: Part, count: int = 1) -> None:
        """Kills processes of the Spark program. The program restarts them, or the workload restarts the program."""
        victims = await self.wait_for_part(part)
        for victim in self.rng.sample(victims, min(count, len(victims))):
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                self.kills += 1

    async def wait_for_part(self, part: Part) -> list[psutil.Process]:
        """Waits for processes of that part, and returns them. Raises AssertionError after PATIENCE_S."""
        until_s = time.monotonic() + PATIENCE_S
        while not (found := self.program.find(part)):
            assert time.monotonic() < until_s, f"no {part.name} in {PATIENCE_S} s:\n{self.program.log_end()}"
            await asyncio.sleep(0.1)
        return found

    async def wait_until_prepared(self) -> None:
        """Waits until a batch of some query is prepared and needs its driver's decision. Returns after PATIENCE_S in
        any case."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            with contextlib.suppress(KlammError):
                ledgers = await self.cluster.admin.list_ledgers()
                if any(part.prepared_ms > 0 for ledger in ledgers.values() for part in ledger.open_parts):
                    return
            await asyncio.sleep(0.01)

    def heal(self) -> None:
        for action in self.healing:
            action()
        self.healing.clear()


Strike = Callable[[SparkStrike], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFault:
    """A fault of the workload "spark". A round of all faults has it `weight` times."""

    name: str
    weight: int
    strike: Strike


def _kill_part(part: Part, count: int = 1) -> Strike:
    return lambda strike: strike.kill_part(part, count)


def _kill_nodes(nodes: Sequence[int], count: int = 1) -> Strike:
    async def strike(strike: SparkStrike) -> None:
        await strike.kill_nodes(strike.rng.sample(nodes, count))
        await strike.hold()

    return strike


def _kill_when_prepared(*parts: Part, nodes: Sequence[int] = ()) -> Strike:
    async def strike(strike: SparkStrike) -> None:
        await strike.wait_until_prepared()
        for part in parts:
            await strike.kill_part(part)
        if nodes:
            await strike.kill_nodes([strike.rng.choice(nodes)])
            await strike.hold()

    return strike


async def _replace(strike: SparkStrike) -> None:
    """Freezes a driver until another one has taken over its checkpoint, and then resumes it. The output of the first
    driver must not count."""
    await strike.wait_for_part(Part.EXECUTOR)
    (driver,) = await strike.wait_for_part(Part.DRIVER)
    driver.suspend()
    other = await strike.program.start_another()
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not find(other.pid, Part.WORKER):
            assert time.monotonic() < until_s, f"the second driver runs no task:\n{strike.program.log_end()}"
            await asyncio.sleep(0.1)
        await strike.hold(ZOMBIE_S)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            driver.resume()
    await strike.hold()
    # Only one program may stay. Either of them may be fenced first, so kill the second one.
    with contextlib.suppress(ProcessLookupError):
        psutil.Process(other.pid).send_signal(signal.SIGKILL)
    for victim in find(other.pid, Part.DRIVER):
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
            strike.kills += 1


SPARK_FAULTS: Final[Sequence[SparkFault]] = (
    SparkFault(name="kill -9 a task's worker", weight=8, strike=_kill_part(Part.WORKER)),
    SparkFault(name="kill -9 a task's worker at the decision", weight=3, strike=_kill_when_prepared(Part.WORKER)),
    SparkFault(name="kill -9 an executor", weight=3, strike=_kill_part(Part.EXECUTOR)),
    SparkFault(name="kill -9 all executors", weight=1, strike=_kill_part(Part.EXECUTOR, 2)),
    SparkFault(name="kill -9 an executor at the decision", weight=1, strike=_kill_when_prepared(Part.EXECUTOR)),
    SparkFault(name="kill -9 the committer", weight=1, strike=_kill_part(Part.COMMITTER)),
    SparkFault(name="kill -9 the committer at the decision", weight=1, strike=_kill_when_prepared(Part.COMMITTER)),
    SparkFault(name="kill -9 a source", weight=1, strike=_kill_part(Part.SOURCE)),
    SparkFault(name="kill -9 the driver", weight=1, strike=_kill_part(Part.DRIVER)),
    SparkFault(name="kill -9 the driver at the decision", weight=1, strike=_kill_when_prepared(Part.DRIVER)),
    SparkFault(
        name="kill -9 driver and coordinator at the decision",
        weight=1,
        strike=_kill_when_prepared(Part.DRIVER, nodes=COORDINATORS),
    ),
    SparkFault(name="replace a driver that stands still", weight=1, strike=_replace),
    SparkFault(name="kill -9 coordinator", weight=5, strike=_kill_nodes(COORDINATORS)),
    SparkFault(name="kill -9 coordinator at the decision", weight=3, strike=_kill_when_prepared(nodes=COORDINATORS)),
    SparkFault(name="kill -9 all coordinators", weight=1, strike=_kill_nodes(COORDINATORS, len(COORDINATORS))),
    SparkFault(name="kill -9 broker", weight=4, strike=_kill_nodes(BROKERS)),
    SparkFault(name="kill -9 broker at the decision", weight=2, strike=_kill_when_prepared(nodes=BROKERS)),
    SparkFault(name="kill -9 all brokers", weight=1, strike=_kill_nodes(BROKERS, len(BROKERS))),
    SparkFault(name="kill -9 controller", weight=2, strike=_kill_nodes(CONTROLLERS)),
)
