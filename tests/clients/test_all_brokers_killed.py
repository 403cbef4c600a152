"""Tests that every client continues after all brokers were killed at once. It is a short run of `make chaos`, with new
pauses each time."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tests.support import java_programs

RUN = pathlib.Path(__file__).parents[1] / "chaos" / "run.py"
KILLS = 3
DEADLINE_S = 600


@pytest.mark.clients
@pytest.mark.timeout(DEADLINE_S + 60)
def test_every_client_goes_on_when_all_brokers_are_killed_at_once() -> None:
    java_programs.classpath()
    run = subprocess.run(
        [sys.executable, str(RUN), "clients", "--minutes", "0.1", "--kills", str(KILLS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-8_000:]
