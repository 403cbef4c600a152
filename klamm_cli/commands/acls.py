"""`klamm acls`: lists, adds and removes access control list (ACL) entries, and checks whether they allow an
operation."""

from __future__ import annotations

from typing import Annotated

import typer

from klamm.acl_rules import binding_problem
from klamm.acls import WILDCARD, AclBinding, AclBindingFilter, AclDecision, BuiltInRule
from klamm.errors import ErrorCode, raise_first
from klamm_cli.commands.acl_entries import AclScope, Roles, entries_of, operation_of, resource_of
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
    print_json,
    print_rows,
    print_sentences,
)

app = new_app("List, add, remove and check access control list entries.")

_COLUMNS = ("principal", "permission", "operation", "resource", "pattern", "name", "host")
_RESOURCE_HELP = "The resource: topic:orders, group:billing, transactional-id:t or cluster"
_Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="The principal, for example User:alice.", show_default=False)
]
_Operation = Annotated[
    str | None,
    typer.Argument(
        metavar="[OP]", help="The operation, for example read, write or alter-configs; or all.", show_default=False
    ),
]
_Resource = Annotated[
    str | None,
    typer.Argument(metavar="[RESOURCE]", help=f"{_RESOURCE_HELP}; topic:* is every topic.", show_default=False),
]
_Host = Annotated[str, typer.Option("--host", metavar="HOST", help="The address or range of the client; *: any.")]
_Prefixed = Annotated[bool, typer.Option("--prefixed", help="Match all resources whose name begins with this one.")]
_Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow; a denial takes precedence.")]
_Producer = Annotated[
    bool, typer.Option("--producer", help="Use all rights of producers to --topic, instead of OP and RESOURCE.")
]
_Consumer = Annotated[
    bool,
    typer.Option("--consumer", help="Use all rights of consumers of --topic in --group, instead of OP and RESOURCE."),
]
_Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="NAME", help="The topic of --producer or --consumer; repeatable.", show_default=False
    ),
]
_Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group", "-g", metavar="NAME", help="The group of --consumer; *: any; repeatable.", show_default=False
    ),
]
_TransactionalIds = Annotated[
    list[str] | None,
    typer.Option(
        "--transactional-id", metavar="ID", help="The transactional id of --producer; repeatable.", show_default=False
    ),
]
_Idempotent = Annotated[
    bool,
    typer.Option(
        "--idempotent",
        help="Add the right to produce idempotently, for a producer that may not write to any topic yet.",
    ),
]


@app.command("list", epilog=examples("klamm acls list", "klamm acls list --principal User:alice --json"))
def list_(
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="List only entries of this principal.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """List entries."""
    with connected(bootstrap, timeout) as admin:
        acls = admin.describe_acls(AclBindingFilter(principal=principal))
    print_rows(_COLUMNS, [_row(acl) for acl in sorted(acls, key=str)], as_json=as_json)


@app.command(
    "add",
    epilog=examples(
        "klamm acls add User:alice read topic:orders",
        "klamm acls add User:alice --consumer --topic orders --group billing",
        "klamm acls add User:bob write topic:orders- --prefixed",
    ),
)
def add(
    principal: _Principal,
    operation: _Operation = None,
    resource: _Resource = None,
    deny: _Deny = False,
    prefixed: _Prefixed = False,
    host: _Host = WILDCARD,
    producer: _Producer = False,
    consumer: _Consumer = False,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _TransactionalIds = None,
    idempotent: _Idempotent = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Add entries; skip entries that exist."""
    roles = Roles(producer, consumer, topics or (), groups or (), transactional_ids or (), idempotent)
    entries = entries_of(AclScope(principal, host, prefixed, deny), operation, resource, roles)
    with connected(bootstrap, timeout) as admin:
        known = set(admin.describe_acls()) if validate_only else set()
        if validate_only:
            problems = {entry: binding_problem(entry) for entry in entries}
            refused = [ErrorCode.INVALID_REQUEST.exception(f"{entry}: {why}") for entry, why in problems.items() if why]
            raise_first(refused)
        else:
            admin.create_acls(entries)
    verb = tense(validate_only, "added", "add")
    lines = [f"{entry} exists" if entry in known else f"{verb} {entry}" for entry in entries]
    document = {"added": [_document(entry) for entry in entries if entry not in known]}
    print_change(document, *lines, as_json=as_json, validate_only=validate_only)


@app.command("remove", epilog=examples("klamm acls remove User:alice read topic:orders"))
def remove(
    principal: _Principal,
    operation: _Operation = None,
    resource: _Resource = None,
    deny: _Deny = False,
    prefixed: _Prefixed = False,
    host: _Host = WILDCARD,
    producer: _Producer = False,
    consumer: _Consumer = False,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _TransactionalIds = None,
    idempotent: _Idempotent = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove entries, with the options with which they were added."""
    roles = Roles(producer, consumer, topics or (), groups or (), transactional_ids or (), idempotent)
    entries = entries_of(AclScope(principal, host, prefixed, deny), operation, resource, roles)
    wanted = {AclBindingFilter(*entry): entry for entry in entries}
    with connected(bootstrap, timeout) as admin:
        if validate_only:
            known = admin.describe_acls()
            removed = {acl_filter: tuple(filter(acl_filter.matches, known)) for acl_filter in wanted}
        else:
            removed = admin.delete_acls(wanted)
    if not any(removed.values()):
        fail(f"there is no entry {'; '.join(map(str, entries))}", ExitStatus.FAILED)
    verb = tense(validate_only, "removed", "remove")
    lines = [
        f"{verb} {entry}" if removed[acl_filter] else f"there is no entry {entry}"
        for acl_filter, entry in wanted.items()
    ]
    document = {"removed": [_document(entry) for acl_filter, entry in wanted.items() if removed[acl_filter]]}
    print_change(document, *lines, as_json=as_json, validate_only=validate_only)


@app.command("check", epilog=examples("klamm acls check User:alice read topic:orders"))
def check(
    principal: _Principal,
    operation: Annotated[
        str,
        typer.Argument(
            metavar="OP", help="The operation, for example read, write or alter-configs.", show_default=False
        ),
    ],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help=f"{_RESOURCE_HELP}.", show_default=False)],
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="The client's address [default: use only entries for every host].",
            show_default=False,
        ),
    ] = "",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Print whether a user may do something, and why.

    The reason is the rule that decides. The active controller decides as it does for a request. Exit status: 0 for
    allowed, 4 for denied."""
    question = (operation_of(operation), *resource_of(resource))
    with connected(bootstrap, timeout) as admin:
        decision = admin.check_acl(principal, *question, host=host)
    answer = "allowed" if decision.is_allowed else "denied"
    if as_json:
        print_json({"allowed": decision.is_allowed, "rule": _rule(decision)})
    else:
        print_sentences(f"{answer}: {_rule(decision)}")
    if not decision.is_allowed:
        raise typer.Exit(ExitStatus.DENIED)


def _row(acl: AclBinding) -> tuple[str, ...]:
    return (
        acl.principal,
        acl.permission_type.name,
        acl.operation.name,
        acl.resource_type.name,
        acl.pattern_type.name,
        acl.resource_name,
        acl.host,
    )


def _document(acl: AclBinding) -> dict[str, str]:
    return dict(zip(_COLUMNS, _row(acl), strict=True))


def _rule(decision: AclDecision) -> str:
    match decision.rule:
        case AclBinding():
            return str(decision.rule)
        case BuiltInRule.SUPER_USER:
            return "a super user (super.users)"
        case BuiltInRule.NO_ACL_FOUND:
            default = "true" if decision.is_allowed else "false"
            return f"by default, no entry is about it (allow.everyone.if.no.acl.found={default})"
        case BuiltInRule.NO_ACL_ALLOWS:
            return "by default, entries are about it and none allows this"
        case _:
            return "by a rule that only a newer klamm knows"
