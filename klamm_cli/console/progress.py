"""The progress of a long command: a bar on stderr with the rate and the time that is left.

It is shown only if stderr is a terminal. rich redraws it ten times a second, whatever the command does."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class ProgressBar:
    """A bar for work of a known size. Use it as a context manager."""

    def __init__(self, what: str, total: float, *, is_shown: bool = True) -> None:
        self._bar: Any = None
        self._what = what
        if is_shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=total)

    @property
    def is_shown(self) -> bool:
        """True if there is a terminal that shows the bar."""
        return self._bar is not None

    def show(self, completed: float, details: str = "", *, total: float | None = None) -> None:
        """Shows that `completed` of the total is done, with details such as a rate. `total` replaces the total."""
        if self._bar is not None:
            description = f"{self._what} {details}".strip()
            self._bar.update(self._task, completed=completed, total=total, description=description)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
