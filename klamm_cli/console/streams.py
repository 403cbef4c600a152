"""The standard streams of a command: streams that the caller has closed, and output that cannot be written."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
from typing import Final, TextIO

from klamm_cli.console.exit_status import ExitStatus

_STDIN, _STDOUT, _STDERR = range(3)
_OUTPUT: Final = "standard output"


class _Output(io.FileIO):
    """The standard output. Its errors name it, so that a reader knows that no file failed."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            error.filename = _OUTPUT
            raise


class _Closed(io.FileIO):
    """A standard input that was closed."""

    def readinto(self, buffer: object) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard input")


def prepare_streams(*, needs_output: bool) -> None:
    """Makes errors of standard streams name them, and opens the standard streams that are closed, so that no socket or
    file gets their numbers.

    A read of a standard input that was closed raises OSError. With `needs_output`, a write to standard output does so,
    too."""
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed(_null(_STDIN, os.O_WRONLY), "r", closefd=False)))
    if sys.stderr is None:
        sys.stderr = open(_null(_STDERR, os.O_WRONLY), "w", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = _output(_null(_STDOUT, os.O_RDONLY if needs_output else os.O_WRONLY))
    elif _is_standard_output(sys.stdout):
        sys.stdout = _output(_STDOUT, sys.stdout)


def end_output(status: int) -> int:
    """Writes the rest of the output at the end of a command, and returns its exit status. A command that has failed
    already keeps its status."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python flushes the stream again. The rest goes to /dev/null, so that this raises no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        return status or failed(error)
    return status


def is_reader_gone() -> bool:
    """Returns whether standard output is a pipe whose reader has gone. Otherwise, only a write would tell."""
    output = select.poll()
    output.register(_STDOUT, 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def failed(error: OSError) -> ExitStatus:
    """Prints which file or stream could not be read or written, and returns the exit status. A pipe whose reader has
    gone needs no words."""
    if is_broken_pipe(error):
        return ExitStatus.BROKEN_PIPE
    text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    with contextlib.suppress(OSError):
        print(f"klamm: {text}", file=sys.stderr)  # noqa: T201 - typer may not be loaded
    return ExitStatus.FAILED


def is_broken_pipe(error: BaseException | None) -> bool:
    """Returns whether the reader of a pipe has gone."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _null(number: int, flags: int) -> int:
    """Opens /dev/null under this number, and returns the number."""
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return number


def _output(number: int, like: TextIO | None = None) -> TextIO:
    buffer = io.BufferedWriter(_Output(number, "w", closefd=False))
    if not isinstance(like, io.TextIOWrapper):
        return io.TextIOWrapper(buffer)
    return io.TextIOWrapper(
        buffer,
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )


def _is_standard_output(stream: TextIO) -> bool:
    """Returns whether `stream` writes to the process's standard output. A test may put another stream in its place."""
    with contextlib.suppress(OSError):
        return stream.fileno() == _STDOUT
    return False
