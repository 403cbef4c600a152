"""Adds `klamm up` to the list of commands, so that shells can complete it. `main` runs `klamm up` without this
module."""

from __future__ import annotations

from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from klamm_cli.commands.up import option_helps, up
from klamm_cli.console.command import new_app

app = new_app()


class _Completion(NamedTuple):
    """The completion of a word, for a shell. Typer's own class for it has no public name."""

    value: str
    help: str
    type: str = "plain"


class _UpCommand(TyperCommand):
    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        return [_Completion(name, text) for name, text in option_helps() if name.startswith(incomplete)]


@app.command(
    cls=_UpCommand,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _up(context: typer.Context) -> None:
    raise typer.Exit(up(context.args))
