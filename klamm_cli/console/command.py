"""How every command of `klamm` is set up: plain help without colours or boxes, which costs no library to show."""

from __future__ import annotations

import typer


def new_app(help_text: str | None = None, *, no_args_is_help: bool = True) -> typer.Typer:
    """A group of commands, or with one command and no `help_text` that command itself."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=no_args_is_help and help_text is not None,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
