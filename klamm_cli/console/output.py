"""The output of commands: a table on a terminal, JSON for scripts, errors in one line on stderr.

Every command prints with these functions, because they escape control characters. Clients choose the names of groups,
members and transactions, so a name could fake lines or change the terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, NoReturn

import typer

from klamm.config import DEFAULT_PORT
from klamm.errors import EXCEPTIONS, ConfigError, DeliveryTimeoutError, ErrorCode, KlammError, NoBrokerError
from klamm.printable import printable, printable_json
from klamm_cli.console.bootstrap_option import BOOTSTRAP_VARIABLE
from klamm_cli.console.colors import BOLD, PLAIN, color_of, colored, is_colored
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.folding import folded
from klamm_cli.console.table import table_lines

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help="The address of a broker, or several addresses separated by commas.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Fail if no server answers within this time."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DEFAULT_BOOTSTRAP = f"localhost:{DEFAULT_PORT}"
DEFAULT_TIMEOUT = 5.0


def print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool, json_only: Collection[str] = ()
) -> None:
    """Prints `rows` as a table, or as a JSON array with one object per line. A table does not show the `json_only`
    columns."""
    if as_json:
        objects = (_json(dict(zip(columns, row, strict=True))) for row in rows)
        typer.echo("[" + ",".join(f"\n  {line}" for line in objects) + "\n]")
        return
    is_terminal = sys.stdout.isatty()
    # Lines must not be folded when the output goes to a file or a pipe.
    width = shutil.get_terminal_size().columns if is_terminal else None
    color = color_of if is_colored() else None
    header, *lines = table_lines(columns, rows, width=width, json_only=json_only, color_of=color)
    typer.echo("\n".join([f"{BOLD}{header}{PLAIN}" if is_terminal else header, *lines]))


def print_json(document: Any) -> None:
    """Prints `document` as indented JSON."""
    typer.echo(_json(document, indent=2))


def _json(document: Any, indent: int | None = None) -> str:
    return printable_json(json.dumps(document, indent=indent, ensure_ascii=False, default=str))


def print_lines(*lines: str) -> None:
    """Prints lines to stdout as they are, such as commands to copy."""
    typer.echo("\n".join(map(printable, lines)))


def print_sentences(*lines: str) -> None:
    """Prints sentences to stdout. A terminal gets them with line breaks between words."""
    typer.echo("\n".join(folded(printable(line), sys.stdout) for line in lines))


def print_state(word: str, *lines: str) -> None:
    """Prints sentences to stdout in the colour of a state's word, such as "degraded"."""
    typer.echo("\n".join(colored(folded(printable(line), sys.stdout), word) for line in lines))


def print_message(text: str) -> None:
    """Prints a line for people to stderr, because stdout is for results."""
    typer.echo(folded(printable(text), sys.stderr), err=True)


def fail(text: str, status: ExitStatus = ExitStatus.FAILED) -> NoReturn:
    """Ends the command with one line on stderr."""
    print_message(f"klamm: {text}")
    raise typer.Exit(int(status))


@contextmanager
def one_line_errors(bootstrap: str = "") -> Iterator[None]:
    """If the client library raises an error, ends the command with one line that says what to do."""
    try:
        yield
    except KlammError as error:
        print_message(f"klamm: {explain(error, bootstrap)}")
        # If several items were refused, the first is the error and the others are its notes.
        for note in getattr(error, "__notes__", ()):
            print_message(f"klamm: {note}")
        raise typer.Exit(status_of(error)) from error


def status_of(error: KlammError) -> ExitStatus:
    """Returns the exit status for an error of the client library."""
    if isinstance(error, ConfigError):
        return ExitStatus.USAGE
    if isinstance(error, _NOBODY_ANSWERS):
        return ExitStatus.UNREACHABLE
    return ExitStatus.FAILED


OTHER_PORT: Final = "this is a "
"""The beginning of the text with which a port for Kafka clients, or for Prometheus, refuses a gRPC client."""


SPEAKS_TLS: Final = "it speaks TLS"
"""The beginning of the error text if a client without TLS connects to a server with TLS."""


def explain(error: KlammError, bootstrap: str) -> str:
    """Returns one line that says what happened and what to do."""
    if not isinstance(error, NoBrokerError):
        return str(error)
    # The error's text lists every server with gRPC's whole error text. The innermost reason comes last.
    reason = str(error).rpartition(": ")[2]
    if reason.startswith(SPEAKS_TLS):
        return f"{bootstrap}: {reason}; a file with that and ssl.* is named by --command-config"
    if reason.startswith(OTHER_PORT):
        return f"{bootstrap} is for others: {reason}"
    return f"no server answers at {bootstrap} ({reason}); start one with `klamm up`, or name another with --bootstrap"


_NOBODY_ANSWERS = (
    NoBrokerError,
    DeliveryTimeoutError,
    EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT],
    EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION],
)
