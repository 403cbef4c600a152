"""Reads a new password from a file, from standard input, or twice from the terminal. A password is never an argument,
because `ps` would show it."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from klamm.secret import Secret
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import fail

PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from the first line of FILE ('-': standard input) [default: ask for it].",
        show_default=False,
    ),
]


def read_new_password(file: str | None, user: str) -> Secret:
    """Returns the password from `file`, or asks for it if `file` is None. Ends the command if there is no terminal to
    ask at, or if the password is empty."""
    if file is not None:
        return _read_file(file)
    _expect_terminal()
    password = getpass.getpass(f"Password for {user}: ")
    if getpass.getpass("Again: ") != password:
        fail("the two passwords differ", ExitStatus.USAGE)
    return _not_empty(password, "the terminal")


def check_new_password(file: str | None) -> None:
    """Ends the command if there is no password in `file`, or no terminal to ask at. Asks nothing."""
    if file is None:
        _expect_terminal()
    else:
        _read_file(file)


def _expect_terminal() -> None:
    if not sys.stdin.isatty():
        fail("no terminal to ask for the password: use --password-file", ExitStatus.USAGE)


def _read_file(file: str) -> Secret:
    return _not_empty(_first_line(file), file)


def _first_line(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.readline().rstrip("\r\n")
        with Path(file).open(encoding="utf-8") as lines:
            return lines.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        fail(f"the password file {file} cannot be read: {reason}", ExitStatus.USAGE)


def _not_empty(password: str, source: str) -> Secret:
    if not password:
        fail(f"the password in {source} is empty", ExitStatus.USAGE)
    return Secret(password)
