"""Calls the application's functions on the producer's event loop: delivery callbacks, done callbacks, interceptors.

An Exception of such a function is logged. An exception that ends a program or a test, such as SystemExit or that of
pytest.fail, would end the event loop that all clients share. So the next call of the producer that waits raises it in
the thread of the application, and so does the next `send` that begins a batch."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)


class UserCalls:
    """The calls of one producer."""

    def __init__(self) -> None:
        self._exits: deque[BaseException] = deque()

    def call(self, what: str, function: Callable[..., object], *arguments: object) -> None:
        """Calls `function` with `arguments`. `what` names it in the log."""
        try:
            function(*arguments)
        except Exception:
            log.exception("%s failed", what)
        except BaseException as error:  # noqa: BLE001 - `raise_exit` raises it
            log.warning("%s raised %r, which the producer's next call raises", what, error)
            self._exits.append(error)

    def raise_exit(self) -> None:
        """Raises the first exception that has not been raised yet and that is to end the program."""
        if self._exits:
            raise self._exits.popleft()
