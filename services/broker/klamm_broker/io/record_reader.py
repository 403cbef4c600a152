"""Reads the bytes of a fetch: on the event loop if they are in the page cache, otherwise on a thread.

Nearly all fetches read recently written records, and for these a thread costs more than the read. So the event loop
asks the kernel for the bytes only if they are in memory (preadv with RWF_NOWAIT). Otherwise a thread reads the whole
fetch with its own descriptors, so that other requests do not wait for the disk.

Long reads for Kafka clients are lent as files for sendfile (`RecordFile`), not read here. Sendfile would block on the
disk if a page is missing, so the reader first probes one byte of every `PROBE_STRIDE_BYTES`. Readahead loads
neighbouring pages together, and memory pressure drops them together. A missing page between two probes costs only one
short read from the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Sequence

from klamm.process import PROCESS
from klamm_broker.io.cold_read import ColdRead
from klamm_broker.io.record_file import RecordFile, close_files
from klamm_broker.replica.fetch_reader import LocatedSlice
from klamm_server.runtime.disk import Disk

Buffer = bytes | memoryview
Copy = bytes | bytearray
"""A copy of records, which stays valid after the next fetch."""

SCRATCH_BYTES = 2 * 1024**2
"""Fetches up to this size are read into one shared buffer. Fresh memory pages would cost more than the copy."""
COPIED_BYTES_MAX = 128 * 1024
"""A whole fetch of a Kafka client up to this size is copied: copies are cheaper than files."""
FILE_BYTES_MIN = 32 * 1024
"""A slice below this size is copied even in a longer fetch, because a file for it would cost more."""
LENT_FILES_MAX = 4096
"""The number of descriptors that slow clients may hold. Above it, records are copied, within
`queued.max.request.bytes`."""
PROBE_STRIDE_BYTES = 128 * 1024

log = logging.getLogger(__name__)


class RecordReader:
    """Reads slices of segments. The slices must have been located in the same turn of the event loop. The owner calls
    `close` after the last read."""

    def __init__(self, disk: Disk, *, thread_count: int) -> None:
        self._disk = disk
        self._threads = PROCESS.get().make_executor(thread_count, "cold-reads")
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._can_probe = hasattr(os, "RWF_NOWAIT")
        self._can_lend = self._can_probe and hasattr(os, "sendfile")
        self._lent_files = 0

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    async def read(self, slices: Sequence[LocatedSlice]) -> Sequence[Buffer]:
        """Returns the bytes of each slice. They are valid until the caller next awaits. Raises LogDirFailure."""
        if not slices:
            return ()
        resident = self._read_resident(slices)
        return await self._read_cold(slices) if resident is None else resident

    def copy_resident(self, slices: Sequence[LocatedSlice]) -> Sequence[Copy] | None:
        """Returns copies of the slices. Returns None if a page is not in memory, or if a slice is so long that
        `lend` is cheaper. Raises LogDirFailure."""
        if self._can_lend and _has_files(slices):
            return None
        if not self._can_probe:
            return [self._read_here(located) for located in slices]
        copies = []
        for located in slices:
            copy = self._copy(located)
            if copy is None:
                return None
            copies.append(copy)
        return copies

    async def lend(self, slices: Sequence[LocatedSlice]) -> list[Copy | RecordFile]:
        """Returns the slices as copies or as files, valid until they have been sent. The caller must close the files.
        Raises LogDirFailure."""
        may_lend = self._can_lend and self._lent_files + len(slices) <= LENT_FILES_MAX
        if may_lend and _has_files(slices):
            lent = self._lend_resident(slices)
            if lent is not None:
                return lent
        # Copy, because the next fetch overwrites the scratch memory.
        return [bytes(part) for part in await self.read(slices)]

    def _lend_resident(self, slices: Sequence[LocatedSlice]) -> list[Copy | RecordFile] | None:
        """Lends the slices, or returns None if a part of one is not in memory."""
        lent: list[Copy | RecordFile] = []
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(close_files, lent)
            for located in slices:
                part = self._file(located) if located.size_bytes >= FILE_BYTES_MIN else self._copy(located)
                if part is None:
                    return None
                lent.append(part)
            on_failure.pop_all()
        return lent

    def _file(self, located: LocatedSlice) -> RecordFile | None:
        part = located.where.part
        end = part.position + part.size_bytes
        fd = located.where.segment.files.duplicate_fd()
        self._lent_files += 1
        file = RecordFile(self._disk, located.log_dir, fd, part.position, part.size_bytes, on_close=self._on_closed)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(file.close)
            for position in (*range(part.position, end, PROBE_STRIDE_BYTES), end - 1):
                if not self._read_if_resident(located, fd, self._scratch[:1], position):
                    return None
            on_failure.pop_all()
        return file

    def _on_closed(self) -> None:
        self._lent_files -= 1

    def _copy(self, located: LocatedSlice) -> bytearray | None:
        copy = bytearray(located.size_bytes)
        return copy if self._probe(located, memoryview(copy)) else None

    def _read_resident(self, slices: Sequence[LocatedSlice]) -> list[Buffer] | None:
        """Reads the slices, or returns None if a part of one is not in memory."""
        if not self._can_probe:
            return [self._read_here(located) for located in slices]
        size_bytes = sum(located.size_bytes for located in slices)
        free = self._scratch if size_bytes <= SCRATCH_BYTES else memoryview(bytearray(size_bytes))
        parts: list[Buffer] = []
        for located in slices:
            part, free = free[: located.size_bytes], free[located.size_bytes :]
            if not self._probe(located, part):
                return None
            parts.append(part)
        return parts

    def _probe(self, located: LocatedSlice, into: memoryview) -> bool:
        segment = located.where.segment
        if segment.files.is_open:
            return self._read_if_resident(located, segment.files.fd, into, located.where.part.position)
        # The fetch has more segments than stay open.
        fd = segment.files.duplicate_fd()
        try:
            return self._read_if_resident(located, fd, into, located.where.part.position)
        finally:
            self._disk.close(fd)

    def _read_if_resident(self, located: LocatedSlice, fd: int, into: memoryview, position: int) -> bool:
        """Fills `into` if all requested bytes are in memory. Returns True if it did."""
        try:
            return self._disk.preadv(fd, [into], position, os.RWF_NOWAIT) == len(into)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                log.warning("the file system does not report which data is in memory, log_dir=%s", located.log_dir.path)
                self._can_probe = self._can_lend = False
                return False
            raise located.log_dir.failed(error, "read") from error

    def _read_here(self, located: LocatedSlice) -> bytes:
        try:
            return located.where.segment.files.read(located.where.part)
        except OSError as error:
            raise located.log_dir.failed(error, "read") from error

    async def _read_cold(self, slices: Sequence[LocatedSlice]) -> list[bytes]:
        read = ColdRead(self._disk, slices)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, read.run)
        finally:
            read.give_up()


def _has_files(slices: Sequence[LocatedSlice]) -> bool:
    """Returns True if the fetch is long enough to send, and a slice is long enough to lend as a file."""
    return sum(located.size_bytes for located in slices) > COPIED_BYTES_MAX and any(
        located.size_bytes >= FILE_BYTES_MIN for located in slices
    )
