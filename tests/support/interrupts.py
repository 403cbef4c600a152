"""Interrupts the same run again and again, as Ctrl-C does: at its first instruction, at its second, and so on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


class _Interruption:
    """A trace function that raises KeyboardInterrupt before the `at`th instruction of this thread within `files`.

    Python also runs the handlers of signals between instructions, although not between any two."""

    def __init__(self, at: int, files: frozenset[str]) -> None:
        self.left = at
        self._files = files

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def interrupted_everywhere(run: Callable[[], object], *modules: ModuleType, check: Callable[[], object]) -> int:
    """Calls `run` and then `check` until a run ends without an interrupt. Returns the number of interrupted runs. The
    interrupts happen at instructions of `modules`, in this thread."""
    files = frozenset(str(module.__file__) for module in modules)
    at = 1
    while True:
        tracer = sys.gettrace()
        sys.settrace(_Interruption(at, files))
        try:
            run()
        except KeyboardInterrupt:
            pass
        else:
            return at - 1
        finally:
            sys.settrace(tracer)
        check()
        at += 1
