"""Decompresses a stream in pieces, so that gigabytes of output take the memory of one piece.

cramjam's decompressors need the whole output at once, unless they write it to a file. Such a call releases the
interpreter's lock. So a thread decompresses into a pipe, and the owner reads the pieces from the pipe's other end. The
thread waits while the pipe is full.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Final

import cramjam

from klamm.errors import ErrorCode

PIECE_BYTES: Final = 1024 * 1024
"""The most bytes that one read returns, and the size of the pipe where the system allows it. With a small pipe, the
threads would take turns more often, and each turn waits for the interpreter's lock."""
_END: Final = b"\0"
"""The byte after the output. If another thread forks this process, the child also holds the pipe, so the pipe may have
no end of its own."""


class BrokenInputError(Exception):
    """The input does not decompress."""


class DecompressionPipe:
    """The output of `decompress_into(data, file)`. The owner calls `close`, which it may do before the end."""

    def __init__(self, decompress_into: Callable[[Any, Any], int], data: bytes | memoryview) -> None:
        self._size_bytes: int | None = None
        """The size of the whole output, after the thread has written it."""
        self._failure: str | None = None
        self._read_bytes = 0
        self._descriptors: list[int] = []
        try:
            self._descriptors += os.pipe()
            reader, writer = self._descriptors
            output = cramjam.File(f"/dev/fd/{writer}", read=False, write=True)
            os.close(self._descriptors.pop())
            _enlarge(reader)
            self._thread = threading.Thread(
                target=self._run, args=(decompress_into, data, output), name="decompression", daemon=True
            )
            self._thread.start()
        except (OSError, RuntimeError) as error:
            self._close_descriptors()
            raise ErrorCode.KAFKA_STORAGE_ERROR.exception(f"could not begin to decompress a batch: {error}") from error

    def _run(self, decompress_into: Callable[[Any, Any], int], data: bytes | memoryview, output: cramjam.File) -> None:
        try:
            self._size_bytes = decompress_into(data, output)
        except Exception as error:  # noqa: BLE001 - the owner's next read raises it
            # The error itself would keep the file open.
            self._failure = str(error)
        with contextlib.suppress(OSError):
            # The owner may have closed its end.
            output.write(_END)

    def read(self) -> bytes:
        """Returns the next bytes, or nothing after the last. Raises BrokenInputError."""
        if self._size_bytes is not None and self._read_bytes > self._size_bytes:
            return b""
        piece = os.read(self._descriptors[0], PIECE_BYTES)
        self._read_bytes += len(piece)
        if self._failure is not None or not piece:
            raise BrokenInputError(self._failure or "the output ends early")
        if self._size_bytes is not None and self._read_bytes > self._size_bytes:
            return piece[: -len(_END)]
        return piece

    def close(self) -> None:
        """Ends the thread, and waits until it has ended."""
        self._close_descriptors()
        self._thread.join()

    def _close_descriptors(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def _enlarge(pipe: int) -> None:
    """Makes the pipe hold a piece. Only Linux can, and it may refuse a user who has many large pipes."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIECE_BYTES)
