from __future__ import annotations

import subprocess
import sys

from klamm_server.runtime.garbage import LONG_S, LongCollections


def test_only_after_a_long_collection_is_everything_set_aside() -> None:
    now_s, set_aside = [0.0], []
    watch = LongCollections(lambda: now_s[0], lambda: set_aside.append(now_s[0]))
    for length_s in (LONG_S / 2, 2 * LONG_S, LONG_S / 2):
        watch("start", {})
        now_s[0] += length_s
        watch("stop", {})
    assert set_aside == [2.5 * LONG_S]


def test_in_a_process_that_keeps_much_little_is_looked_at_again() -> None:
    """A million objects: without setting aside, each full collection would look at them all."""
    script = """
import gc
from klamm_server.runtime.garbage import collect_seldom
collect_seldom()
kept = [[number] for number in range(1_000_000)]
for _ in range(3):
    gc.collect()
assert gc.get_freeze_count() > 900_000, gc.get_freeze_count()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
