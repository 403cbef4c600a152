"""Record bytes that the kernel sends from the page cache to the socket, without a copy in this process.

A file holds its own descriptor, because the segment may be released or deleted during the send. The segment may also be
truncated (a follower's log, after an unclean election). Then the broker cannot complete the answer, because it has
already sent the answer's length.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from klamm.errors import KlammError
from klamm_broker.log.files.storage_failure import LogDir
from klamm_server.runtime.disk import Disk


class RecordFile:
    """A range of `size_bytes` bytes from `position` in a file. The object owns the descriptor until `close`."""

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
        """Sends at most `max_bytes` bytes after the first `sent_bytes`. Returns the number of bytes that the socket
        accepted.

        Raises BlockingIOError if the socket is full, LogDirFailure, KlammError if the file was truncated, or another
        OSError of the socket."""
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
        """Fills `into` with the bytes after the first `read_bytes`, as far as the file has them. Returns the number of
        bytes read. Raises LogDirFailure, or KlammError if the file was truncated."""
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
        """Closes the descriptor. Must be called exactly once."""
        self._disk.close(self._fd)
        self._on_close()


def close_files(parts: Iterable[object]) -> None:
    """Closes the `parts` that are files, after they were sent or the answer was dropped."""
    for part in parts:
        if isinstance(part, RecordFile):
            part.close()
