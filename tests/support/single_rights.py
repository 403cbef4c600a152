"""Sets of rights for tests that give a client one right at a time, and the outcome that each set must have.

A caller's set of rights belongs to its address. The rights are to all resources whose names begin with the prefixes of
their types.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from klamm.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclDecision,
    AclOperation,
    AclPermissionType,
    BuiltInRule,
    PatternType,
    ResourceType,
)
from klamm.errors import ErrorCode
from klamm.ledger_ids import PREFIX as LEDGERS
from klamm_server.metadata.acl_index import AclDraft, AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.needs import Need, Right
from klamm_server.security.operations import Check
from tests.support.canary_cluster import CANARY

Rights = frozenset[Right]

_OPERATIONS: Final = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE TWO_PHASE_COMMIT",
    ResourceType.CLUSTER: "CREATE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS CLUSTER_ACTION IDEMPOTENT_WRITE",
}
"""The operations that an ACL can allow (Kafka's `AclEntry.supportedOperations`)."""
EVERY_RIGHT: Final[Rights] = frozenset(
    Right(AclOperation[name], resource_type) for resource_type, names in _OPERATIONS.items() for name in names.split()
)
TOPIC: Final = CANARY
GROUP: Final = f"group-{CANARY}"
ID: Final = f"id-{CANARY}"
"""A transactional id."""
PREFIXES: Final = {
    ResourceType.TOPIC: (TOPIC,),
    ResourceType.GROUP: (GROUP,),
    ResourceType.TRANSACTIONAL_ID: (ID, LEDGERS + CANARY),
}
"""The prefixes of the names of resources to which the rights are. No right is to the name of a resource of another
type, so that a check of the wrong name fails."""
_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
"""The operations that imply each operation (KIP-11)."""
REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPENED: Final = "opened"
LEFT_OUT: Final = "left out"
SERVERS: Final = "127.0.0.1"
"""The address of servers, and of the client that prepares the cluster. It has all rights."""
_NO_ACLS: Final = AclIndex()
_FIRST: Final = ipaddress.IPv4Address("127.1.0.1")


class Case(NamedTuple):
    """One request of an API or an RPC, with the needs of its row that it has."""

    call: str
    """Kafka's name of the API, or the path of the RPC."""
    about: str
    """The kind of the request, if the call has several cases."""
    needs: tuple[Need, ...]
    request: Callable[[], Any]
    refusals: tuple[str, ...] = ()
    """The outcome for a caller that has not the right of each need, but those of the needs before it."""
    version: int = -1
    """The version of a Kafka API."""
    shows: Callable[[Any], bool] | None = None
    """Returns True if the answer has the resource of the last need, which the answer leaves out without a right."""
    codes: Callable[[Any], Collection[int]] | None = None
    """Returns the error codes of the answer, if not all codes in it are meant."""
    renew: Callable[[], None] | None = None
    """Makes again what the request removes."""

    def __str__(self) -> str:
        return f"{self.call} ({self.about})" if self.about else self.call

    def expected(self, rights: Rights) -> str:
        """Returns the outcome for a caller with these rights."""
        unmet = (refusal for need, refusal in zip(self.needs, self.refusals, strict=True) if not is_met(need, rights))
        return next(unmet, OPENED)

    def outcome(self, codes: Collection[int], answer: Any) -> str:
        """Returns the outcome of an answer with these error codes."""
        refused = {ErrorCode.of(code).name for code in codes} & {code.name for code in REFUSALS.values()}
        if refused:
            return " and ".join(sorted(refused))
        return OPENED if self.shows is None or self.shows(answer) else LEFT_OUT


def needs_of(check: Check) -> tuple[Need, ...]:
    """Returns the needs of a row in the order in which they are checked."""
    if not check.of_cluster:
        return check.of_resources
    rights = tuple(Right(operation, ResourceType.CLUSTER) for operation in check.of_cluster)
    return (Need(rights, ResourceType.CLUSTER), *check.of_resources)


def refusals_of(needs: Iterable[Need]) -> tuple[str, ...]:
    return tuple(LEFT_OUT if need.refused_as is None else REFUSALS[need.refused_as].name for need in needs)


def is_met(need: Need, rights: Rights) -> bool:
    """Returns True if one of the rights is one that the need has, or implies it."""
    return not rights.isdisjoint(_meeting(need))


def _meeting(need: Need) -> Rights:
    return frozenset(
        Right(operation, right.resource_type)
        for right in need.one_of
        for operation in {right.operation, *_IMPLIED_BY.get(right.operation, ())}
    )


def sets_of(case: Case) -> set[Rights]:
    """Returns the sets of rights with which the case is asked.

    They are no right, all rights, and all but those that meet one need. For each need, every single right is tried,
    together with exactly the rights that the other needs have."""
    sets = {frozenset(), EVERY_RIGHT}
    exact = [next(right for right in need.one_of if right in EVERY_RIGHT) for need in case.needs]
    for number, need in enumerate(case.needs):
        others = frozenset(exact[:number] + exact[number + 1 :])
        sets.add(EVERY_RIGHT - _meeting(need))
        sets.update(others | {right} for right in EVERY_RIGHT)
    return sets


def unasked(check: Check, cases: Iterable[Case]) -> list[Need]:
    """Returns the needs of a row that no case has."""
    asked = {need for case in cases for need in case.needs}
    return [need for need in needs_of(check) if need not in asked]


def unlike(case: Case, rights: Rights, outcome: str) -> str | None:
    """Returns a line for people if the outcome is not that of the case's row, or None."""
    expected = case.expected(rights)
    if outcome == expected:
        return None
    missing = EVERY_RIGHT - rights
    given = text_of(rights) if len(rights) <= len(missing) else f"all rights but {text_of(missing)}"
    return f"{case} with {given}: {outcome}, expected {expected}"


def text_of(rights: Rights) -> str:
    names = (f"{operation.name} on {resource_type.name}" for operation, resource_type in sorted(rights))
    return ", ".join(names) or "no right"


class Addresses:
    """The address of each set of rights."""

    def __init__(self, sets: Iterable[Rights]) -> None:
        in_order = sorted(set(sets), key=lambda rights: (len(rights), sorted(rights)))
        self._by_rights = {rights: str(_FIRST + number) for number, rights in enumerate(in_order)}

    def __iter__(self) -> Iterator[tuple[Rights, str]]:
        return iter(self._by_rights.items())

    def bindings(self, principal: str) -> Iterator[AclBinding]:
        """Yields the ACLs that give `principal` the rights of its address."""
        for rights, host in self:
            for operation, resource_type in sorted(rights):
                for name in PREFIXES.get(resource_type, (CLUSTER_NAME,)):
                    pattern = PatternType.PREFIXED if resource_type in PREFIXES else PatternType.LITERAL
                    yield AclBinding(resource_type, name, pattern, principal, host, operation, AclPermissionType.ALLOW)


class RightsByAddress(StandardAuthorizer):
    """An authorizer that decides by the rights of the caller's address, with Kafka's rules. Servers have all rights."""

    def __init__(self) -> None:
        super().__init__(super_users=(), allow_everyone_if_no_acl_found=False)
        self._acls: dict[str, AclIndex] = {}
        """The ACLs of each address. Together, they would be slow to search."""

    def give(self, bindings: Iterable[AclBinding]) -> None:
        """Adds the ACLs, each of which is for one address."""
        drafts: defaultdict[str, AclDraft] = defaultdict(lambda: AclDraft(AclIndex()))
        for number, binding in enumerate(bindings):
            drafts[binding.host].add(uuid.UUID(int=number), binding)
        self._acls |= {host: draft.finish() for host, draft in drafts.items()}

    def authorize(
        self,
        acls: AclIndex,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AclDecision:
        if host == SERVERS:
            return AclDecision(True, BuiltInRule.SUPER_USER)
        return super().authorize(self._acls_of(host), principal, host, operation, resource_type, name)

    def authorize_by_resource_type(
        self, acls: AclIndex, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> AclDecision:
        if host == SERVERS:
            return AclDecision(True, BuiltInRule.SUPER_USER)
        return super().authorize_by_resource_type(self._acls_of(host), principal, host, operation, resource_type)

    def _acls_of(self, host: str) -> AclIndex:
        return self._acls.get(host, _NO_ACLS)
