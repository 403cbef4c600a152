"""Handles Ctrl-C, and SIGTERM in the same way: `docker stop`, systemd and Kubernetes send it.

The first of these signals ends the command in good order, and the second one kills it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from klamm_cli.console.exit_status import ExitStatus

_STATUSES: Final = {signal.SIGINT: ExitStatus.INTERRUPTED, signal.SIGTERM: ExitStatus.TERMINATED}


def _raise() -> None:
    raise KeyboardInterrupt


_AGAIN_S: Final = 0.01
"""The time after which a swallowed KeyboardInterrupt is raised again."""

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


@contextmanager
def repeat_swallowed_interrupts() -> Iterator[None]:
    """Within the context, a KeyboardInterrupt that a destructor swallows is raised again a moment later.

    The garbage collector may call a destructor at any instruction. Python only prints an exception that is raised in a
    destructor, so the command would ignore the signal."""
    before = sys.unraisablehook

    def on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            before(unraisable)
            return
        signal.signal(signal.SIGALRM, lambda number, frame: _react())
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

    sys.unraisablehook = on_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = before


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _status
    _status = _STATUSES[signal.Signals(number)]
    let_interrupts_kill()
    _react()
