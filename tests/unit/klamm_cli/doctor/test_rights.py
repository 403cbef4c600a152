"""Tests the check for users that can log in but have no right."""

from __future__ import annotations

from typing import Any

from klamm.acls import WILDCARD_PRINCIPAL, AclBinding, AclDecision, AclOperation, BuiltInRule, ResourceType
from klamm.errors import ErrorCode
from klamm_cli.doctor.finding import Level
from klamm_cli.doctor.rights import check_rights, check_users
from tests.support.callers import allow

OF_ALICE = allow(AclOperation.READ, ResourceType.TOPIC, "t")
"""She is User:alice."""


class Admin:
    """The Admin of a cluster with these users. root is a super user."""

    def __init__(self, users: set[str], code: ErrorCode = ErrorCode.NONE) -> None:
        self._users = users
        self._code = code

    def describe_acls(self, *, timeout_ms: int) -> tuple[AclBinding, ...]:
        if self._code:
            raise self._code.exception("as it was told")
        return (OF_ALICE,)

    def describe_user_scram_credentials(self, *, timeout_ms: int) -> dict[str, object]:
        return dict.fromkeys(self._users)

    def check_acl(self, principal: str, *_: object, timeout_ms: int) -> AclDecision:
        is_root = principal == "User:root"
        return AclDecision(is_root, BuiltInRule.SUPER_USER if is_root else BuiltInRule.NO_ACL_FOUND)


def levels(users: set[str], acls: list[AclBinding]) -> list[Level]:
    return [check_user.level for check_user in check_users(users, acls)]


def test_users_without_an_acl_are_named() -> None:
    (found,) = check_users({"alice", "bob", "carol"}, [OF_ALICE])
    assert found.level is Level.WARNING
    assert found.text.endswith("bob, carol")


def test_users_who_all_have_an_acl_are_no_problem() -> None:
    assert levels({"alice"}, [OF_ALICE]) == [Level.OK]
    assert levels(set(), []) == []
    assert levels({"bob"}, [OF_ALICE._replace(principal=WILDCARD_PRINCIPAL)]) == []


def test_super_users_need_no_acl() -> None:
    admin: Any = Admin({"alice", "root"})
    assert [check_right.level for check_right in check_rights(admin, 1_000)] == [Level.OK]


def test_without_an_authorizer_the_rights_of_users_are_not_checked() -> None:
    admin: Any = Admin({"bob"}, ErrorCode.SECURITY_DISABLED)
    assert check_rights(admin, 1_000) == []
