"""Tests that the disk of a simulated machine behaves as the real one, by random calls to both."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm_server.runtime.disk import Disk
from tests.world.disk import SimDisk
from tests.world.file_system import FileSystem
from tests.world.kernel import World
from tests.world.network import Network

NAMES = ("a", "b", "d/a", "d/b", "d/e/a")
DIRECTORIES = ("d", "d/e", "f")
CALLS = 400


class Both:
    """The same calls on a real directory and on a simulated one, whose results must be equal."""

    def __init__(self, rng: random.Random, directory: Path, simulated: SimDisk) -> None:
        self._rng = rng
        self._real, self._simulated = Disk(), simulated
        self._roots = (f"{directory}/", "/data/")
        self._open: list[tuple[int, int]] = []
        """Pairs of descriptors of the same file."""
        self._appending: set[tuple[int, int]] = set()
        """Those of files to which only `writev` writes, at the end. Other files are written by `pwrite`."""

    def step(self) -> None:
        calls: tuple[Callable[[], None], ...] = (self._open_file, self._write, self._read, self._use, self._names)
        self._rng.choices(calls, (3, 4, 4, 3, 4))[0]()

    def close(self) -> None:
        for descriptors in self._open:
            self._both(lambda disk, fd: disk.close(fd), *descriptors)

    def _both(self, call: Callable[[Any, Any], Any], real: Any, simulated: Any) -> tuple[Any, Any]:
        """Returns both results, which are equal, or both None after equal errors."""
        outcomes = [_outcome(call, self._real, real), _outcome(call, self._simulated, simulated)]
        (result, error), (simulated_result, simulated_error) = outcomes
        assert error == simulated_error, (error, simulated_error)
        return result, simulated_result

    def _equal(self, call: Callable[[Any, Any], Any], real: Any, simulated: Any) -> None:
        result, simulated_result = self._both(call, real, simulated)
        assert result == simulated_result, (result, simulated_result)

    def _paths(self, name: str) -> tuple[str, str]:
        return self._roots[0] + name, self._roots[1] + name

    def _open_file(self) -> None:
        flags = self._rng.choice((os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_APPEND))
        flags |= self._rng.choice((0, 0, os.O_TRUNC))
        opened = self._both(lambda disk, path: disk.open(path, flags), *self._paths(self._rng.choice(NAMES)))
        if opened[0] is not None:
            self._open.append(opened)
            if flags & os.O_APPEND:
                self._appending.add(opened)

    def _write(self) -> None:
        if not self._open:
            return
        data, position = self._rng.randbytes(self._rng.randrange(2_000)), self._rng.randrange(5_000)
        descriptors = self._rng.choice(self._open)
        if descriptors in self._appending:
            self._equal(lambda disk, fd: disk.writev(fd, [data, b"-", data]), *descriptors)
        else:
            self._equal(lambda disk, fd: disk.pwrite(fd, data, position), *descriptors)

    def _read(self) -> None:
        if not self._open:
            return
        size, position = self._rng.randrange(3_000), self._rng.randrange(6_000)

        def read_into(disk: Disk, fd: int) -> tuple[int, bytes]:
            buffers = [bytearray(100), bytearray(size)]
            return disk.preadv(fd, buffers, position), b"".join(buffers)

        descriptors = self._rng.choice(self._open)
        self._equal(read_into, *descriptors)
        self._equal(lambda disk, fd: disk.pread(fd, size, position), *descriptors)

    def _use(self) -> None:
        if not self._open:
            return
        descriptors, size = self._rng.choice(self._open), self._rng.randrange(6_000)
        match self._rng.randrange(4):
            case 0:
                self._equal(lambda disk, fd: disk.ftruncate(fd, size), *descriptors)
            case 1:
                self._equal(lambda disk, fd: disk.fdatasync(fd), *descriptors)
            case 2:
                copied = self._both(lambda disk, fd: disk.dup(fd), *descriptors)
                self._open.append(copied)
                if descriptors in self._appending:
                    self._appending.add(copied)
            case _:
                self._open.remove(descriptors)
                self._appending.discard(descriptors)
                self._equal(lambda disk, fd: disk.close(fd), *descriptors)

    def _names(self) -> None:
        name, target = self._rng.choice(NAMES), self._rng.choice(NAMES)
        paths, directory = self._paths(name), self._paths(self._rng.choice(DIRECTORIES))
        prefixes = iter(self._roots)
        calls: tuple[Callable[[], None], ...] = (
            lambda: self._equal(lambda disk, path: disk.size(path), *paths),
            lambda: self._equal(lambda disk, path: disk.exists(path), *paths),
            lambda: self._equal(lambda disk, path: disk.read_file(path), *paths),
            lambda: self._equal(lambda disk, path: disk.remove([path]), *paths),
            lambda: self._equal(lambda disk, path: disk.write_atomically(path, b"new"), *paths),
            lambda: self._equal(lambda disk, path: disk.replace(path, next(prefixes) + target), *paths),
            lambda: self._equal(lambda disk, path: disk.make_directory(path), *directory),
            lambda: self._equal(lambda disk, path: disk.list_files(path), *directory),
            lambda: self._equal(lambda disk, path: disk.list_directories(path), *directory),
            lambda: self._equal(lambda disk, path: disk.fsync_directory(path), *directory),
        )
        self._rng.choice(calls)()


def _outcome(call: Callable[[Any, Any], Any], disk: Disk, argument: Any) -> tuple[Any, int | None]:
    try:
        return call(disk, argument), None
    except OSError as error:
        return None, error.errno


@contextmanager
def simulated_disk() -> Iterator[SimDisk]:
    """Yields the disk of a machine whose process runs the block."""
    world = World(1)
    host = Network(world).host("machine")
    process = host.start(lambda _: None)
    with process.running(None):
        yield SimDisk(FileSystem(world, host))


@pytest.mark.parametrize("seed", range(20))
def test_random_calls_have_the_results_of_the_real_disk(seed: int, tmp_path: Path) -> None:
    with simulated_disk() as simulated:
        simulated.make_directory("/data")
        both = Both(random.Random(seed), tmp_path, simulated)
        for _ in range(CALLS):
            both.step()
        both.close()
        assert not simulated.files.open_files


def test_a_locked_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    with simulated_disk() as simulated:
        simulated.make_directory("/data")
        for disk, path in ((Disk(), f"{tmp_path}/lock"), (simulated, "/data/lock")):
            first, second = (disk.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
            disk.lock(first)
            with pytest.raises(BlockingIOError):
                disk.lock(second)
            disk.close(first)
            disk.lock(second)
            disk.close(second)


def test_a_directory_tree_is_removed_as_by_the_real_disk(tmp_path: Path) -> None:
    with simulated_disk() as simulated:
        for disk, root in ((Disk(), str(tmp_path)), (simulated, "/data")):
            disk.make_directory(f"{root}/d/e")
            disk.write_atomically(f"{root}/d/e/a", b"x")
            disk.remove_tree(f"{root}/d")
            assert not disk.exists(f"{root}/d/e/a")
            assert disk.list_directories(root) == []
            disk.remove_tree(f"{root}/d")


def test_a_loss_of_power_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    seen = set()
    for seed in range(50):
        with simulated_disk() as disk:
            disk.make_directory("/data")
            disk.fsync_directory("/")
            fd = disk.open("/data/log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
            disk.writev(fd, [b"synced"])
            disk.fdatasync(fd)
            disk.fsync_directory("/data")
            for _ in range(3):
                disk.writev(fd, [b"more"])
            disk.files.lose_power(random.Random(seed))
            content = disk.read_file("/data/log")
            assert b"syncedmoremoremore".startswith(content)
            assert content.startswith(b"synced")
            assert disk.files.used_bytes == len(content)
            seen.add(len(content))
    assert seen == {6, 10, 14, 18}


def test_a_file_whose_directory_was_not_synced_may_be_gone_after_a_loss_of_power() -> None:
    survived = set()
    for seed in range(20):
        with simulated_disk() as disk:
            disk.make_directory("/data")
            disk.fsync_directory("/")
            disk.close(disk.open("/data/new", os.O_RDWR | os.O_CREAT))
            disk.files.lose_power(random.Random(seed))
            survived.add(disk.exists("/data/new"))
    assert survived == {True, False}


def test_a_full_disk_refuses_writes_until_there_is_space() -> None:
    with simulated_disk() as disk:
        disk.make_directory("/data")
        disk.files.capacity_bytes = 10
        fd = disk.open("/data/log", os.O_RDWR | os.O_CREAT)
        assert disk.pwrite(fd, b"12345678", 0) == 8
        with pytest.raises(OSError, match="No space left"):
            disk.pwrite(fd, b"12345678", 4)
        assert disk.pwrite(fd, b"12", 8) == 2
        disk.ftruncate(fd, 0)
        assert disk.space("/data").usable_bytes == 10
