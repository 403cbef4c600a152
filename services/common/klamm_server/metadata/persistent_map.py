"""An immutable mapping. Its next version shares all unchanged buckets with it.

A change copies one bucket and the list of buckets. With 100,000 keys this takes some microseconds, while copying a dict
would take milliseconds. A comparison of two versions visits only the buckets that they do not share. (The persistent
maps of Kafka's image package have the same purpose.)

Iteration goes bucket by bucket, in the order of `hash(key)` and then of insertion: the same in every process only if
the hash is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

BUCKET_COUNT = 512
"""The number of buckets, a power of two. With 100,000 keys, a bucket has 200 keys, and copying it costs as much as
copying the list of buckets."""

_MASK = BUCKET_COUNT - 1


class PersistentMap(Mapping[K, V]):
    """An immutable mapping that `MapDraft` makes. Without an argument it is empty."""

    __slots__ = ("_buckets", "_length")

    def __init__(self, buckets: tuple[dict[K, V], ...] = ({},) * BUCKET_COUNT, length: int = 0) -> None:
        self._buckets = buckets
        self._length = length

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) & _MASK][key]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[hash(key) & _MASK]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: D, /) -> V | D: ...
    def get(self, key: K, default: D | None = None, /) -> V | D | None:
        """Returns the value of a key. `Mapping.get` would raise and catch an exception for each missing key."""
        return self._buckets[hash(key) & _MASK].get(key, default)

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"

    def keys_that_differ(self, other: PersistentMap[K, V]) -> Iterator[K]:
        """Yields the keys whose values are not the same object in both mappings, and those that only one mapping
        has.
        """
        for mine, theirs in zip(self._buckets, other._buckets, strict=True):
            if mine is theirs:
                continue
            yield from (key for key, value in mine.items() if theirs.get(key) is not value)
            yield from (key for key in theirs if key not in mine)


class MapDraft(Generic[K, V]):
    """Builds the next version of a mapping. The old version does not change. Values must not be None."""

    __slots__ = ("_base", "_buckets", "_length", "_written")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self._buckets: list[dict[K, V]] | tuple[dict[K, V], ...] = base._buckets
        self._length = len(base)
        self._written: set[int] = set()
        """The buckets that belong to this draft."""

    def __contains__(self, key: K) -> bool:
        return key in self._buckets[hash(key) & _MASK]

    def get(self, key: K) -> V | None:
        """Returns the value, or None."""
        return self._buckets[hash(key) & _MASK].get(key)

    def put(self, key: K, value: V) -> None:
        """Adds a key or replaces its value."""
        bucket = self._writable(key)
        self._length -= len(bucket)
        bucket[key] = value
        self._length += len(bucket)

    def remove(self, key: K) -> None:
        """Removes a key. Raises KeyError if it does not exist."""
        del self._writable(key)[key]
        self._length -= 1

    def finish(self) -> PersistentMap[K, V]:
        """Returns the new mapping, or the old one if nothing was changed. The draft must not be used afterwards."""
        return PersistentMap(tuple(self._buckets), self._length) if self._written else self._base

    def _writable(self, key: K) -> dict[K, V]:
        number = hash(key) & _MASK
        if number not in self._written:
            if not self._written:
                self._buckets = list(self._buckets)
            assert isinstance(self._buckets, list), self._buckets
            self._buckets[number] = dict(self._buckets[number])
            self._written.add(number)
        return self._buckets[number]
