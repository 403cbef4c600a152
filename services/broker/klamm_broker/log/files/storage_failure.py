"""The failures of a log's disk, as exceptions that a caller can distinguish.

- `LogDirFailure`: the disk failed (EIO, EROFS ...). The whole log directory is offline until a restart, and each of
  its partitions answers KAFKA_STORAGE_ERROR.
- `DiskFull`: no space for this write (ENOSPC, EDQUOT), or no free file descriptor (EMFILE, ENFILE). Nothing changed,
  and a later attempt may succeed. This request answers KAFKA_STORAGE_ERROR.
- `UnexpectedOffset`: a leader sent a follower records that do not continue its log.
- `LogDirError`: a log directory cannot be used at start-up (other cluster, in use). The process stops with this text.

Kafka takes a directory offline on every IOException, including a full disk, until a restart. In Klamm, a full disk
only refuses the write. A full disk may get space again (retention, or an operator who deletes files), and nothing is
lost when the write is undone. Until then, the directory's replicas resign (`full_disks.py`). The same holds for file
descriptors: clients that open many connections must not take the disks of a broker offline.
"""

from __future__ import annotations

import errno
import os

from klamm.errors import BrokerError, ErrorCode, KlammError

_NO_SPACE = "no space left on the disk"
_OUT_OF_FILES = "too many open files, at a write to the disk"
_FULL_BEFORE = "no room for an earlier batch on the disk"
_FULL = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EMFILE: _OUT_OF_FILES,
    errno.ENFILE: _OUT_OF_FILES,
}


class LogDirFailure(BrokerError):
    """Raised if a log directory failed and is offline. Its partitions are unavailable until the broker restarts."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    refresh_metadata = True

    def __init__(self, log_dir: str, reason: str) -> None:
        super().__init__(f"log dir {log_dir} is offline: {reason}")
        self.log_dir = log_dir


class DiskFull(BrokerError):
    """Raised if a write found no space, or no file descriptor, and was undone. The log is unchanged."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    refresh_metadata = True

    def __init__(self, log_dir: LogDir, action: str, why: str = _NO_SPACE) -> None:
        super().__init__(f"{why} of {log_dir.path}: {action} was refused and undone")
        self.log_dir = log_dir


class UnexpectedOffset(KlammError):
    """Raised if records for a follower start before its log end offset, or are not in order."""


class LogDirError(KlammError):
    """Raised if a configured log directory cannot be used. The text is one line that names the directory and the
    remedy."""


class LogDir:
    """An entry of `log.dirs`, and its failure if it has failed.

    `failure` changes from None to a text once and stays. The code that meets the error sets it, on the event loop or on
    a disk thread. It needs no lock, because it is a single attribute store."""

    __slots__ = ("failure", "is_full", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None
        self.is_full = False
        """True from a write that found no space until a check finds space. `FullDisks` sets it, on the event loop."""

    def check_online(self) -> None:
        """Raises LogDirFailure if the directory is offline."""
        if self.failure is not None:
            raise LogDirFailure(self.path, self.failure)

    def check_not_full(self, action: str) -> None:
        """Raises DiskFull if the disk is full since an earlier write."""
        if self.is_full:
            raise DiskFull(self, action, _FULL_BEFORE)

    def failed(self, error: OSError, action: str) -> BrokerError:
        """Returns the exception to raise for `error` during `action`. Takes the directory offline, unless its disk is
        full or the process has no free file descriptor."""
        why = _FULL.get(error.errno or 0)
        if why is not None:
            return DiskFull(self, action, why)
        return self.take_offline(error, action)

    def take_offline(self, error: OSError, action: str) -> LogDirFailure:
        """Takes the directory offline because of `error`, even if its disk is full. Returns the exception to raise."""
        if self.failure is None:
            self.failure = f"{action}: {os.strerror(error.errno) if error.errno else error}"
        return LogDirFailure(self.path, self.failure)


def is_disk_full(error: OSError) -> bool:
    """Returns True if the disk has no space for a write, or the process no free file descriptor."""
    return error.errno in _FULL
