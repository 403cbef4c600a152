"""What commands print: a table on a terminal, JSON for scripts, errors in one line on stderr."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from klamm.cli.exit_status import ExitStatus
from klamm.config import DEFAULT_PORT
from klamm.errors import EXCEPTIONS, ConfigError, DeliveryTimeoutError, ErrorCode, KlammError, NoBrokerError

if TYPE_CHECKING:
    from rich.table import Table

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="KLAMM_BOOTSTRAP", help="host:port of a broker; several with commas."),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Give up when no server answers for so long.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts instead of a table.")]

DEFAULT_BOOTSTRAP = f"localhost:{DEFAULT_PORT}"
DEFAULT_TIMEOUT = 5.0


def print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool, json_only: Collection[str] = ()
) -> None:
    """`rows` as a table, or as a JSON array of objects with `columns` as keys; a table has no `json_only` columns."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        # Nothing may be folded when the output goes to a file or a pipe.
        console = Console(width=_NO_FOLD_COLUMNS)
    console.print(make_table(columns, rows, width=console.width, json_only=json_only))


def make_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int, json_only: Collection[str] = ()
) -> Table:
    """The table that `print_rows` prints on a terminal of that `width`."""
    from rich.table import Table
    from rich.text import Text

    shown = [index for index, column in enumerate(columns) if column not in json_only]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index in shown:
        numeric = bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        # On a narrow terminal a name stays in one piece, as long as it leaves half of the width to the rest.
        whole = index == shown[0] and all(len(_cell(row[index])) <= width // 2 for row in rows)
        table.add_column(
            columns[index].replace("_", " ").upper(),
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=whole,
        )
    for row in rows:
        table.add_row(*(Text(_cell(row[index])) for index in shown))
    return table


_NO_FOLD_COLUMNS = 10_000


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
    """Ends the command with one line that says what to do when the client library raises."""
    try:
        yield
    except KlammError as error:
        say(f"klamm: {explain(error, bootstrap)}")
        # Of several things refused, the first is the error and the others are its notes.
        for note in getattr(error, "__notes__", ()):
            say(f"klamm: {note}")
        raise typer.Exit(status_of(error)) from error


def status_of(error: KlammError) -> ExitStatus:
    """The exit status that an error of the client library means."""
    if isinstance(error, ConfigError):
        return ExitStatus.USAGE
    if isinstance(error, _NOBODY_ANSWERS):
        return ExitStatus.UNREACHABLE
    return ExitStatus.FAILED


def explain(error: KlammError, bootstrap: str) -> str:
    """What happened and what to do, in one line."""
    if not isinstance(error, NoBrokerError):
        return str(error)
    # Its text has every server with all that gRPC says of it; the innermost reason is the last.
    reason = str(error).rpartition(": ")[2]
    return f"no server answers at {bootstrap} ({reason}); start one with `klamm up`, or name another with --bootstrap"


_NOBODY_ANSWERS = (
    NoBrokerError,
    DeliveryTimeoutError,
    EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT],
    EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION],
)
