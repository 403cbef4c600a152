"""Runs a few seeds of the simulated cluster. `make world` runs more of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "world" / "run.py"


def run(*options: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUNNER), *options]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_slice_of_seeds_shows_no_violation() -> None:
    ended = run("--start", "1", "--seeds", "3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(" ok ") == 3, ended.stdout


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = (run("--start", "16", hash_seed=hash_seed) for hash_seed in ("1", "2"))
    assert first.returncode == 0, first.stdout + first.stderr
    assert checksum_of(first.stdout) == checksum_of(second.stdout)


def checksum_of(output: str) -> str:
    return output.partition("checksum=")[2].partition(" ")[0]


@pytest.mark.parametrize("plant", ["task-outlives-registration"])
def test_a_planted_bug_is_found(plant: str) -> None:
    ended = run("--start", "1", "--seeds", "2", "--plant", plant)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "left tasks" in ended.stdout
