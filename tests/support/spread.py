"""Spreads a parallel run over its workers by file, and runs all tests of Spark on one worker.

A worker that runs a test of Spark starts a JVM and a Spark session, which takes ten seconds and runs slowly at first.
Kept together, these tests share one JVM.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

SPARK: Final = "tests/integration/spark/"
"""The folder whose tests run on one worker."""


class FileScheduling(LoadFileScheduling):
    """The scheduling of `--dist loadfile`, with the tests in `SPARK` as if they were one file."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)
