"""Chooses faults at random, and strikes with one after the other until the time is up.

The faults are drawn from a shuffled deck, so that a run of any length sees as many kinds as it has time for.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tests.chaos.klammchaos.history import History
from tests.chaos.klammchaos.quorum_cluster import QuorumCluster
from tests.chaos.klammchaos.quorum_faults import Fault, Strike
from tests.support.waiting import patience


class Weighted(Protocol):
    """A fault of any workload."""

    @property
    def weight(self) -> int: ...


Dealt = TypeVar("Dealt", bound=Weighted)

PAUSE_S: Final = (0.3, 2.0)
"""The pause between faults."""
HASTE_PROBABILITY: Final = 0.2
"""The probability that the next fault strikes before everything has recovered from the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that has struck and was healed, with its effects."""

    fault: Fault
    is_fail_over: bool
    """Whether the leader of a whole quorum was lost, and another controller was elected during the fault."""
    outage_s: float
    """The longest time without an answer to any client, up to the first answer after the healing."""
    recovery_s: float
    """The time from the healing to the first answer."""


class Nemesis:
    """Strikes the cluster with faults. `tell` gets a line for each fault."""

    def __init__(
        self,
        cluster: QuorumCluster,
        history: History,
        faults: Sequence[Fault],
        rng: random.Random,
        tell: Callable[[str], None],
    ) -> None:
        self.struck: list[Struck] = []
        self._cluster = cluster
        self._history = history
        self._deck = deal(faults, rng)
        self._rng = rng
        self._tell = tell

    async def run(self, until_s: float) -> None:
        """Strikes until `until_s`, and then heals the cluster. Raises AssertionError if it does not recover, or if a
        process ended by itself."""
        begin_s = time.monotonic()
        while time.monotonic() < until_s:
            fault = next(self._deck)
            struck_s = time.monotonic()
            struck = await self._strike(fault)
            self.struck.append(struck)
            self._tell(
                f"{struck_s - begin_s:7.2f} s  {fault.name}: outage {struck.outage_s:.3f} s"
                f"{' (fail-over)' if struck.is_fail_over else ''}, recovered in {struck.recovery_s:.3f} s"
            )
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            if self._rng.random() >= HASTE_PROBABILITY:
                await self._cluster.wait_whole()

    async def _strike(self, fault: Fault) -> Struck:
        leader = (await self._cluster.leader()).node_id
        followers = [node_id for node_id in self._cluster.controllers if node_id != leader]
        self._rng.shuffle(followers)
        before = await self._cluster.describe()
        was_whole = await self._cluster.is_whole()
        strike = Strike(cluster=self._cluster, leader=leader, followers=(followers[0], followers[1]), rng=self._rng)
        begin_s = time.monotonic()
        await fault.strike(strike)
        self._cluster.expect_up()
        healed_s = time.monotonic()
        await self._history.wait_for_answer(healed_s, patience())
        answered_s = time.monotonic()
        await self._cluster.leader()
        self._cluster.check_running()
        after = await self._cluster.describe()
        has_changed = before is not None and after is not None and before.term < after.term
        return Struck(
            fault=fault,
            is_fail_over=fault.fails_over and was_whole and has_changed,
            outage_s=self._history.outage_s(begin_s, answered_s),
            recovery_s=answered_s - healed_s,
        )


def deal(faults: Sequence[Dealt], rng: random.Random) -> Iterator[Dealt]:
    """Yields the faults in random order, each as often as its weight, again and again."""
    while True:
        deck = [fault for fault in faults for _ in range(fault.weight)]
        rng.shuffle(deck)
        yield from deck
