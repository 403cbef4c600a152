"""The disk that a simulated process uses: `klamm_server.runtime.disk.Disk` over a `FileSystem`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from klamm_server.runtime.disk import Buffer, Disk, DiskSpace
from tests.world.file_system import FileSystem, OpenFile


class SimDisk(Disk):
    """The calls of a disk, in virtual time."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files

    # By descriptor. The real disk has functions of `os` in these places.

    def open(self, path: str, flags: int) -> int:
        files = self.files
        files.call("open", 5)
        file = files.names.get(path)
        if file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            file = files.create(path)
            file.modified_ms = self._now_ms()
        elif flags & os.O_TRUNC and file.content:
            files.truncate(file, 0)
        return files.descriptor(OpenFile(file, bool(flags & os.O_APPEND), path))

    def close(self, fd: int) -> None:
        self.files.call("close", 1)
        self._open_file(fd)
        del self.files.open_files[fd]
        self.files.locks.pop(fd, None)

    def dup(self, fd: int, /) -> int:
        self.files.call("dup", 1)
        return self.files.descriptor(self._open_file(fd))

    def lock(self, fd: int) -> None:
        path = self._open_file(fd).path
        if path in self.files.locks.values():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.files.locks[fd] = path

    def writev(self, fd: int, buffers: Sequence[Buffer], /) -> int:  # type: ignore[override]
        self.files.call("write", 5)
        file, appends, _ = self._open_file(fd)
        data = b"".join(bytes(buffer) for buffer in buffers)
        self.files.write(file, len(file.content) if appends else 0, data)
        return len(data)

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:  # type: ignore[override]
        self.files.call("write", 5)
        self.files.write(self._open_file(fd).file, position, bytes(data))
        return len(data)

    def pread(self, fd: int, size: int, position: int, /) -> bytes:
        self.files.call("read", 3)
        return bytes(self._open_file(fd).file.content[position : position + size])

    def preadv(self, fd: int, buffers: Sequence[Buffer], position: int, flags: int = 0, /) -> int:  # type: ignore[override]
        self.files.call("read", 3)
        content = self._open_file(fd).file.content
        if flags and self.files.is_cold():
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        total = 0
        for buffer in buffers:
            data = content[position + total : position + total + len(buffer)]
            memoryview(buffer)[: len(data)] = data
            total += len(data)
        return total

    def ftruncate(self, fd: int, size: int, /) -> None:
        self.files.call("truncate", 5)
        self.files.truncate(self._open_file(fd).file, size)

    def fdatasync(self, fd: int, /) -> None:  # type: ignore[override]
        self.files.call("sync", self.files.sync_cost_us())
        self._open_file(fd).file.sync()

    def fadvise(self, fd: int, position: int, size_bytes: int, advice: int) -> None:
        self._open_file(fd)

    # By name

    def fsync_directory(self, path: str) -> None:
        self.files.call("sync", self.files.sync_cost_us())
        self.files.find(path)
        self.files.sync_directory(path)

    def replace(self, source: str, target: str, /) -> None:  # type: ignore[override]
        self.files.call("rename", 10)
        self.files.rename(source, target)

    def size(self, path: str) -> int:
        self.files.call("stat", 2)
        return len(self.files.find(path).content)

    def modified_ms(self, path: str) -> int:
        self.files.call("stat", 2)
        return self.files.find(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.files.find(path).modified_ms = modified_ms

    def exists(self, path: str) -> bool:
        self.files.call("stat", 2)
        return path.rstrip("/") in self.files.names

    def make_directory(self, path: str) -> None:
        self.files.call("mkdir", 10)
        made = ""
        for name in path.strip("/").split("/"):
            made = f"{made}/{name}"
            if made not in self.files.names:
                self.files.create(made, is_directory=True)
            elif not self.files.names[made].is_directory:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), made)

    def list_files(self, path: str) -> list[str]:
        return self._children(path, are_directories=False)

    def list_directories(self, path: str) -> list[str]:
        return self._children(path, are_directories=True)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.call("unlink", 10)
            if path in self.files.names:
                self.files.remove(path)

    def remove_tree(self, path: str) -> None:
        self.files.call("unlink", 10)
        below = f"{path}/"
        # The longest names first, so that a directory goes after its content.
        for name in sorted((name for name in self.files.names if name == path or name.startswith(below)), reverse=True):
            self.files.remove(name)

    def space(self, path: str) -> DiskSpace:
        self.files.call("stat", 2)
        return DiskSpace(self.files.capacity_bytes, max(0, self.files.capacity_bytes - self.files.used_bytes))

    def allocate(self, directory: str, size_bytes: int) -> None:
        self.files.call("write", 50)
        self.files.find(directory)
        self.files.take(size_bytes)
        self.files.used_bytes -= size_bytes

    def read_file(self, path: str) -> bytes:
        self.files.call("read", 10)
        return bytes(self.files.find(path).content)

    def _children(self, path: str, *, are_directories: bool) -> list[str]:
        self.files.call("list", 10)
        self.files.find(path)
        below = f"{path.rstrip('/')}/"
        return sorted(
            name.removeprefix(below)
            for name, file in self.files.names.items()
            if name.startswith(below) and "/" not in name.removeprefix(below) and file.is_directory is are_directories
        )

    def _open_file(self, fd: int) -> OpenFile:
        try:
            return self.files.open_files[fd]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _now_ms(self) -> int:
        process = self.files.world.current
        assert process is not None, "only a process uses a disk"
        return process.wall_ms()
