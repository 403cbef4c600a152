"""Handles Ctrl-C. The first Ctrl-C ends the command in good order, and the second one kills it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def _raise() -> None:
    raise KeyboardInterrupt


_react: Callable[[], object] = _raise
"""The action of the first Ctrl-C."""


def handle_interrupts() -> None:
    """Installs the handler: the first Ctrl-C raises KeyboardInterrupt, the second one kills the process."""
    signal.signal(signal.SIGINT, _on_signal)


def let_interrupts_kill() -> None:
    """Makes every later Ctrl-C kill the process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interrupt_calls(function: Callable[[], object]) -> Iterator[None]:
    """Makes the first Ctrl-C within the context call `function` between two instructions. The command then
    continues."""
    global _react
    before = _react
    try:
        _react = function
        yield
    finally:
        _react = before


def _on_signal(number: int, frame: FrameType | None) -> None:
    let_interrupts_kill()
    _react()
