"""The help format of commands that argparse parses. It looks like the help of the typer commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help with `Usage:` and headings that begin with capitals."""

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)

    def add_text(self, text: str | None) -> None:
        super().add_text(text and "\n".join(f"  {line}".rstrip() for line in text.splitlines()))

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and heading[0].upper() + heading[1:])


def add_help_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option to a parser that was made with `add_help=False`."""
    parser.add_argument("-h", "--help", action="help", help="Show this message and exit.")
