"""Interrupts the same run again and again, as signals do: at its first instruction, at its second, and so on."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

_SIGNALS_COME_AFTER: Final = ("CALL", "RESUME", "JUMP_BACKWARD", "SEND", "YIELD_VALUE")
"""The instructions (or the beginnings of their names) after which Python 3.11 and later look for signals."""


def press_ctrl_c() -> None:
    raise KeyboardInterrupt


class _Interruption:
    """A trace function that calls `interrupt` before the `at`th instruction of this thread within `files`. With
    `is_signal`, only instructions count before which Python runs the handlers of signals."""

    def __init__(self, at: int, files: frozenset[str], interrupt: Callable[[], object], *, is_signal: bool) -> None:
        self.left = at
        self._files = files
        self._interrupt = interrupt
        self._is_signal = is_signal
        self._executed: dict[FrameType, int] = {}
        """The position of the last instruction of each frame."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self._files or not self.left:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and self._counts(frame):
            self.left -= 1
            if self.left == 0:
                # The interrupt is not traced, because Python traces no trace functions.
                self._interrupt()
        return self

    def _counts(self, frame: FrameType) -> bool:
        if not self._is_signal:
            return True
        before, now = self._executed.get(frame), frame.f_lasti
        self._executed[frame] = now
        code = frame.f_code
        return (
            before is not None
            and _names(code)[before].startswith(_SIGNALS_COME_AFTER)
            # An exception of a signal's handler belongs to the instruction before, which may be in another with block.
            and _handler(code, before) == _handler(code, now)
        )


@cache
def _names(code: CodeType) -> dict[int, str]:
    """Returns the names of the instructions by their positions."""
    return {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}


@cache
def _handler(code: CodeType, position: int) -> int | None:
    """Returns the position of the code that handles an exception of the instruction, or None."""
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        if entry.start <= position < entry.end:
            return int(entry.target)
    return None


def interrupted_everywhere(
    run: Callable[[], object],
    *modules: ModuleType,
    check: Callable[[], object],
    interrupt: Callable[[], object] = press_ctrl_c,
    is_signal: bool = False,
    step: int = 1,
) -> int:
    """Calls `run` and then `check` until a run ends without an interrupt. Returns the number of interrupted runs. The
    interrupts happen at every `step`th instruction of `modules`, in this thread."""
    files = frozenset(str(module.__file__) for module in modules)
    runs = 0
    while True:
        tracer = sys.gettrace()
        interruption = _Interruption(1 + runs * step, files, interrupt, is_signal=is_signal)
        sys.settrace(interruption)
        try:
            run()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
        check()
        if interruption.left:
            return runs
        runs += 1
