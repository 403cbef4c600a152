from __future__ import annotations

from klamm_server.security.sasl.key_refresh import UNKNOWN_KEY_MS, KeyRefresh


def refresh() -> KeyRefresh:
    return KeyRefresh(refresh_ms=60_000, retry_ms=100, retry_max_ms=350)


def test_keys_are_due_at_once_and_then_once_per_interval() -> None:
    keys = refresh()
    assert keys.due_ms is None
    keys.loaded(5)
    assert keys.due_ms == 60_005


def test_failed_key_refreshes_are_retried_with_a_growing_delay() -> None:
    keys = refresh()
    dues = []
    for now_ms in (1_000, 2_000, 3_000, 4_000):
        keys.failed(now_ms)
        dues.append(keys.due_ms)
    assert dues == [1_100, 2_200, 3_350, 4_350]
    keys.loaded(5_000)
    keys.failed(6_000)
    assert keys.due_ms == 6_100


def test_unknown_keys_cause_a_refresh_at_most_once_per_interval() -> None:
    keys = refresh()
    keys.loaded(0)
    assert [keys.on_unknown_key(now_ms) for now_ms in (0, 1, UNKNOWN_KEY_MS - 1)] == [True, False, False]
    assert keys.on_unknown_key(UNKNOWN_KEY_MS)
