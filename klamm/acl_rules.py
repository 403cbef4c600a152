"""The rules for a valid ACL entry, mostly in Kafka's words. The controller refuses other entries."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from klamm.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HOSTS_MAX: Final = 8192
"""The maximum number of parsed ranges that are cached."""


def binding_problem(binding: AclBinding) -> str:
    """Returns the reason why the entry is invalid, mostly in Kafka's words, or empty text if it is valid."""
    problem = resource_problem(binding.resource_type, binding.resource_name)
    if problem:
        return problem
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {binding.pattern_type.name}"
    if binding.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {binding.operation.name}"
    if binding.permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        return f"Invalid permissionType {binding.permission_type.name}"
    return principal_problem(binding.principal) or host_problem(binding.host)


def resource_problem(resource_type: ResourceType, name: str) -> str:
    """Returns why no ACL can be about that resource, or empty text."""
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}, not {name!r}"
    if not name:
        return "Invalid empty resource name"
    if resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {resource_type.name}"
    return ""


def principal_problem(principal: str) -> str:
    """Returns why no ACL can be for that principal, or empty text."""
    if ":" in principal:
        return ""
    return (
        f"Could not parse principal from `{principal}`"
        " (no colon is present separating the principal type from the principal name)"
    )


def host_problem(acl_host: str) -> str:
    """Returns why no ACL can have that host, or empty text. As in Kafka, a name is accepted but matches no client."""
    if not acl_host:
        return "Host should not be empty"
    if "/" in acl_host and network_of_range(acl_host) is None:
        return f"Invalid CIDR notation '{acl_host}': expected an IPv4 or IPv6 address, '/' and the prefix's length"
    return ""


@lru_cache(_HOSTS_MAX)
def network_of_range(text: str) -> _Network | None:
    """Returns the network of a range, or None. As in Kafka, bits after the prefix are allowed, but netmasks and
    IPv4-mapped ranges are not."""
    address, _, length = text.partition("/")
    if not (length.isascii() and length.isdecimal()):
        return None
    try:
        network = ipaddress.ip_network(f"{address}/{length}", strict=False)
    except ValueError:
        return None
    is_mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None
    return None if is_mapped else network
