"""Record bytes that the kernel sends from the page cache to the socket, without a copy in this process.

A file holds its own descriptor, because the segment may be released or deleted meanwhile. The segment may also be
truncated (a follower's log, after an unclean election). Then the broker cannot complete the answer, because it has
already sent the answer's length.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from klamm.errors import KlammError
from klamm_broker.log.files.disk import Disk
from klamm_broker.log.files.storage_failure import LogDir


class RecordFile:
    """`size_bytes` from `position` of a descriptor that is this object's until `close`."""

    __slots__ = ("_disk", "_fd", "_log_dir", "_on_close", "_position", "_size_bytes")

    def __init__(
        self, disk: Disk, log_dir: LogDir, fd: int, position: int, size_bytes: int, *, on_close: Callable[[], None]
    ) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._fd = fd
        self._position = position
        self._size_bytes = size_bytes
        self._on_close = on_close

    def __len__(self) -> int:
        return self._size_bytes

    def send(self, socket_fd: int, sent_bytes: int, max_bytes: int) -> int:
        """Sends at most `max_bytes` of what follows the first `sent_bytes`; returns how many the socket took.

        Raises BlockingIOError when it takes none now, LogDirFailure, KlammError where the file was cut, or another
        OSError of the socket's."""
        count = min(max_bytes, self._size_bytes - sent_bytes)
        try:
            taken = os.sendfile(socket_fd, self._fd, self._position + sent_bytes, count)
        except OSError as error:
            if error.errno == errno.EIO:
                raise self._log_dir.failed(error, "read") from error
            raise
        if not taken:
            raise KlammError(
                f"the log became shorter during a fetch: {self._size_bytes - sent_bytes} bytes are missing"
            )
        return taken

    def read(self, into: memoryview, read_bytes: int) -> int:
        """Fills `into` with what follows the first `read_bytes`, as far as there is any; returns how many bytes those
        are. Raises LogDirFailure, or KlammError where the file was cut."""
        room = into[: self._size_bytes - read_bytes]
        try:
            count: int = self._disk.preadv(self._fd, [room], self._position + read_bytes)
        except OSError as error:
            raise self._log_dir.failed(error, "read") from error
        if not count:
            raise KlammError(
                f"the log became shorter during a fetch: {self._size_bytes - read_bytes} bytes are missing"
            )
        return count

    def close(self) -> None:
        """Once."""
        self._disk.close(self._fd)
        self._on_close()


def close_files(parts: Iterable[object]) -> None:
    """Closes the `parts` that are files: they were sent, or never will be."""
    for part in parts:
        if isinstance(part, RecordFile):
            part.close()
