"""Gives objects that a test makes other clocks than those of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from klamm.process import PROCESS


@contextmanager
def clocks(**replaced: Any) -> Iterator[None]:
    """Objects that are made in the block, or in a task that begins in it, get these functions instead of those of
    `klamm.process.Process`."""
    token = PROCESS.set(PROCESS.get()._replace(**replaced))
    try:
        yield
    finally:
        PROCESS.reset(token)
