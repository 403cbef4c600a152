"""Synchronous clients are faces of asynchronous ones: the same methods, so the same words about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

ClassT = TypeVar("ClassT", bound=type)


def documented_by(source: type) -> Callable[[ClassT], ClassT]:
    """Gives each public method without a docstring the one of the method of that name in `source`."""

    def copy(target: ClassT) -> ClassT:
        for name, method in vars(target).items():
            if callable(method) and not name.startswith("_") and method.__doc__ is None:
                method.__doc__ = getattr(source, name).__doc__
        return target

    return copy
