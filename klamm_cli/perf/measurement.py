"""The figures of one measurement. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klamm_cli.perf.matrix import Cell
from klamm_cli.sizing import MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The figures of one cell."""

    cell: Cell
    records: int
    size_bytes: int
    """The bytes of the keys, values and headers, before compression."""
    stored_bytes: int
    """The bytes of the batches in which the records were sent, after compression."""
    seconds: float
    p50_ms: float | None
    p99_ms: float | None

    @property
    def records_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_s(self) -> float:
        return self.size_bytes / MB / self.seconds

    @property
    def stored_ratio(self) -> float:
        return self.stored_bytes / max(1, self.size_bytes)


def median(runs: Sequence[Measurement]) -> Measurement:
    """Returns the run with the median rate: the slower one of the two if their number is even."""
    return sorted(runs, key=lambda run: run.records_s)[(len(runs) - 1) // 2]
