"""`klamm quotas`: list, set and remove quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from klamm.quotas import CLIENT_ID, IP, IP_KEYS, USER, USER_AND_CLIENT_KEYS
from klamm_cli.console.assignments import parse_assignments
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
    print_rows,
)

if TYPE_CHECKING:
    from klamm.admin import ClientQuotaEntity

app = new_app("List, set and remove quotas of users, client ids and addresses.")

_User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="The user's name, without User: in front.")]
_ClientId = Annotated[
    str | None,
    typer.Option("--client-id", metavar="ID", help="The client id. With --user, the client id of that user."),
]
_Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The client's address.")]
_DefaultUser = Annotated[bool, typer.Option("--user-default", help="All users without a quota of their own.")]
_DefaultClientId = Annotated[
    bool, typer.Option("--client-id-default", help="All client ids without a quota of their own.")
]
_DefaultIp = Annotated[bool, typer.Option("--ip-default", help="All addresses without a quota of their own.")]
_KEYS = ", ".join((*USER_AND_CLIENT_KEYS, *IP_KEYS))


@app.command("list", epilog=examples("klamm quotas list", "klamm quotas list --user alice"))
def list_(
    user: _User = None,
    client_id: _ClientId = None,
    ip: _Ip = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """List all quotas, or the quotas of one entity."""
    from klamm.admin import ClientQuotaFilterComponent

    names = {USER: user, CLIENT_ID: client_id, IP: ip}
    wanted = [ClientQuotaFilterComponent(kind, name) for kind, name in names.items() if name is not None]
    with connected(bootstrap, timeout) as admin:
        found = admin.describe_client_quotas(wanted)
    rows = [
        (str(entity), key, value)
        for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
        for key, value in sorted(values.items())
    ]
    print_rows(("entity", "quota", "value"), rows, as_json=as_json)


@app.command(
    "set",
    epilog=examples(
        "klamm quotas set producer_byte_rate=1048576 --user alice",
        "klamm quotas set consumer_byte_rate=1048576 --client-id-default",
    ),
)
def set_(
    quotas: Annotated[
        list[str], typer.Argument(metavar="QUOTA=VALUE...", help=f"One or more of {_KEYS}.", show_default=False)
    ],
    user: _User = None,
    client_id: _ClientId = None,
    ip: _Ip = None,
    user_default: _DefaultUser = False,
    client_id_default: _DefaultClientId = False,
    ip_default: _DefaultIp = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Set quotas of an entity; keep its other quotas."""
    from klamm.admin import ClientQuotaAlteration

    values = {key: _number(key, value) for key, value in parse_assignments(quotas, "quota").items()}
    entity = _entity({USER: user, CLIENT_ID: client_id, IP: ip}, user_default, client_id_default, ip_default)
    with connected(bootstrap, timeout) as admin:
        admin.alter_client_quotas([ClientQuotaAlteration(entity, values)], validate_only=validate_only)
    line = f"{tense(validate_only, 'set', 'set')} {' '.join(quotas)} for {entity}"
    print_change({"entity": str(entity), "set": values}, line, as_json=as_json, validate_only=validate_only)


@app.command("unset", epilog=examples("klamm quotas unset producer_byte_rate --user alice"))
def unset(
    quotas: Annotated[
        list[str], typer.Argument(metavar="QUOTA...", help=f"One or more of {_KEYS}.", show_default=False)
    ],
    user: _User = None,
    client_id: _ClientId = None,
    ip: _Ip = None,
    user_default: _DefaultUser = False,
    client_id_default: _DefaultClientId = False,
    ip_default: _DefaultIp = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove quotas of an entity."""
    from klamm.admin import ClientQuotaAlteration

    entity = _entity({USER: user, CLIENT_ID: client_id, IP: ip}, user_default, client_id_default, ip_default)
    with connected(bootstrap, timeout) as admin:
        known = admin.describe_client_quotas().get(entity, {})
        if missing := [key for key in quotas if key not in known]:
            fail(f"{entity} has no quota {', '.join(missing)}", ExitStatus.FAILED)
        alteration = ClientQuotaAlteration(entity, dict.fromkeys(quotas))
        admin.alter_client_quotas([alteration], validate_only=validate_only)
    line = f"{tense(validate_only, 'removed', 'remove')} {' '.join(quotas)} of {entity}"
    print_change({"entity": str(entity), "removed": quotas}, line, as_json=as_json, validate_only=validate_only)


def _entity(names: dict[str, str | None], *defaults: bool) -> ClientQuotaEntity:
    """Returns the entity that the options name. `defaults` has the values of the -default options, in the order of
    `names`."""
    from klamm.admin import ClientQuotaEntity

    for (kind, name), is_default in zip(names.items(), defaults, strict=True):
        if is_default and name is not None:
            fail(f"--{kind} {name} and --{kind}-default exclude each other", ExitStatus.USAGE)
    meant = {
        kind: name
        for (kind, name), is_default in zip(names.items(), defaults, strict=True)
        if is_default or name is not None
    }
    if not meant:
        fail("for whom? --user, --client-id, both or --ip, each also with -default", ExitStatus.USAGE)
    return ClientQuotaEntity.of(meant)


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        fail(f"{key}={value}: expected a number", ExitStatus.USAGE)
