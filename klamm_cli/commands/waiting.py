"""Tells a user how far the servers are with the work that a command waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from klamm_cli.console.output import print_message
from klamm_cli.console.progress import ProgressBar
from klamm_cli.status.copies import Amount
from klamm_cli.text.amounts import in_bytes


class Report:
    """Tells how far the servers are. A terminal gets a bar with their rate in bytes. Otherwise, a line is printed
    whenever the text has changed. Use it as a context manager."""

    def __init__(self) -> None:
        self._bar = ProgressBar("", 0)
        self._said = ""
        self._first: tuple[float, float] | None = None

    def show(self, text: str, count: Callable[[], Amount]) -> None:
        """Shows a text such as "3 of 12 replicas read". Calls `count`, which may ask servers, only for a bar."""
        if self._bar.is_shown:
            done, total = count()
            now_s = time.monotonic()
            self._first = began_s, before = self._first or (now_s, done)
            rate = (done - before) / (now_s - began_s) if now_s > began_s else 0
            self._bar.show(done, f"{text}, {in_bytes(max(0, rate))}/s", total=total)
        elif text != self._said:
            print_message(text)
        self._said = text

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, traceback)
