"""The output of commands that change something, and their option --dry-run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from klamm_cli.console.output import print_json, print_sentences

DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the change and show it, but change nothing.")]


def print_change(document: Mapping[str, Any], *lines: str, as_json: bool, validate_only: bool) -> None:
    """Prints a change, or with `validate_only` the change that would be made. A terminal gets the lines. A script gets
    the document, whose field "validate_only" says whether the command changed nothing."""
    if as_json:
        print_json({**document, "validate_only": validate_only})
    elif lines:
        print_sentences(*lines)


def tense(validate_only: bool, past: str, verb: str) -> str:
    """Returns the past form of a verb, or "would" and the verb if nothing was changed."""
    return f"would {verb}" if validate_only else past
