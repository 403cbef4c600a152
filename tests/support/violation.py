"""The error of a test that found records or metadata in a state that Klamm promises can never be.

A test that raises it gets no second chance (`second_chance.py`): one violation is one too many, however rare.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Violation(AssertionError):
    """Raised if records or metadata were lost, doubled, moved or reordered, if replicas differ, or if a planted bug was
    not found.

    The message of a simulation begins with the name of the broken rule."""


def is_violation(error: BaseException | None) -> bool:
    """Returns whether the error, or an error in its exception group, is a `Violation`."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_violation, error.exceptions))
    return isinstance(error, Violation)


def require(holds: bool, message: str) -> None:
    """Raises `Violation` with `message` unless `holds` is true."""
    if not holds:
        raise Violation(message)


@contextlib.contextmanager
def verdict() -> Iterator[None]:
    """Makes a `Violation` of each assertion that fails in the block.

    The block judges records or metadata. It must not wait for anything, because a time-out is no verdict."""
    try:
        yield
    except Violation:
        raise
    except AssertionError as error:
        raise Violation(str(error)) from error
