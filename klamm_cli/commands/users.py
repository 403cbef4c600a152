"""`klamm users`: list, create and delete the users who log in by SCRAM; set their passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.errors import EXCEPTIONS, ErrorCode, raise_first
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_message,
    print_rows,
)
from klamm_cli.console.password import PasswordFile, check_new_password, read_new_password
from klamm_cli.dry_run.users import credential_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klamm import Admin
    from klamm.admin import ScramCredentialInfo, ScramMechanism

app = new_app("List, create and delete users who log in by SCRAM; set their passwords.")

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.", show_default=False)]
_Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", help="How many times the password is hashed: 4096 to 16384.")
]
_DEFAULT_ITERATIONS: Final = 8192
_DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
_ResourceNotFoundError = EXCEPTIONS[ErrorCode.RESOURCE_NOT_FOUND]


@app.command("list", epilog=examples("klamm users list"))
def list_(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """List users with their mechanisms."""
    with connected(bootstrap, timeout) as admin:
        users = admin.describe_user_scram_credentials()
    rows = [
        (name, info.mechanism.mechanism_name, info.iterations)
        for name, user in sorted(users.items())
        for info in user.credential_infos
    ]
    print_rows(("user", "mechanism", "iterations"), rows, as_json=as_json)


@app.command("create", epilog=examples("klamm users create alice"))
def create(
    user: User,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism",
            metavar="MECHANISM",
            help=f"SCRAM-SHA-256 or SCRAM-SHA-512; repeatable [default: {_DEFAULT_MECHANISM}].",
            show_default=False,
        ),
    ] = None,
    iterations: _Iterations = _DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Create a user."""
    from klamm.admin import ScramCredentialInfo

    infos = [ScramCredentialInfo(_mechanism(name), iterations) for name in mechanisms or [_DEFAULT_MECHANISM]]
    with connected(bootstrap, timeout) as admin:
        if _credentials(admin, user):
            fail(f"user {user!r} exists; `klamm users set-password` changes the password", ExitStatus.FAILED)
        _set_password(admin, user, infos, password_file, validate_only=validate_only)
    document = {"created": user, "mechanisms": [info.mechanism.mechanism_name for info in infos]}
    line = f"{tense(validate_only, 'created', 'create')} user {user!r}"
    print_change(document, line, as_json=as_json, validate_only=validate_only)


@app.command("set-password", epilog=examples("klamm users set-password alice"))
def set_password(
    user: User,
    iterations: _Iterations = _DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Change a user's password.

    The password changes for each mechanism that the user has."""
    from klamm.admin import ScramCredentialInfo

    with connected(bootstrap, timeout) as admin:
        known = _credentials(admin, user)
        if not known:
            fail(f"there is no user {user!r}; `klamm users create` makes one", ExitStatus.FAILED)
        infos = [ScramCredentialInfo(info.mechanism, iterations) for info in known]
        _set_password(admin, user, infos, password_file, validate_only=validate_only)
    document = {"changed": user, "mechanisms": [info.mechanism.mechanism_name for info in infos]}
    line = f"{tense(validate_only, 'changed', 'change')} the password of user {user!r}"
    print_change(document, line, as_json=as_json, validate_only=validate_only)


@app.command("delete", epilog=examples("klamm users delete alice"))
def delete(
    user: User,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if there is no such user.")] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Delete a user, with all credentials."""
    from klamm.admin import UserScramCredentialDeletion

    with connected(bootstrap, timeout) as admin:
        known = _credentials(admin, user)
        if not known and not if_exists:
            fail(f"there is no user {user!r}", ExitStatus.FAILED)
        for info in () if validate_only else known:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, info.mechanism)])
    if not known:
        print_message(f"there is no user {user!r}")
    lines = [f"{tense(validate_only, 'deleted', 'delete')} user {user!r}"] if known else []
    document = {"deleted": [user] if known else []}
    print_change(document, *lines, as_json=as_json, validate_only=validate_only)


def _mechanism(name: str) -> ScramMechanism:
    from klamm.admin import ScramMechanism

    mechanism = ScramMechanism.of_name(name)
    if mechanism is None:
        fail(f"mechanism {name!r}: expected SCRAM-SHA-256 or SCRAM-SHA-512", ExitStatus.USAGE)
    return mechanism


def _credentials(admin: Admin, user: str) -> tuple[ScramCredentialInfo, ...]:
    """Returns the user's SCRAM credentials, or an empty tuple if the user does not exist."""
    try:
        return admin.describe_user_scram_credentials([user])[user].credential_infos
    except _ResourceNotFoundError:
        return ()


def _set_password(
    admin: Admin, user: str, infos: Iterable[ScramCredentialInfo], password_file: str | None, *, validate_only: bool
) -> None:
    """Sets the user's password. With `validate_only`, raises the error with which the controller would refuse it."""
    from klamm.admin import UserScramCredentialUpsertion

    if validate_only:
        check_new_password(password_file)
        raise_first(list(credential_errors(user, infos)))
        return
    password = read_new_password(password_file, user)
    for info in infos:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, password)])
