"""Handles Ctrl-C, and SIGTERM in the same way: `docker stop`, systemd and Kubernetes send it.

The first of these signals ends the command in good order, and the second one kills it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from klamm_cli.console.exit_status import ExitStatus

_STATUSES: Final = {signal.SIGINT: ExitStatus.INTERRUPTED, signal.SIGTERM: ExitStatus.TERMINATED}


def _raise() -> None:
    raise KeyboardInterrupt


_react: Callable[[], object] = _raise
"""The action of the first signal."""
_status = ExitStatus.INTERRUPTED


def handle_interrupts() -> None:
    """Installs the handler: the first signal raises KeyboardInterrupt, the second one kills the process."""
    for number in _STATUSES:
        signal.signal(number, _on_signal)


def let_interrupts_kill() -> None:
    """Makes every later signal kill the process."""
    for number in _STATUSES:
        signal.signal(number, signal.SIG_DFL)


def status_of_signal() -> ExitStatus:
    """Returns the exit status of a command that a signal has ended."""
    return _status


@contextmanager
def interrupt_calls(function: Callable[[], object]) -> Iterator[None]:
    """Makes the first signal within the context call `function` between two instructions. The command then
    continues."""
    global _react
    before = _react
    try:
        _react = function
        yield
    finally:
        _react = before


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _status
    _status = _STATUSES[signal.Signals(number)]
    let_interrupts_kill()
    _react()
