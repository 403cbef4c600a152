"""Which accesses to clusters a process keeps."""

from __future__ import annotations

from pyspark_klamm.access_cache import AccessCache


class Held:
    def __init__(self, settings) -> None:
        self.settings = dict(settings)
        self.is_closed = False

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


def cache() -> AccessCache[Held]:
    return AccessCache(Held, capacity=2, idle_s=100)


def test_the_same_settings_share_one():
    held = cache()
    assert held.get({"a": "1", "b": "2"}, 0) is held.get({"b": "2", "a": "1"}, 1)
    assert held.get({"a": "1"}, 2) is not held.get({"a": "2"}, 3)


def test_the_least_used_makes_room():
    held = cache()
    first, second = held.get({"a": "1"}, 0), held.get({"a": "2"}, 1)
    assert held.get({"a": "1"}, 2) is first
    held.get({"a": "3"}, 3)
    assert (first.is_closed, second.is_closed) == (False, True)


def test_what_is_idle_is_closed_but_not_what_is_asked_for():
    held = cache()
    first, second = held.get({"a": "1"}, 0), held.get({"a": "2"}, 1)
    assert held.get({"a": "2"}, 102) is second
    assert (first.is_closed, second.is_closed) == (True, False)
    assert held.get({"a": "2"}, 1_000) is second
