"""The interface to the disk for logs and data directories, a thin layer over `os`. Tests replace it to make calls fail.

Every call raises OSError as the operating system does, and the caller decides about the consequences
(`storage_failure.py`). File descriptors are plain ints. The layer does not buffer.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class DiskSpace(NamedTuple):
    """The space of the file system that has a path, in bytes."""

    total_bytes: int
    usable_bytes: int
    """The bytes that an unprivileged process may still write."""


class Disk:
    """The real disk. Paths are str, because conversions would cost more than the system call on the hot path."""

    writev = staticmethod(os.writev)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    pwrite = staticmethod(os.pwrite)
    ftruncate = staticmethod(os.ftruncate)
    fdatasync = staticmethod(os.fdatasync)
    close = staticmethod(os.close)
    replace = staticmethod(os.replace)
    dup = staticmethod(os.dup)

    def fadvise(self, fd: int, position: int, size_bytes: int, advice: int) -> None:
        """Calls posix_fadvise, which macOS lacks. Size 0 means up to the end of the file."""
        os.posix_fadvise(fd, position, size_bytes, advice)

    def open(self, path: str, flags: int) -> int:
        """Opens a file close-on-exec. A created file gets mode 0644 minus the umask."""
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def lock(self, fd: int) -> None:
        """Locks an open file until it is closed or the process ends. Raises BlockingIOError if another process has
        locked it."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def fsync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        """Creates the directory and its parents. An existing directory is no error."""
        os.makedirs(path, exist_ok=True)

    def list_files(self, path: str) -> list[str]:
        """Returns the names of the regular files in a directory, sorted."""
        return sorted(entry.name for entry in os.scandir(path) if entry.is_file())

    def list_directories(self, path: str) -> list[str]:
        """Returns the names of the directories in a directory, sorted."""
        return sorted(entry.name for entry in os.scandir(path) if entry.is_dir())

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files. A missing file is no error."""
        for path in paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue

    def remove_tree(self, path: str) -> None:
        """Removes a directory and its content. A missing directory is no error."""
        if os.path.exists(path):
            shutil.rmtree(path)

    def space(self, path: str) -> DiskSpace:
        stats = os.statvfs(path)
        return DiskSpace(stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize)

    def allocate(self, directory: str, size_bytes: int) -> None:
        """Allocates `size_bytes` on the file system of `directory` and frees them. Raises OSError if that fails, for
        example because of a quota, which `space` does not see."""
        path = os.path.join(directory, ALLOCATION_FILE)
        fd = self.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            os.unlink(path)
            os.posix_fallocate(fd, 0, size_bytes)
        finally:
            self.close(fd)

    def read_file(self, path: str) -> bytes:
        fd = self.open(path, os.O_RDONLY)
        try:
            return self.read_all(fd, os.fstat(fd).st_size)
        finally:
            self.close(fd)

    def read_all(self, fd: int, size_bytes: int, position: int = 0) -> bytes:
        """Returns `size_bytes` bytes from `position`, or fewer at the end of the file."""
        data = self.pread(fd, size_bytes, position)
        while len(data) < size_bytes:
            more = self.pread(fd, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite_all(self, fd: int, data: Buffer, position: int) -> None:
        """Writes all of `data` at `position`, with more calls if the kernel writes less than requested."""
        rest = memoryview(data)
        while rest:
            written = self.pwrite(fd, rest, position)
            rest = rest[written:]
            position += written

    def writev_all(self, fd: int, buffers: Sequence[Buffer], size_bytes: int) -> None:
        """Appends all buffers (together `size_bytes`) at the end of a file that was opened with O_APPEND.

        Usually this takes one writev. More are needed for more than IOV_MAX buffers or after a short write."""
        if len(buffers) <= IOV_MAX:
            written = self.writev(fd, buffers)
            if written == size_bytes:
                return
        else:
            written = 0
        self._finish_writev(fd, buffers, written, size_bytes)

    def _finish_writev(self, fd: int, buffers: Sequence[Buffer], written: int, size_bytes: int) -> None:
        pending = [memoryview(buffer) for buffer in buffers]
        total = skip = written
        while total < size_bytes:
            while pending and skip >= len(pending[0]):
                skip -= len(pending.pop(0))
            pending[0] = pending[0][skip:]
            skip = self.writev(fd, pending[:IOV_MAX])
            total += skip

    def sync_path(self, path: str) -> None:
        """Calls fdatasync for a file by name. Raises FileNotFoundError if the file is gone."""
        fd = self.open(path, os.O_RDONLY)
        try:
            self.fdatasync(fd)
        finally:
            self.close(fd)

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replaces a file so that a crash at any moment leaves either the old or the new content."""
        temporary = path + ".tmp"
        fd = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self.pwrite_all(fd, data, 0)
            self.fdatasync(fd)
        finally:
            self.close(fd)
        self.replace(temporary, path)
        self.fsync_directory(os.path.dirname(path))


ALLOCATION_FILE = ".klamm-space"
"""The name of the temporary file of `allocate`."""

IOV_MAX = os.sysconf("SC_IOV_MAX")
"""The most buffers of one writev (1024 on Linux)."""
