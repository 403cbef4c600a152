"""Tests a pipe into which a thread decompresses."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest

from klamm.decompression_pipe import BrokenInputError, DecompressionPipe
from klamm.errors import BrokerError
from tests.support.open_files import open_files


@contextlib.contextmanager
def file_limit(count: int) -> Iterator[None]:
    """Lets this process open no file with this number or a larger one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read_all(pipe: DecompressionPipe) -> bytes:
    return b"".join(iter(pipe.read, b""))


def test_no_file_stays_open() -> None:
    data = bytes(cramjam.zstd.compress(bytes(3_000_000)))
    before = open_files("pipe:")
    for is_read in (True, False):
        pipe = DecompressionPipe(cramjam.zstd.decompress_into, data)
        if is_read:
            assert read_all(pipe) == bytes(3_000_000)
            assert pipe.read() == b""
        pipe.close()
        assert not open_files("pipe:") - before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_that_keeps_the_pipe_open_does_not_delay_its_end() -> None:
    forked: list[int] = []

    def decompress_into(data: Any, output: Any) -> int:
        child = os.fork()
        if not child:
            signal.pause()
        forked.append(child)
        return int(output.write(data))

    pipe = DecompressionPipe(decompress_into, b"all")
    try:
        assert read_all(pipe) == b"all"
        pipe.close()
    finally:
        os.kill(forked[0], signal.SIGKILL)
        os.waitpid(forked[0], 0)


def test_a_failure_of_any_kind_ends_the_pipe() -> None:
    def fail(data: Any, output: Any) -> int:
        output.write(data)
        raise MemoryError("no memory")

    pipe = DecompressionPipe(fail, b"some")
    with pytest.raises(BrokenInputError, match="no memory"):
        read_all(pipe)
    pipe.close()


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_pipe_needs_three_files(free: int) -> None:
    before = open_files("pipe:")
    lowest = os.dup(0)
    os.close(lowest)
    with file_limit(lowest + free), pytest.raises(BrokerError, match="Too many open files") as raised:
        DecompressionPipe(cramjam.zstd.decompress_into, b"")
    assert raised.value.retriable
    assert not open_files("pipe:") - before
