"""Chooses, once in each process, between the compiled core of the client (`klamm/_core.pyx`) and pure Python.

The pure Python is the reference: both do the same. A wheel that was built without a C compiler has no compiled core.
The environment variable KLAMM_CORE decides: `auto` (the default) takes the compiled core if there is one, `pure` never
does, and `compiled` raises ImportError without it."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any, Final

_CHOICES: Final = ("auto", "pure", "compiled")


def _load(choice: str) -> Any:
    if choice not in _CHOICES:
        raise ImportError(f"KLAMM_CORE={choice!r}: expected {', '.join(_CHOICES)}")
    if choice == "pure":
        return None
    try:
        return importlib.import_module("klamm._core")
    except ImportError as error:
        if choice == "auto":
            return None
        raise ImportError(
            f"KLAMM_CORE=compiled, but klamm has no compiled core ({error}); expected a wheel for this platform, or a"
            " C compiler where klamm was built"
        ) from error


core: Final[Any] = _load(os.environ.get("KLAMM_CORE", "auto"))
"""The module of the compiled core, or None."""

COMPILED_BATCHES: Final[tuple[type[Any], ...]] = () if core is None else (core.OpenBatch,)
"""The type of the compiled records of a batch, or nothing. It is an argument of `isinstance`."""


def new_lock() -> threading.RLock:
    """Returns a reentrant lock that the core can take without calling Python."""
    return threading.RLock() if core is None else core.Lock()
