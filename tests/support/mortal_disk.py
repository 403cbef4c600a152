"""A disk whose process dies, or on which one operation fails, at a chosen moment."""

from __future__ import annotations

import os
import threading
from typing import Any

from klamm_server.runtime.disk import Disk


class Killed(BaseException):
    """Raised by a disk operation, as if the process ended at this point."""


class MortalDisk(Disk):
    """Lets the process do `operations_left` operations that change something. The next one raises `Killed`, or an
    OSError if `errno` is set. With None, all operations succeed."""

    def __init__(self) -> None:
        self.operations_left: int | None = None
        self.errno: int | None = None
        """If set, the operation fails once with this error, and the process lives on."""
        self.directory_syncs: list[str] = []
        self._lock = threading.Lock()

    def _use(self) -> None:
        with self._lock:
            if self.operations_left is None:
                return
            if self.operations_left:
                self.operations_left -= 1
            elif self.errno is None:
                raise Killed
            else:
                self.operations_left = None
                raise OSError(self.errno, os.strerror(self.errno))

    @property
    def _is_dead(self) -> bool:
        return self.operations_left == 0 and self.errno is None

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._use()
        return super().open(path, flags)

    def writev(self, fd: int, buffers: Any) -> int:
        self._use()
        return os.writev(fd, buffers)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        self._use()
        return os.pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        self._use()
        os.fdatasync(fd)

    def replace(self, source: str, target: str) -> None:  # type: ignore[override]
        self._use()
        os.replace(source, target)

    def make_directory(self, path: str) -> None:
        self._use()
        super().make_directory(path)

    def fsync_directory(self, path: str) -> None:
        self._use()
        self.directory_syncs.append(path)
        super().fsync_directory(path)

    def remove(self, paths: Any) -> None:
        if not self._is_dead:  # a dead process removes nothing
            super().remove(paths)
