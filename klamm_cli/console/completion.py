"""Completion in bash, zsh and fish: `klamm --install-completion [SHELL]` and `--show-completion [SHELL]`."""

from __future__ import annotations

import os
from typing import Final

import typer
from typer.completion import (  # type: ignore[attr-defined]
    completion_init,
    get_completion_script,
    install,
)

SHELLS: Final = ("bash", "zsh", "fish")
THIS_SHELL: Final = "auto"
OPTIONS: Final = frozenset({"--install-completion", "--show-completion"})
VARIABLE: Final = "_KLAMM_COMPLETE"
"""A shell sets this environment variable and runs the command to get completions."""


def with_shell(arguments: list[str]) -> list[str]:
    """Returns the arguments. Appends `auto` if they end with a completion option that names no shell."""
    return [*arguments, THIS_SHELL] if arguments and arguments[-1] in OPTIONS else arguments


def prepare_completion() -> None:
    """Registers the shells with typer, if a shell runs the command to get completions."""
    if VARIABLE in os.environ:
        completion_init()


def show_completion(shell: str | None) -> None:
    """Prints the completion script of a shell, and ends the command. Does nothing if `shell` is None."""
    if shell is not None:
        typer.echo(get_completion_script(prog_name="klamm", complete_var=VARIABLE, shell=_known(shell)))
        raise typer.Exit


def install_completion(shell: str | None) -> None:
    """Installs the completion script of a shell for this user, and ends the command. Does nothing if `shell` is
    None."""
    if shell is not None:
        _, path = install(shell=_known(shell), prog_name="klamm", complete_var=VARIABLE)
        typer.echo(f"completion is in {path}; it works in the next shell that you start")
        raise typer.Exit


def _known(shell: str) -> str:
    if shell == THIS_SHELL:
        shell = _detected()
    if shell not in SHELLS:
        raise typer.BadParameter(f"{shell!r} is not one of {', '.join(SHELLS)}")
    return shell


def _detected() -> str:
    """Returns the name of the shell that runs the command. If that is unknown, returns the user's login shell
    ($SHELL)."""
    import shellingham  # type: ignore[import-untyped]

    try:
        name: str = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        name = ""
    return name if name in SHELLS else os.path.basename(os.environ.get("SHELL", ""))
