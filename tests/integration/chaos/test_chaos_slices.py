"""Runs a slice of each workload of `make chaos` that has its own processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.chaos.run import VIOLATED
from tests.support import seeds
from tests.support.violation import require

RUN = pathlib.Path(__file__).resolve().parents[2] / "chaos" / "run.py"
DEADLINE_S = 600
"""A machine that does other things too starts processes slowly, and everybody must recover in the end."""

UP_SHARE = 3
"""One in this many slices of partitions strikes what `klamm up` runs; the others have more kinds of faults."""


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.parametrize(("workload", "slice_s"), [("quorum", 8), ("partitions", 8), ("transactions", 8)])
def test_a_chaos_run_violates_no_guarantee(workload: str, slice_s: int, tmp_path: pathlib.Path) -> None:
    """The slice runs in a separate process, which has its own mounts and network where the system allows it."""
    seed = seeds.run_seed()
    command = [sys.executable, str(RUN), workload, "--minutes", f"{slice_s / 60:.3f}", "--seed", str(seed)]
    if workload == "partitions" and seed % UP_SHARE == 0:
        command += ["--cluster", "up"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        story, _ = process.communicate(timeout=DEADLINE_S)
    except BaseException:
        process.terminate()
        print(process.communicate()[0])
        raise
    print(story)
    require(process.returncode != VIOLATED, story)
    assert process.returncode == 0, story
