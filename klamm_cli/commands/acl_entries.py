"""Turns the arguments of `klamm acls` into ACL entries: one entry, or all entries that a producer or a consumer
needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, NoReturn

from klamm.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import fail

_READ, _WRITE, _DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: Final = {
    operation.name.lower().replace("_", "-"): operation
    for operation in AclOperation
    if operation not in (AclOperation.UNKNOWN, AclOperation.ANY)
}


class AclScope(NamedTuple):
    """The principal, host, pattern type and permission that all entries of one command share."""

    principal: str
    host: str
    prefixed: bool
    deny: bool

    def entry(self, operation: AclOperation, resource_type: ResourceType, name: str) -> AclBinding:
        """Returns the entry that allows or denies `operation` on the resource of this type and name."""
        return AclBinding(
            resource_type,
            name,
            PatternType.PREFIXED if self.prefixed else PatternType.LITERAL,
            self.principal,
            self.host,
            operation,
            AclPermissionType.DENY if self.deny else AclPermissionType.ALLOW,
        )


class Roles(NamedTuple):
    """The options that stand for several entries, with kafka-acls' meaning."""

    producer: bool
    consumer: bool
    topics: Sequence[str]
    groups: Sequence[str]
    transactional_ids: Sequence[str]
    idempotent: bool

    @property
    def is_any(self) -> bool:
        """True if the command line has at least one of these options."""
        return any(self)

    def check(self, whom: AclScope) -> None:
        """Ends the command with a usage error if the options contradict each other or `whom`."""
        if not (self.producer or self.consumer):
            _fail("--topic, --group, --transactional-id, --idempotent: expected with --producer or --consumer")
        if whom.deny:
            _fail("--deny: expected neither --producer nor --consumer with it")
        if not self.topics:
            _fail("--producer, --consumer: expected --topic with it")
        if self.consumer and not self.groups:
            _fail("--consumer: expected --group with it")
        if self.groups and not self.consumer:
            _fail("--group: expected with --consumer")
        if (self.transactional_ids or self.idempotent) and not self.producer:
            _fail("--transactional-id, --idempotent: expected with --producer")

    def entries(self, whom: AclScope) -> list[AclBinding]:
        """Returns the ACL entries that the options stand for, without duplicates."""
        found: dict[AclBinding, None] = {}
        if self.producer:
            found |= _each(whom, (_WRITE, _DESCRIBE, AclOperation.CREATE), ResourceType.TOPIC, self.topics)
            found |= _each(whom, (_WRITE, _DESCRIBE), ResourceType.TRANSACTIONAL_ID, self.transactional_ids)
        if self.idempotent:
            # There is only one cluster, so its name is never a prefix of others.
            cluster = whom._replace(prefixed=False)
            found |= _each(cluster, (AclOperation.IDEMPOTENT_WRITE,), ResourceType.CLUSTER, (CLUSTER_NAME,))
        if self.consumer:
            found |= _each(whom, (_READ, _DESCRIBE), ResourceType.TOPIC, self.topics)
            found |= _each(whom, (_READ,), ResourceType.GROUP, self.groups)
        return list(found)


def entries_of(whom: AclScope, operation: str | None, resource: str | None, roles: Roles) -> list[AclBinding]:
    """Returns the entries that the arguments name. Ends the command if they name no entry, or if an operation comes
    together with --producer or --consumer."""
    if roles.is_any:
        if operation is not None:
            _fail(f"operation {operation!r}: expected none with --producer and --consumer, which name their own")
        roles.check(whom)
        return roles.entries(whom)
    if operation is None or resource is None:
        _fail("expected OP and RESOURCE, or --producer or --consumer with --topic")
    return [whom.entry(operation_of(operation), *resource_of(resource))]


def operation_of(text: str) -> AclOperation:
    """Returns the operation that a text such as `alter-configs` names. Ends the command if it names none."""
    if text.lower() not in _OPERATIONS:
        _fail(f"operation {text!r}: expected one of {', '.join(_OPERATIONS)}")
    return _OPERATIONS[text.lower()]


def resource_of(text: str) -> tuple[ResourceType, str]:
    """Returns the resource that a text such as `topic:orders` names. Ends the command if it names none."""
    if text == "cluster":
        return ResourceType.CLUSTER, CLUSTER_NAME
    kind, _, name = text.partition(":")
    if kind not in _RESOURCES or not name:
        _fail(f"resource {text!r}: expected topic:NAME, group:NAME, transactional-id:NAME or cluster")
    return _RESOURCES[kind], name


def _each(
    whom: AclScope, operations: Iterable[AclOperation], resource_type: ResourceType, names: Iterable[str]
) -> dict[AclBinding, None]:
    return {whom.entry(operation, resource_type, name): None for name in names for operation in operations}


def _fail(text: str) -> NoReturn:
    fail(text, ExitStatus.USAGE)
