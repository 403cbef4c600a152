"""A few seconds of the workload "interrupts" of `make chaos`, in a process of its own, because its signals are those of
a test's time limit."""

from __future__ import annotations

import subprocess
import sys

from tests.support.pages import ROOT
from tests.support.violation import Violation
from tests.support.waiting import patience

VIOLATED = 3


def test_interrupted_programs_lose_and_double_no_records_and_do_not_hang() -> None:
    command = [sys.executable, "tests/chaos/run.py", "interrupts", "--minutes", "0.1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * patience(), check=False)
    if run.returncode == VIOLATED:
        raise Violation(run.stdout + run.stderr)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " interrupts\n" in run.stdout
