"""Finds users without any rights in a cluster with an authorizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from klamm.acls import CLUSTER_NAME, WILDCARD_PRINCIPAL, AclBinding, AclOperation, BuiltInRule, ResourceType
from klamm.errors import KlammError
from klamm_cli.doctor.finding import Finding, ok, warning
from klamm_cli.status.problems import name_some

if TYPE_CHECKING:
    from klamm import Admin


def check_rights(admin: Admin, timeout_ms: int) -> list[Finding]:
    """Returns the findings about the users' rights. Returns none if there is no authorizer, or if the caller may not
    read ACLs."""
    try:
        acls = admin.describe_acls(timeout_ms=timeout_ms)
        users = admin.describe_user_scram_credentials(timeout_ms=timeout_ms)
        supers = {name for name in users if _is_super(admin, name, timeout_ms)}
    except KlammError:
        return []
    return list(check_users(users.keys() - supers, acls))


def _is_super(admin: Admin, user: str, timeout_ms: int) -> bool:
    decision = admin.check_acl(
        f"User:{user}", AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, timeout_ms=timeout_ms
    )
    return decision.rule is BuiltInRule.SUPER_USER


def check_users(users: Iterable[str], acls: Iterable[AclBinding]) -> Iterator[Finding]:
    """Yields the findings about `users`, who log in by a password and are not super users. Pure."""
    named = {acl.principal for acl in acls}
    if WILDCARD_PRINCIPAL in named:
        return
    known = sorted(users)
    without = [user for user in known if f"User:{user}" not in named]
    if without:
        yield warning(
            "rights",
            f"users who may log in, but whom no access control list names: {name_some(without)}",
            "`klamm acls add User:NAME ...` gives rights, `klamm users delete NAME` takes the login",
        )
    elif known:
        yield ok("rights", f"{len(known)} users, each with access control lists")
