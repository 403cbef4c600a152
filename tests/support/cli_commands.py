"""All commands of `klamm` as typer's objects, for tests that compare them."""

from __future__ import annotations

import importlib

import typer

from klamm_cli.app import COMMANDS as MODULES

GROUPS = {
    name: typer.main.get_command(importlib.import_module(module).app)
    for name, (module, _) in MODULES.items()
    if name != "up"
}
COMMANDS = {
    (name, *rest): command
    for name, group in GROUPS.items()
    for rest, command in (
        ((), group),
        *(((each,), command) for each, command in getattr(group, "commands", {}).items()),
    )
}
LEAVES = [
    words
    for words, command in COMMANDS.items()
    if not getattr(command, "commands", None) and words != ("pipeline", "run")  # each pipeline has its own help
]
