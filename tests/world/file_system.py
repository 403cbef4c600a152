"""A file system of a simulated machine. It has the files as processes see them, and the part that survives a loss of
power.

Writes go to the page cache, which survives the death of a process. A loss of power keeps a prefix of the writes to each
file since its last sync. The next write may be there in part, in whole sectors. Of the creations, renames and removals
in directories that were not synced, a prefix is kept, too.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.world.kernel import World
from tests.world.process import Host

SECTOR_BYTES: Final = 512
TORN_CHANCE: Final = 0.5
"""The chance that a part of the first lost write is there."""
ZEROS_CHANCE: Final = 0.3
"""The chance that a torn file already has its new length, with zeros at the end."""
SLOW_SYNC_FACTOR: Final = 50


class _Write(NamedTuple):
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        content[self.position : self.position + len(self.data)] = self.data


class _Truncation(NamedTuple):
    size_bytes: int

    def apply(self, content: bytearray) -> None:
        if len(content) > self.size_bytes:
            del content[self.size_bytes :]
        else:
            content.extend(bytes(self.size_bytes - len(content)))


class SimFile:
    """A file or a directory, whatever its names."""

    __slots__ = ("content", "durable", "is_directory", "modified_ms", "unsynced")

    def __init__(self, *, is_directory: bool = False) -> None:
        self.is_directory = is_directory
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[_Write | _Truncation] = []
        self.modified_ms = 0

    def change(self, change: _Write | _Truncation) -> None:
        change.apply(self.content)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            change.apply(self.durable)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random) -> int:
        """Drops what was not synced, but for a prefix. Returns the number of lost changes."""
        if not self.unsynced:
            return 0
        kept = rng.randint(0, len(self.unsynced))
        for change in self.unsynced[:kept]:
            change.apply(self.durable)
        lost = self.unsynced[kept:]
        if lost and isinstance(lost[0], _Write) and rng.random() < TORN_CHANCE:
            self._tear(lost[0], rng)
        self.unsynced.clear()
        self.content = bytearray(self.durable)
        return len(lost)

    def _tear(self, write: _Write, rng: random.Random) -> None:
        torn_bytes = rng.randint(0, len(write.data) // SECTOR_BYTES) * SECTOR_BYTES
        if not torn_bytes:
            return
        _Write(write.position, write.data[:torn_bytes]).apply(self.durable)
        if rng.random() < ZEROS_CHANCE:
            _Write(write.position + torn_bytes, bytes(len(write.data) - torn_bytes)).apply(self.durable)


class _Linked(NamedTuple):
    path: str
    file: SimFile

    def apply(self, names: dict[str, SimFile]) -> None:
        names[self.path] = self.file


class _Removed(NamedTuple):
    path: str

    def apply(self, names: dict[str, SimFile]) -> None:
        names.pop(self.path, None)


class _Renamed(NamedTuple):
    path: str
    target: str

    def apply(self, names: dict[str, SimFile]) -> None:
        file = names.pop(self.path, None)
        if file is None:
            return
        if file.is_directory:
            below = f"{self.path}/"
            for path in [path for path in names if path.startswith(below)]:
                names[f"{self.target}/{path.removeprefix(below)}"] = names.pop(path)
        names[self.target] = file


_NameChange = _Linked | _Removed | _Renamed


class OpenFile(NamedTuple):
    """What a descriptor stands for."""

    file: SimFile
    appends: bool
    path: str


class FileSystem:
    """The disk of one machine. `broken` are the calls that fail, with their error numbers and chances."""

    def __init__(self, world: World, host: Host, capacity_bytes: int = 1 << 40) -> None:
        self.world = world
        self.host = host
        self.capacity_bytes = capacity_bytes
        self.names: dict[str, SimFile] = {"/": SimFile(is_directory=True)}
        self.open_files: dict[int, OpenFile] = {}
        self.locks: dict[int, str] = {}
        """The locked files by the descriptors that hold the locks."""
        self.broken: dict[str, tuple[int, float]] = {}
        self.fsync_us = world.timings.fsync_us
        self.slow_sync_chance = 0.0
        self.cold_chance = 0.0
        """The chance that a read finds its data not in memory."""
        self.used_bytes = 0
        self._durable_names = dict(self.names)
        self._unsynced: list[_NameChange] = []
        self._next_descriptor = 1_000_000

    def call(self, name: str, cost_us: int) -> None:
        """Begins a system call. Raises OSError if this call is broken now."""
        process = self.world.current
        assert process is not None, "only a process uses a disk"
        process.spend_us(cost_us)
        if name in self.broken:
            number, chance = self.broken[name]
            if self.world.rng.random() < chance:
                raise OSError(number, os.strerror(number))

    def sync_cost_us(self) -> int:
        cost_us = self.world.draw(self.fsync_us)
        is_slow = self.slow_sync_chance and self.world.rng.random() < self.slow_sync_chance
        return cost_us * SLOW_SYNC_FACTOR if is_slow else cost_us

    def is_cold(self) -> bool:
        return bool(self.cold_chance) and self.world.rng.random() < self.cold_chance

    def descriptor(self, open_file: OpenFile) -> int:
        self._next_descriptor += 1
        self.open_files[self._next_descriptor] = open_file
        return self._next_descriptor

    # Content

    def find(self, path: str) -> SimFile:
        file = self.names.get(path.rstrip("/") or "/")
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return file

    def write(self, file: SimFile, position: int, data: bytes) -> None:
        self.take(max(0, position + len(data) - len(file.content)))
        file.change(_Write(position, data))
        file.modified_ms = self.host.process.wall_ms() if self.host.process else 0

    def truncate(self, file: SimFile, size_bytes: int) -> None:
        self.used_bytes += size_bytes - len(file.content)
        file.change(_Truncation(size_bytes))

    def take(self, size_bytes: int) -> None:
        """Takes space. Raises OSError(ENOSPC)."""
        if self.used_bytes + size_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.used_bytes += size_bytes

    # Names

    def create(self, path: str, *, is_directory: bool = False) -> SimFile:
        if not self.find(parent_of(path)).is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        file = SimFile(is_directory=is_directory)
        self._change_names(_Linked(path, file))
        return file

    def remove(self, path: str) -> None:
        self.used_bytes -= len(self.names[path].content)
        self._change_names(_Removed(path))

    def rename(self, path: str, target: str) -> None:
        self.find(path)
        self.find(parent_of(target))
        if path == target:
            return
        replaced = self.names.get(target)
        if replaced is not None:
            self.used_bytes -= len(replaced.content)
        self._change_names(_Renamed(path, target))

    def sync_directory(self, path: str) -> None:
        """Makes the changes of the names in a directory durable, and all earlier changes, as a journal does."""
        last = 0
        for number, change in enumerate(self._unsynced, 1):
            paths = (change.path, change.target) if isinstance(change, _Renamed) else (change.path,)
            if any(parent_of(changed) == path for changed in paths):
                last = number
        for change in self._unsynced[:last]:
            change.apply(self._durable_names)
        del self._unsynced[:last]

    def _change_names(self, change: _NameChange) -> None:
        change.apply(self.names)
        self._unsynced.append(change)

    # Deaths, losses of power and damage

    def on_process_died(self) -> None:
        """Closes the descriptors of the process, and so releases its locks."""
        self.open_files.clear()
        self.locks.clear()

    def lose_power(self, rng: random.Random) -> int:
        """Forgets what was not synced, but for prefixes. Returns the number of lost changes."""
        self.on_process_died()
        kept = rng.randint(0, len(self._unsynced))
        for change in self._unsynced[:kept]:
            change.apply(self._durable_names)
        lost = len(self._unsynced) - kept
        self._unsynced.clear()
        self.names = dict(self._durable_names)
        lost += sum(file.lose_power(rng) for file in dict.fromkeys(self.names.values()))
        self.used_bytes = sum(len(file.content) for file in dict.fromkeys(self.names.values()))
        return lost

    def flip_bit(self, rng: random.Random, paths: Iterable[str]) -> str:
        """Damages one bit of one file of those, on the disk and in the page cache. Returns where."""
        path = rng.choice(sorted(paths))
        file = self.names[path]
        position = rng.randrange(len(file.content))
        file.content[position] ^= 1 << rng.randrange(8)
        if position < len(file.durable):
            file.durable[position] = file.content[position]
        return f"{path}@{position}"


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
