"""The pages of docs/reference are the pages that the generator writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_pages_are_what_the_generator_writes() -> None:
    # In a process of its own: which module measures what is known by the import that adds it.
    command = [sys.executable, "-m", "tools.reference", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
