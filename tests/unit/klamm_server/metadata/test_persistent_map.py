"""Tests versions of a persistent map against copies of a dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_server.metadata.persistent_map import BUCKET_COUNT, MapDraft, PersistentMap

# The keys are few, and several of them share a bucket.
KEYS = st.sampled_from([bucket + BUCKET_COUNT * turn for bucket in (0, 1, 7) for turn in range(4)])
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 3))), max_size=8)


def apply(base: PersistentMap[int, object], twin: dict[int, object], changes: list[tuple[int, int | None]]):
    draft, twin = MapDraft(base), dict(twin)
    for key, value in changes:
        assert (key in draft) is (key in twin)
        assert draft.get(key) is twin.get(key)
        if value is not None:
            twin[key] = (key, value)
            draft.put(key, twin[key])
        elif key in twin:
            del twin[key]
            draft.remove(key)
    return draft.finish(), twin


@given(st.lists(CHANGES, max_size=5))
def test_every_version_equals_its_dict_for_ever(versions: list[list[tuple[int, int | None]]]) -> None:
    history = [(PersistentMap[int, object](), dict[int, object]())]
    for changes in versions:
        history.append(apply(*history[-1], changes))
    for version, twin in history:
        assert dict(version) == twin == version
        assert (len(version), sorted(version)) == (len(twin), sorted(twin))
        assert all(version.get(key) is twin.get(key) for key in range(8 * BUCKET_COUNT))
        assert all((key in version) is (key in twin) for key in range(8 * BUCKET_COUNT))


@given(CHANGES, CHANGES)
def test_keys_that_differ_returns_exactly_the_keys_with_different_objects(first, second) -> None:
    old, old_twin = apply(PersistentMap(), {}, first)
    new, new_twin = apply(old, old_twin, second)
    expected = sorted(key for key in old_twin | new_twin if old_twin.get(key) is not new_twin.get(key))
    assert sorted(old.keys_that_differ(new)) == expected
    assert sorted(new.keys_that_differ(old)) == expected


def test_a_map_draft_without_writes_returns_its_base() -> None:
    base, _ = apply(PersistentMap(), {}, [(1, 1)])
    assert MapDraft(base).finish() is base


def test_versions_share_the_buckets_that_did_not_change() -> None:
    base, twin = apply(PersistentMap(), {}, [(0, 1), (1, 1)])
    after, _ = apply(base, twin, [(1, 2)])
    assert after._buckets[0] is base._buckets[0]
    assert after._buckets[1] is not base._buckets[1]
