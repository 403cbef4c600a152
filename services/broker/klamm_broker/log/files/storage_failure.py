"""The failures of a log's disk, as exceptions that a caller can distinguish.

- `LogDirFailure`: the disk failed (EIO, EROFS ...). The whole log directory is offline until a restart, and each of
  its partitions answers KAFKA_STORAGE_ERROR.
- `DiskFull`: no space for this write (ENOSPC, EDQUOT). Nothing changed, reads still work, and a later write may
  succeed. This request answers KAFKA_STORAGE_ERROR.
- `UnexpectedOffset`: a leader sent a follower records that do not continue its log.
- `LogDirError`: a log directory cannot be used at start-up (other cluster, in use). The process stops with this text.

Kafka takes a directory offline on every IOException, including a full disk, until a restart. In Klamm, a full disk
only refuses the write. A full disk may get space again (retention, or an operator who deletes files), and nothing is
lost when the write is undone. Until then, the directory's replicas resign (`full_disks.py`).
"""

from __future__ import annotations

import errno
import os

from klamm.errors import BrokerError, ErrorCode, KlammError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class LogDirFailure(BrokerError):
    """Raised if a log directory failed and is offline. Its partitions are unavailable until the broker restarts."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    refresh_metadata = True

    def __init__(self, log_dir: str, reason: str) -> None:
        super().__init__(f"log dir {log_dir} is offline: {reason}")
        self.log_dir = log_dir


class DiskFull(BrokerError):
    """Raised if a write found no space and was undone. The log is unchanged."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    refresh_metadata = True

    def __init__(self, log_dir: LogDir, action: str) -> None:
        super().__init__(f"no space left on the disk of {log_dir.path}: {action} was refused and undone")
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

    __slots__ = ("failure", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None

    def check_online(self) -> None:
        """Raises LogDirFailure if the directory is offline."""
        if self.failure is not None:
            raise LogDirFailure(self.path, self.failure)

    def failed(self, error: OSError, action: str) -> BrokerError:
        """Returns the exception to raise for `error` during `action`. Takes the directory offline, unless its disk is
        full."""
        if is_disk_full(error):
            return DiskFull(self, action)
        return self.take_offline(error, action)

    def take_offline(self, error: OSError, action: str) -> LogDirFailure:
        """Takes the directory offline because of `error`, even if its disk is full. Returns the exception to raise."""
        if self.failure is None:
            self.failure = f"{action}: {os.strerror(error.errno) if error.errno else error}"
        return LogDirFailure(self.path, self.failure)


def is_disk_full(error: OSError) -> bool:
    return error.errno in _FULL
