"""Brings the bytes of a fetch: on the event loop what is in the page cache, on a thread what is not.

Nearly all fetches read what was just written, and for those a thread costs more than the read. So the loop asks
the kernel for the bytes only if it has them (preadv with RWF_NOWAIT). When it has not, the whole fetch goes to a
thread, with descriptors of its own, and nobody else waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from klamm_broker.log.disk import Disk
from klamm_broker.replica.fetch_reader import LocatedSlice

Buffer = bytes | memoryview

SCRATCH_BYTES = 2 * 1024**2
"""Fetches up to this size are read into memory that is there already: fresh pages cost more than the copy."""

log = logging.getLogger(__name__)


class RecordReader:
    """Reads slices that were just located. `close` after the last read."""

    def __init__(self, disk: Disk, *, thread_count: int) -> None:
        self._disk = disk
        self._threads = ThreadPoolExecutor(thread_count, thread_name_prefix="cold-reads")
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._can_probe = hasattr(os, "RWF_NOWAIT")

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    async def read(self, slices: Sequence[LocatedSlice]) -> Sequence[Buffer]:
        """The bytes of each slice; valid until the caller lets others run. Raises LogDirFailure."""
        if not slices:
            return ()
        resident = self._read_resident(slices)
        return await self._read_cold(slices) if resident is None else resident

    def _read_resident(self, slices: Sequence[LocatedSlice]) -> list[Buffer] | None:
        """None as soon as one of them is not all in memory."""
        if not self._can_probe:
            return [self._read_here(one) for one in slices]
        size_bytes = sum(one.size_bytes for one in slices)
        free = self._scratch if size_bytes <= SCRATCH_BYTES else memoryview(bytearray(size_bytes))
        parts: list[Buffer] = []
        for one in slices:
            part, free = free[: one.size_bytes], free[one.size_bytes :]
            if not self._probe(one, part):
                return None
            parts.append(part)
        return parts

    def _probe(self, one: LocatedSlice, into: memoryview) -> bool:
        fd = one.where.segment.duplicate_fd()
        try:
            read_bytes = self._disk.preadv(fd, [into], one.where.part.position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                log.warning("log_dir=%s: the file system cannot tell what is in memory", one.log_dir.path)
                self._can_probe = False
                return False
            raise one.log_dir.failed(error, "read") from error
        finally:
            self._disk.close(fd)
        return read_bytes == len(into)

    def _read_here(self, one: LocatedSlice) -> bytes:
        try:
            return one.where.segment.read(one.where.part)
        except OSError as error:
            raise one.log_dir.failed(error, "read") from error

    async def _read_cold(self, slices: Sequence[LocatedSlice]) -> list[bytes]:
        # A segment may be released or deleted while the thread reads; a descriptor of its own keeps the file.
        with contextlib.ExitStack() as opened:
            fds = []
            for one in slices:
                fds.append(one.where.segment.duplicate_fd())
                opened.callback(self._disk.close, fds[-1])
            opened.pop_all()
        jobs = list(zip(fds, slices, strict=True))
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read_all, jobs)

    def _read_all(self, jobs: Sequence[tuple[int, LocatedSlice]]) -> list[bytes]:
        try:
            return [self._read_at(fd, one) for fd, one in jobs]
        finally:
            for fd, _ in jobs:
                self._disk.close(fd)

    def _read_at(self, fd: int, one: LocatedSlice) -> bytes:
        try:
            return self._disk.read_all(fd, one.size_bytes, one.where.part.position)
        except OSError as error:
            raise one.log_dir.failed(error, "read") from error
