"""Whether a command could write files into a directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def check_writable(directory: Path) -> None:
    """Raises the OSError with which the system would refuse to write into the directory. Creates nothing. A directory
    that does not exist would be created."""
    wanted = directory.absolute()
    existing = next(path for path in (wanted, *wanted.parents) if path.exists())
    if not existing.is_dir():
        raise _error(errno.EEXIST if existing == wanted else errno.ENOTDIR, directory)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _error(errno.EACCES, directory)


def _error(number: int, directory: Path) -> OSError:
    return OSError(number, os.strerror(number), str(directory))
