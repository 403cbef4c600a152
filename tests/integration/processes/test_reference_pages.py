"""Tests that the pages of docs/reference are those that the generator writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_reference_pages_are_what_the_generator_writes() -> None:
    # A separate process is needed, because the metrics of a module are found by importing it.
    command = [sys.executable, "-m", "tools.reference", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
