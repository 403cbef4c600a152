"""`klamm format`: writes the first users of a new cluster into a controller's empty directory (KIP-900)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import Json, fail, one_line_errors, print_message
from klamm_cli.console.password import check_new_password, read_new_password
from klamm_cli.dry_run.files import check_writable

if TYPE_CHECKING:
    from klamm.security.sasl.scram_keys import ScramMechanism

app = new_app()

_SCRAM: Final = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<settings>.*)\]", re.DOTALL)
_EXPECTED: Final = "expected MECHANISM=[name=NAME,password-file=FILE,iterations=N]"
_READ_BY_UP: Final = re.compile(r"controller(-[1-9]\d*)?")
"""The names of controllers' directories in a data directory of `klamm up`."""
_DEFAULT_ITERATIONS: Final = "8192"


class _NewUser(NamedTuple):
    name: str
    mechanism: ScramMechanism
    iterations: int
    password_file: str | None


@app.command(
    epilog=examples(
        "klamm format klamm-data/controller --add-scram 'SCRAM-SHA-512=[name=admin]'",
        "klamm format DIRECTORY --add-scram \\",
        "  'SCRAM-SHA-256=[name=admin,password-file=FILE]'",
    )
)
def format_(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The controller's metadata.log.dir.", show_default=False)
    ],
    add_scram: Annotated[
        list[str],
        typer.Option(
            "--add-scram",
            metavar="MECHANISM=[SETTINGS]",
            help="A user who may log in with SCRAM: name=NAME, password-file=FILE ('-': standard input) and"
            f" iterations=N ({_DEFAULT_ITERATIONS}), separated by commas; repeatable.",
            show_default=False,
        ),
    ],
    validate_only: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write the first users of a new cluster.

    The users are in the metadata before any client can connect, so that the first client can log in. DIRECTORY is the
    directory of a controller that has not started yet. With several controllers, write the same users into each
    directory. Create later users with `klamm users create`."""
    users = [_parse(text) for text in add_scram]
    if len({(user.name, user.mechanism) for user in users}) < len(users):
        fail("--add-scram: a user is named twice with one mechanism", ExitStatus.USAGE)
    with one_line_errors():
        if validate_only:
            _check(directory, users)
        else:
            _write(directory, users)
    names = ", ".join(sorted({repr(user.name) for user in users}))
    line = f"{directory} {tense(validate_only, 'begins', 'begin')} with {names}"
    document = {
        "directory": str(directory),
        "users": [{"user": user.name, "mechanism": user.mechanism.mechanism_name} for user in users],
    }
    print_change(document, line, as_json=as_json, validate_only=validate_only)
    if not _READ_BY_UP.fullmatch(directory.absolute().name):
        print_message("`klamm up` does not read it: it reads controller, or controller-1 and so on, in its --data-dir")


def _write(directory: Path, users: list[_NewUser]) -> None:
    from klamm_controller.log.bootstrap import NewUser, user_records, write_bootstrap_records

    given = [
        NewUser(user.name, user.mechanism, read_new_password(user.password_file, user.name), user.iterations)
        for user in users
    ]
    write_bootstrap_records(directory, user_records(given))


def _check(directory: Path, users: list[_NewUser]) -> None:
    """Refuses what `_write` would refuse, and writes nothing."""
    from klamm_controller.log.bootstrap import check_empty

    for user in users:
        check_new_password(user.password_file)
    try:
        check_writable(directory)
        if directory.exists():
            check_empty(directory)
    except OSError as error:
        fail(f"the directory {directory} cannot be written: {error.strerror}")


def _parse(text: str) -> _NewUser:
    from klamm.security.sasl.scram_keys import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism

    match = _SCRAM.fullmatch(text)
    mechanism = ScramMechanism.of_name(match["mechanism"]) if match else None
    if match is None or mechanism is None:
        fail(f"--add-scram: {_EXPECTED}, of SCRAM-SHA-256 or SCRAM-SHA-512", ExitStatus.USAGE)
    settings = dict(part.partition("=")[::2] for part in match["settings"].split(","))
    if "password" in settings:
        fail("--add-scram: an argument is no place for a password; use password-file=FILE", ExitStatus.USAGE)
    if unknown := settings.keys() - {"name", "password-file", "iterations"}:
        fail(f"--add-scram: unknown {', '.join(sorted(unknown))}; {_EXPECTED}", ExitStatus.USAGE)
    if not settings.get("name"):
        fail(f"--add-scram: there is no name; {_EXPECTED}", ExitStatus.USAGE)
    iterations = settings.get("iterations", _DEFAULT_ITERATIONS)
    if not (iterations.isascii() and iterations.isdigit() and MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS):
        fail(f"--add-scram: iterations={iterations}; expected {MIN_ITERATIONS} to {MAX_ITERATIONS}", ExitStatus.USAGE)
    return _NewUser(settings["name"], mechanism, int(iterations), settings.get("password-file"))
