"""The log of all processes of a world, with virtual times."""

from __future__ import annotations

import logging

from tests.world.kernel import SECOND_US, World


class WorldLog(logging.Handler):
    """Keeps the lines of all processes, with the process and the virtual time of each."""

    def __init__(self, world: World, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._world = world
        self.lines: list[str] = []
        self.errors: list[str] = []
        """The lines that are errors."""

    def install(self) -> None:
        """Makes this the only handler of the root logger."""
        root = logging.getLogger()
        root.handlers[:] = [self]
        root.setLevel(self.level)

    def emit(self, record: logging.LogRecord) -> None:
        process = self._world.current
        name = "world" if process is None else process.name
        line = f"{self._world.now_us / SECOND_US:.6f} {name} {record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + logging.Formatter().formatException(record.exc_info)
        self.lines.append(line)
        if record.levelno >= logging.ERROR:
            self.errors.append(line)
