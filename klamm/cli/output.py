"""What commands print: a table on a terminal, JSON for scripts, errors in one line on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any, NoReturn

import typer

from klamm.errors import ConfigError, DeliveryTimeoutError, KlammError, NoBrokerError

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="KLAMM_BOOTSTRAP", help="host:port of a broker; several with commas."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document (or one a line, where output streams).")]

DEFAULT_BOOTSTRAP = "localhost:9094"


class ExitStatus(IntEnum):
    """What the command's exit status says."""

    FAILED = 1
    """The cluster refused, or part of the work was refused."""
    USAGE = 2
    """The command line is wrong."""
    UNREACHABLE = 3
    """No server answered."""
    INTERRUPTED = 130
    """Ctrl-C."""


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool, title: str = "") -> None:
    """`rows` as a table, or as a JSON array of objects with `columns` as keys."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        table.add_column(column.replace("_", " ").upper(), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console()
    # Nothing may be cut when the output goes to a file or a pipe.
    console.print(table, width=None if console.is_terminal else _NO_WRAP_COLUMNS)


_NO_WRAP_COLUMNS = 10_000


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def print_json(document: Any) -> None:
    """`document` as indented JSON."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def say(text: str) -> None:
    """A line for people, on stderr: stdout is for results."""
    typer.echo(text, err=True)


def fail(text: str, status: ExitStatus = ExitStatus.FAILED) -> NoReturn:
    """Ends the command with one line on stderr."""
    say(f"klamm: {text}")
    raise typer.Exit(int(status))


@contextmanager
def one_line_errors(bootstrap: str = "") -> Iterator[None]:
    """Turns what the client library raises into one line that says what to do."""
    try:
        yield
    except NoBrokerError as error:
        fail(f"no broker answers at {bootstrap}; is it running? (klamm up) [{error}]", ExitStatus.UNREACHABLE)
    except ConfigError as error:
        fail(str(error), ExitStatus.USAGE)
    except DeliveryTimeoutError as error:
        fail(str(error), ExitStatus.UNREACHABLE)
    except KlammError as error:
        # Of several things refused, the first is the error and the others are its notes.
        for note in getattr(error, "__notes__", ()):
            say(f"klamm: {note}")
        fail(str(error))
    except BrokenPipeError:
        # The reader of our output left (`| head`): nobody is there to tell.
        sys.stderr.close()
        raise typer.Exit(int(ExitStatus.FAILED)) from None


def parse_assignments(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`["retention.ms=1000"]` as a mapping."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            fail(f"{option} {pair!r}: expected name=value", ExitStatus.USAGE)
        parsed[name.strip()] = value.strip()
    return parsed
