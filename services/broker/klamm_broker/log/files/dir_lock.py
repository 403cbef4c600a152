"""The `.lock` file of a log directory, so that no two brokers use one directory at the same time.

The kernel drops this advisory lock when the process ends in any way. The file itself stays.
"""

from __future__ import annotations

import errno
import os

from klamm_broker.log.files.storage_failure import LogDirError
from klamm_server.runtime.disk import Disk

LOCK_FILE = ".lock"


class DirectoryLock:
    """A lock that is held from construction to `release`. The constructor raises LogDirError if another process holds
    the lock, or OSError."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._fd = disk.open(f"{log_dir}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT)
        try:
            disk.lock(self._fd)
        except OSError as error:
            disk.close(self._fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise LogDirError(
                f"log directory {log_dir} is in use: another process locked {log_dir}/{LOCK_FILE}; "
                f"stop it or use another directory"
            ) from None

    def release(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1
