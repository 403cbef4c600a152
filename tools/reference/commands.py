"""The page of the command line, read from the commands themselves."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any, Final

import typer

from klamm_cli.app import COMMANDS, app
from klamm_cli.commands.up import up
from klamm_cli.console.exit_status import ExitStatus
from tools.reference.markdown import prose, table

HEAD: Final = """# Command line

`klamm COMMAND --help` prints the same texts as this page, which is generated from the commands
(`python -m tools.reference`). The [pipelines](../../spark/klamm_pipelines/catalog.py) have options of their own:
`klamm pipeline run NAME --help`.
"""
_COMMON: Final = {"--bootstrap", "--timeout", "--command-config", "--help"}
"""Options that many commands have. If their texts are the same, the page explains them once."""
_EXIT_STATUSES: Final = {
    0: "The command succeeded.",
    int(ExitStatus.FAILED): "The cluster rejected all or part of the work, or the output failed.",
    int(ExitStatus.USAGE): "The command line or the input is wrong.",
    int(ExitStatus.UNREACHABLE): "No server answered.",
    int(ExitStatus.DENIED): "`klamm acls check` found that the operation is denied.",
    int(ExitStatus.INTERRUPTED): "Ctrl-C ended the command.",
    int(ExitStatus.BROKEN_PIPE): "The reader of the output has gone, as `head` does.",
    int(ExitStatus.TERMINATED): "SIGTERM ended the command in good order.",
}

Record = tuple[str, str]
"""How a parameter is written, and what help says of it."""


def page() -> str:
    """The whole text."""
    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="klamm", **root.context_settings)
    commands = dict(_commands(root, context))
    common = _common(commands)
    lines = [HEAD, *_common_section(common), *_exit_statuses()]
    for words, (command, own) in commands.items():
        lines += _section(words, command, own, common)
    return "\n".join(lines).rstrip("\n") + "\n"


def _commands(root: Any, context: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """All commands and their subcommands by their words, each with its context."""
    for name in COMMANDS:
        _, command, _ = root.resolve_command(context, [name])
        own = typer.Context(command, info_name=name, parent=context)
        yield name, (command, own)
        for each, subcommand in getattr(command, "commands", {}).items():
            yield f"{name} {each}", (subcommand, typer.Context(subcommand, info_name=each, parent=own))


def _records(command: Any, context: Any, kind: str) -> list[Record]:
    found = [param.get_help_record(context) for param in command.get_params(context) if param.param_type_name == kind]
    return [record for record in found if record is not None]


def _common(commands: dict[str, tuple[Any, Any]]) -> list[Record]:
    command, context = commands["topics create"]
    return [record for record in _records(command, context, "option") if _COMMON & set(record[0].split())]


def _common_section(common: list[Record]) -> Iterator[str]:
    yield "## Options of many commands"
    yield ""
    yield "A command that talks to a cluster also has these."
    yield ""
    yield from _table("Option", common)


def _exit_statuses() -> Iterator[str]:
    yield "## Exit status"
    yield ""
    yield from table(("Status", "What it says"), ((str(status), text) for status, text in _EXIT_STATUSES.items()))


def _section(words: str, command: Any, context: Any, common: list[Record]) -> Iterator[str]:
    is_group = " " not in words
    yield f"{'##' if is_group else '###'} klamm {words}"
    yield ""
    if words == "up":
        yield from ("```text", _help_of_up(), "```", "")
        return
    yield from (prose(command.help or ""), "")
    if hasattr(command, "commands"):
        return
    yield from ("```text", f"klamm {words} {' '.join(command.collect_usage_pieces(context))}", "```", "")
    yield from _table("Argument", _records(command, context, "argument"))
    yield from _table("Option", [record for record in _records(command, context, "option") if record not in common])
    yield from _examples(command.epilog or "")


def _table(title: str, records: list[Record]) -> Iterator[str]:
    yield from table((title, "What it is"), ((f"`{name}`", prose(text)) for name, text in records))


def _examples(epilog: str) -> Iterator[str]:
    """Typer marks a paragraph whose lines stay as they are by a backspace."""
    for paragraph in epilog.split("\n\n"):
        is_verbatim = paragraph.startswith("\b\n")
        yield from ("```console", paragraph.removeprefix("\b\n"), "```", "") if is_verbatim else (prose(paragraph), "")


def _help_of_up() -> str:
    """`klamm up` has argparse's options, so its help is shown as it is."""
    os.environ["COLUMNS"] = "80"
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        up(["--help"])
    return out.getvalue().strip("\n")
