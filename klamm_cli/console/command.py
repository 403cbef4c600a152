"""Sets up each command of `klamm`: its help is plain text without colours or boxes, and needs no other library."""

from __future__ import annotations

import typer


def new_app(help_text: str | None = None, *, no_args_is_help: bool = True) -> typer.Typer:
    """Returns a typer app for a group of commands. Without `help_text`, the app's only command is the app itself."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=no_args_is_help and help_text is not None,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def examples(*commands: str) -> str:
    """Returns the end of a command's help, with examples of it."""
    # Typer keeps the lines of a paragraph apart after this character.
    return "\n".join(["Examples:", "", "\b", *commands])
