"""Writes the log `klamm.audit`, one JSON object per line, to stderr or to a file that only its owner may read.

To rotate the file, move it away, and the next lines go to a new file. Lines are written in a thread, because disks may
be slow.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final, Protocol

from klamm.errors import ConfigError

LOGGER: Final = "klamm.audit"
_MODE: Final = 0o600


class _Sink(Protocol):
    def write(self, text: bytes) -> None: ...

    def close(self) -> None: ...


class AuditLog:
    """The output of a log to stderr or, if `path` is not None, to a file (an `AuditOutput`). `setting` names the file's
    setting. Raises ConfigError if the file cannot be opened."""

    def __init__(self, path: str | None, *, logger: str = LOGGER, setting: str = "audit.log.file") -> None:
        try:
            self._sink: _Sink = _Stderr(logger) if path is None else _PrivateFile(path)
        except OSError as error:
            raise ConfigError(f"{setting}: {path!r} cannot be written: {error.strerror}") from None

    async def write(self, lines: Sequence[bytes]) -> None:
        """Writes the lines. Raises OSError if the file cannot be written."""
        await asyncio.to_thread(self._sink.write, b"\n".join(lines))

    async def close(self) -> None:
        self._sink.close()


class _Stderr:
    """Writes lines to stderr through a logger. The logger has a handler of its own, which does not format the lines,
    because they are complete already."""

    def __init__(self, logger: str) -> None:
        self._logger = logging.getLogger(logger)
        if not self._logger.handlers:
            # The servers of one process share the logger.
            self._logger.addHandler(logging.StreamHandler(sys.stderr))
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False

    def write(self, text: bytes) -> None:
        self._logger.info("%s", text.decode())

    def close(self) -> None:
        """Does nothing, because stderr stays open."""


class _PrivateFile:
    """The audit log's file. Its mode is 0600, even if it existed before."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = self._open()
        self._is_torn = False
        """True if the last line in the file is incomplete, because a write failed. The caller writes the same lines
        again."""

    def write(self, text: bytes) -> None:
        if self._was_moved():
            self.close()
            self._descriptor = self._open()
            self._is_torn = False
        rest = memoryview((b"\n" if self._is_torn else b"") + text + b"\n")
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
            self._is_torn = len(rest) > 0

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            os.fchmod(descriptor, _MODE)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _was_moved(self) -> bool:
        ours = os.fstat(self._descriptor)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)
