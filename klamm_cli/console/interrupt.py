"""Ctrl-C: the first ends the command in good order, a second one at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def _raise() -> None:
    raise KeyboardInterrupt


_react: Callable[[], object] = _raise
"""What the first Ctrl-C does."""


def handle_interrupts() -> None:
    """From now on there is a first Ctrl-C, which raises KeyboardInterrupt, and a second."""
    signal.signal(signal.SIGINT, _on_signal)


def let_interrupts_kill() -> None:
    """From now on every Ctrl-C is like a second one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interrupt_calls(function: Callable[[], object]) -> Iterator[None]:
    """Inside, the first Ctrl-C calls `function` (between any two instructions) and the command goes on."""
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
