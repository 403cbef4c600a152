"""What a seed decides before its run: timings, settings, loads, and the faults with their times.

The options and the schedule come from random streams of their own, so that leaving out a fault changes neither the
other faults nor the load.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tests.chaos.klammchaos.transaction_load import GroupProtocol
from tests.world.kernel import Range, Timings

PROTOCOLS: Final[tuple[GroupProtocol, ...]] = ("classic", "consumer")
FAULTS_FROM_S: Final = 4.0
FAULTS_UNTIL_S: Final = 25.0


class FaultKind(StrEnum):
    """Something that goes wrong."""

    KILL = "kill"
    POWER = "power"
    CONTROLLER_POWER = "controller-power"
    TERMINATE = "terminate"
    PAUSE = "pause"
    CLIENT_PAUSE = "client-pause"
    CUT = "cut"
    ONE_WAY = "one-way"
    ISOLATE = "isolate"
    RESET = "reset"
    FULL_DISK = "full-disk"
    SLOW_DISK = "slow-disk"
    CLOCK = "clock"
    ELECT = "elect"
    MOVE = "move"


_CHANCES: Final = {
    FaultKind.KILL: 0.7,
    FaultKind.POWER: 0.5,
    FaultKind.CONTROLLER_POWER: 0.3,
    FaultKind.TERMINATE: 0.4,
    FaultKind.PAUSE: 0.5,
    FaultKind.CLIENT_PAUSE: 0.3,
    FaultKind.CUT: 0.5,
    FaultKind.ONE_WAY: 0.4,
    FaultKind.ISOLATE: 0.4,
    FaultKind.RESET: 0.6,
    FaultKind.FULL_DISK: 0.25,
    FaultKind.SLOW_DISK: 0.4,
    FaultKind.CLOCK: 0.25,
    FaultKind.ELECT: 0.3,
    FaultKind.MOVE: 0.3,
}
"""The chance that a seed has faults of a kind."""


class Fault(NamedTuple):
    """A fault of a schedule. When it strikes, `salt` chooses its victim."""

    at_s: float
    kind: FaultKind
    duration_s: float
    salt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The decisions of one seed."""

    timings: Timings
    slow_sync_chance: float
    cold_chance: float
    settings: dict[str, str]
    group_protocol: GroupProtocol
    schedule: Sequence[Fault]


def draw(seed: int) -> Options:
    """Returns the options of a seed. Nothing in here looks at the run."""
    rng = random.Random(f"options/{seed}")
    latencies: tuple[Range, ...] = ((30, 100), (50, 400), (200, 3_000), (1_000, 30_000))
    turns: tuple[Range, ...] = ((5, 60), (5, 60), (20, 400), (100, 3_000))
    jobs: tuple[Range, ...] = ((20, 300), (20, 300), (500, 20_000))
    kinds = [kind for kind, chance in _CHANCES.items() if rng.random() < chance]
    settings = {"broker.session.timeout.ms": "6000", "group.min.session.timeout.ms": "500"}
    for name, values in (
        ("metadata.log.max.record.bytes.between.snapshots", (None, "3000", "20000")),
        ("leader.imbalance.check.interval.seconds", (None, "5")),
        ("log.retention.check.interval.ms", (None, "2000")),
        ("metadata.log.tail.max.bytes", (None, None, "2000")),
    ):
        if (value := rng.choice(values)) is not None:
            settings[name] = value
    return Options(
        timings=Timings(latency_us=rng.choice(latencies), turn_us=rng.choice(turns), job_start_us=rng.choice(jobs)),
        slow_sync_chance=rng.choice((0, 0, 0.02, 0.2)),
        cold_chance=rng.choice((0, 0, 0.05, 0.5)),
        settings=settings,
        group_protocol=rng.choice(PROTOCOLS),
        schedule=_schedule(seed, kinds, rng.choice((0.4, 1.0, 2.5)), [rng.choice((1, 1, 2, 4)) for _ in kinds]),
    )


def _schedule(seed: int, kinds: Sequence[FaultKind], mean_gap_s: float, weights: Sequence[int]) -> tuple[Fault, ...]:
    rng = random.Random(f"schedule/{seed}")
    schedule = []
    at_s = FAULTS_FROM_S
    while kinds and at_s < FAULTS_UNTIL_S:
        kind = rng.choices(kinds, weights)[0]
        duration_s = rng.choice((0.05, 0.3, 1.0, 3.0, 8.0)) * rng.uniform(0.5, 1.5)
        schedule.append(Fault(round(at_s, 4), kind, round(duration_s, 4), rng.getrandbits(32)))
        at_s += rng.expovariate(1 / mean_gap_s)
    return tuple(schedule)
