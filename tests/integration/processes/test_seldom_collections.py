"""Tests the garbage collection in a process that keeps many objects."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import patience


def test_collect_seldom_freezes_objects_that_survive_a_full_collection() -> None:
    """A full collection would visit all million objects if they were not set aside."""
    script = """
import gc
from klamm_server.runtime.garbage import collect_seldom
collect_seldom()
kept = [[number] for number in range(1_000_000)]
for _ in range(3):
    gc.collect()
assert gc.get_freeze_count() > 900_000, gc.get_freeze_count()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=patience())
