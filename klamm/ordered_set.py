"""A set that is iterated in the order in which its members came.

Python's set orders objects by their addresses, which differ from process to process. Code that iterates over such a set
hides bugs, and a simulation of it cannot be repeated from its seed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class OrderedSet(Collection[T]):
    """A set in insertion order, with the operations that this project needs."""

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[T] = ()) -> None:
        self._members = dict.fromkeys(members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: T) -> None:
        """Adds a member at the end, unless it is in the set."""
        self._members[member] = None

    def discard(self, member: T) -> None:
        """Removes a member if it is in the set."""
        self._members.pop(member, None)

    def clear(self) -> None:
        """Removes all members."""
        self._members.clear()
