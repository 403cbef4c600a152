"""The failures of a log's disk, as exceptions that a caller can distinguish.

- `LogDirFailure`: the disk failed (EIO, EROFS ...). The whole log dir is offline until a restart, and each of
  its partitions answers KAFKA_STORAGE_ERROR.
- `DiskFull`: no space for this write (ENOSPC, EDQUOT). Nothing changed, reads go on, a later write may succeed;
  this request answers KAFKA_STORAGE_ERROR.
- `UnexpectedOffset`: a leader sent a follower records that do not continue its log.
- `LogDirError`: a log dir cannot be used at all at start-up (other cluster, in use). The process stops with
  this one line.

Kafka takes a directory offline on every IOException, a full disk included, and leaves it so until restart.
A full disk is the one failure that heals by itself (retention, or an operator deleting files) and that
loses nothing when the write is undone, so here it refuses the write and keeps the directory. Its replicas resign
meanwhile (`full_disks.py`).
"""

from __future__ import annotations

import errno
import os

from klamm.errors import BrokerError, ErrorCode, KlammError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class LogDirFailure(BrokerError):
    """A log dir failed and is offline: its partitions are gone from this broker until it restarts."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    refresh_metadata = True

    def __init__(self, log_dir: str, reason: str) -> None:
        super().__init__(f"log dir {log_dir} is offline: {reason}")
        self.log_dir = log_dir


class DiskFull(BrokerError):
    """A write found no space and was undone; the log is as it was before."""

    code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    refresh_metadata = True

    def __init__(self, log_dir: LogDir, action: str) -> None:
        super().__init__(f"no space left on the disk of {log_dir.path}: {action} was refused and undone")
        self.log_dir = log_dir


class UnexpectedOffset(KlammError):
    """Records for a follower start before its log end offset, or are not in order."""


class LogDirError(KlammError):
    """A configured log dir cannot be used; the text is one line that names it and says what to do."""


class LogDir:
    """One entry of `log.dirs` and whether it still works.

    `failure` goes from None to a text once and stays. It is set by the code that meets the error, on the event loop or
    on a disk thread: a single attribute store, so no lock."""

    __slots__ = ("failure", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None

    def check_online(self) -> None:
        """Raises LogDirFailure if the dir is offline."""
        if self.failure is not None:
            raise LogDirFailure(self.path, self.failure)

    def failed(self, error: OSError, action: str) -> BrokerError:
        """The exception to raise for `error` met during `action`; any but a full disk takes the dir
        offline."""
        if is_disk_full(error):
            return DiskFull(self, action)
        return self.take_offline(error, action)

    def take_offline(self, error: OSError, action: str) -> LogDirFailure:
        """Whatever `error` is, the dir is offline from now on; the exception says why."""
        if self.failure is None:
            self.failure = f"{action}: {os.strerror(error.errno) if error.errno else error}"
        return LogDirFailure(self.path, self.failure)


def is_disk_full(error: OSError) -> bool:
    return error.errno in _FULL
