"""Copies docstrings to the synchronous clients, which have the same methods as the asynchronous ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

ClassT = TypeVar("ClassT", bound=type)


def documented_by(source: type) -> Callable[[ClassT], ClassT]:
    """Returns a decorator. It gives each public method without a docstring the docstring of the same method of
    `source`."""

    def copy(target: ClassT) -> ClassT:
        for name, method in vars(target).items():
            if callable(method) and not name.startswith("_") and method.__doc__ is None:
                method.__doc__ = getattr(source, name).__doc__
        return target

    return copy
