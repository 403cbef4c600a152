from __future__ import annotations

from klamm_server.runtime.garbage import LONG_S, LongCollections


def test_objects_are_frozen_only_after_a_long_garbage_collection() -> None:
    now_s, set_aside = [0.0], []
    watch = LongCollections(lambda: now_s[0], lambda: set_aside.append(now_s[0]))
    for length_s in (LONG_S / 2, 2 * LONG_S, LONG_S / 2):
        watch("start", {})
        now_s[0] += length_s
        watch("stop", {})
    assert set_aside == [2.5 * LONG_S]
