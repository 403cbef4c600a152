"""A broker with a bug: `python -m tests.chaos.klammchaos.planted_broker`, with the bug's name in the environment.

A run whose brokers have a bug must end with an anomaly. This shows that the load and the faults of the run reach the
code that its checks cover.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.records.header import BatchHeader
from klamm_broker.log.producers.producer_state import ProducerStates, Run
from klamm_broker.replica.leadership import Leadership
from klamm_broker.replica.partition import Partition

VARIABLE: Final = "CHAOS_PLANTED"


class PlantedBug(NamedTuple):
    """A bug that is planted in a broker. At least one of its `anomalies` must be found."""

    plant: Callable[[], None]
    anomalies: frozenset[str]


def _acknowledge_early() -> None:
    """Makes leaders advance the high watermark without waiting for followers."""

    def committed_offset(self: Leadership, own_offset: int) -> int:
        return own_offset

    Leadership.committed_offset = committed_offset  # type: ignore[method-assign]


def _append_again() -> None:
    """Makes brokers append a retried batch of an idempotent producer again."""

    def check(self: ProducerStates, headers: Sequence[BatchHeader], **settings: object) -> Run | None:
        return None

    ProducerStates.check = check  # type: ignore[method-assign]


def _show_early() -> None:
    """Makes brokers return records to consumers before the records are committed."""

    def readable_end_offset(self: Partition, *, read_committed: bool) -> int:
        return self.log.log_end_offset

    Partition.readable_end_offset = readable_end_offset  # type: ignore[method-assign]


PLANTED_BUGS: Final[Mapping[str, PlantedBug]] = {
    "acknowledge-early": PlantedBug(_acknowledge_early, frozenset({"lost-write"})),
    "append-again": PlantedBug(_append_again, frozenset({"duplicate"})),
    "show-early": PlantedBug(_show_early, frozenset({"vanished", "inconsistent-offset"})),
}


if __name__ == "__main__":
    PLANTED_BUGS[os.environ[VARIABLE]].plant()
    runpy.run_module("klamm_broker", run_name="__main__")
