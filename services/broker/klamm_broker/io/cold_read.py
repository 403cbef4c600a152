"""Reads slices that are not in the page cache. The read blocks on the disk, so a thread runs it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence

from klamm_broker.replica.fetch_reader import LocatedSlice
from klamm_server.runtime.disk import Disk


class ColdRead:
    """A read that holds a descriptor for each slice, because a segment can be released or deleted while the read waits.

    A thread calls `run`. The event loop calls `give_up` when the read has ended in any way, because an executor drops a
    job whose caller was cancelled before a thread started it. The first of the two calls takes the descriptors and
    closes them."""

    def __init__(self, disk: Disk, slices: Sequence[LocatedSlice]) -> None:
        """Opens the descriptors. If none are left, closes those it has opened and raises OSError."""
        self._disk = disk
        self._slices = slices
        self._unclaimed = deque([self._open()])

    def run(self) -> list[bytes]:
        """Returns the bytes of each slice, or an empty list after `give_up`. Raises LogDirFailure."""
        fds = self._claim()
        try:
            return [self._read(fd, located) for fd, located in zip(fds, self._slices, strict=False)]
        finally:
            self._close(fds)

    def give_up(self) -> None:
        """Closes the descriptors unless `run` has begun."""
        self._close(self._claim())

    def _open(self) -> list[int]:
        with contextlib.ExitStack() as on_failure:
            fds = []
            for located in self._slices:
                fds.append(located.where.segment.files.duplicate_fd())
                on_failure.callback(self._disk.close, fds[-1])
            on_failure.pop_all()
        return fds

    def _claim(self) -> list[int]:
        """Returns the descriptors to the first caller, and an empty list to the second. `pop` is atomic."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return []

    def _read(self, fd: int, located: LocatedSlice) -> bytes:
        try:
            return self._disk.read_all(fd, located.size_bytes, located.where.part.position)
        except OSError as error:
            raise located.log_dir.failed(error, "read") from error

    def _close(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self._disk.close(fd)
