"""Planted bugs, which prove that a simulation would find such a mistake.

Only tests plant them. Each bug replaces a handful of attributes for the duration of a `with`. The code itself has no
switch for any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A mistake."""

    what: str
    known_seed: int | None = None
    """A seed that finds the bug. None if only a scripted scenario does."""
    changes: tuple[tuple[Any, str, Any], ...]
    """(owner, attribute, replacement)."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code has this mistake inside."""
        originals = [(owner, name, vars(owner)[name]) for owner, name, _ in self.changes]
        for owner, name, replacement in self.changes:
            setattr(owner, name, replacement)
        try:
            yield
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)
