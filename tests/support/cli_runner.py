"""Runs `klamm ...` in this process through `main`, and returns its exit status and its output."""

from __future__ import annotations

import io
import json
import signal
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from klamm_cli.main import main


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table below its header."""
        return [line.split() for line in self.out.splitlines()[1:]]


class KlammCommand:
    """`klamm(...)` runs a command against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: object, stdin: str | bytes = b"") -> Ended:
        stdin_bytes = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = _stream(b""), _stream(b"")
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with (
            mock.patch.dict("os.environ", {"KLAMM_BOOTSTRAP": self.bootstrap}),
            mock.patch.multiple(
                sys, argv=["klamm", *map(str, arguments)], stdin=_stream(stdin_bytes), stdout=out, stderr=err
            ),
        ):
            try:
                main()
            except SystemExit as ended:
                status = ended.code
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        assert isinstance(status, int)
        return Ended(status, _written(out), _written(err))

    def ok(self, *arguments: object, stdin: str | bytes = b"") -> Ended:
        """Runs a command that must succeed, and returns its outcome."""
        ended = self(*arguments, stdin=stdin)
        assert ended.status == 0, ended
        return ended

    def refused(self, status: int, *arguments: object, stdin: str | bytes = b"") -> str:
        """Runs a command that must fail with `status`, and returns its first line of error.

        Further lines may have the number of acknowledged records, and other items that were refused."""
        ended = self(*arguments, stdin=stdin)
        assert ended.status == status, ended
        complaints = [line for line in ended.err.splitlines() if "acknowledged by" not in line]
        assert complaints, ended
        assert complaints[0].startswith("klamm: "), ended
        assert all(line.startswith("klamm: also: ") for line in complaints[1:]), ended
        return complaints[0]


def values(klamm: KlammCommand, topic: str, *options: object) -> list[str]:
    """Returns the lines that `klamm consume` prints of all records of a topic, sorted."""
    return sorted(klamm.ok("consume", topic, "--from", "beginning", "--exit", *options).out.splitlines())


def _stream(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", write_through=True)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
