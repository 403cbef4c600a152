"""`--bootstrap` and `-b` before the name of a command: `klamm -b broker-1:9094 topics list`.

A command that talks to a cluster has the option, too. The value before the command's name is the default of that
option.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import typer

BOOTSTRAP_VARIABLE: Final = "KLAMM_BOOTSTRAP"
"""Commands, and the processes that they start, read their default from this environment variable."""

TALKS_TO_A_CLUSTER: Final = "bootstrap"
"""The name of the parameter that a command has if it talks to a cluster."""


def offer_bootstrap(group: Any) -> bool:
    """Adds the option to a group of typer commands, and to the groups in it, if one of its commands talks to a cluster.
    Returns whether one does. A group that is a command itself passes the value of its own option on."""
    own = next((param for param in group.params if param.name == TALKS_TO_A_CLUSTER), None)
    talks = [offer_bootstrap(command) for command in getattr(group, "commands", {}).values()]
    if any(talks) and own is not None:
        own.callback = lambda context, parameter, value: _note(value)
    elif any(talks):
        group.params.append(make_bootstrap_option())
    return any(talks) or own is not None


def make_bootstrap_option() -> Any:
    """Returns the option as a typer parameter, which can be added to any group."""
    holder = typer.Typer(add_completion=False)
    holder.command()(_with_option)
    return typer.main.get_command(holder).params[0]


def _note(bootstrap: str | None) -> str | None:
    if bootstrap is not None:
        os.environ[BOOTSTRAP_VARIABLE] = bootstrap
    return bootstrap


def _with_option(
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            callback=_note,
            expose_value=False,
            help="The address of a broker, or several separated by commas. It applies to a command"
            " without its own --bootstrap.",
        ),
    ] = None,
) -> None:
    """Declares the option, so that typer makes a parameter of it."""
