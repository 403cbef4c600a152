"""Returns the operations that a client may perform on a resource, as a bit field (KIP-430).

The bits and sets are those of Kafka's `AclOperation` and `AclEntry.supportedOperations`. Without an authorizer, a
client may perform all operations that the resource supports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm_server.security.session import CALLER

NOT_ASKED_FOR: Final = -(2**31)

_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_SUPPORTED: Final = {
    ResourceType.CLUSTER: (
        *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, *_CONFIGS),
        *(AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE),
    ),
    ResourceType.TOPIC: (
        *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER),
        *(AclOperation.DESCRIBE, *_CONFIGS),
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS),
}


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_ALL: Final = {resource_type: _bits(operations) for resource_type, operations in _SUPPORTED.items()}


def of_cluster(is_asked_for: bool) -> int:
    """Returns the operations that the client may perform on the cluster, if it asked for them."""
    return _of(ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for)


def of_topic(name: str, is_asked_for: bool = True) -> int:
    """Returns the operations that the client may perform on a topic, if it asked for them."""
    return _of(ResourceType.TOPIC, name, is_asked_for)


def of_group(group_id: str, is_asked_for: bool) -> int:
    """Returns the operations that the client may perform on a group, if it asked for them."""
    return _of(ResourceType.GROUP, group_id, is_asked_for)


def _of(resource_type: ResourceType, name: str, is_asked_for: bool) -> int:
    if not is_asked_for:
        return NOT_ASKED_FOR
    caller = CALLER.get()
    if caller is None:
        return _ALL[resource_type]
    return _bits(
        operation for operation in _SUPPORTED[resource_type] if caller.may_be_shown(operation, resource_type, name)
    )
