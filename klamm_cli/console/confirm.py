"""Asks before a command changes more than its options name."""

from __future__ import annotations

import sys

import typer

from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import fail


def confirm(question: str, *, without_terminal: str) -> None:
    """Asks on the terminal, and ends the command unless the answer is yes. Without a terminal, ends the command with
    the text `without_terminal`, which names the option that answers yes."""
    if not sys.stdin.isatty():
        fail(without_terminal, ExitStatus.USAGE)
    if not typer.confirm(question, err=True):
        fail("nothing was changed")
