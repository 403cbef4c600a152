"""Converts access control entries between messages and values."""

from __future__ import annotations

from typing import Any, Protocol

from klamm.acls import (
    AclBinding,
    AclBindingFilter,
    AclDecision,
    AclOperation,
    AclPermissionType,
    BuiltInRule,
    PatternType,
    ResourceType,
)
from klamm.wire.v1 import controller_pb2 as pb


class AclMessage(Protocol):
    """The fields that all messages and records of entries have."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def binding_of(message: AclMessage) -> AclBinding:
    """Returns the binding of a message. A number that Kafka does not have becomes UNKNOWN."""
    return AclBinding(
        ResourceType(message.resource_type),
        message.resource_name,
        PatternType(message.pattern_type),
        message.principal,
        message.host,
        AclOperation(message.operation),
        AclPermissionType(message.permission_type),
    )


def binding_message(binding: AclBinding) -> pb.AclBinding:
    """Returns the message of a binding, for a request or an answer."""
    return pb.AclBinding(**binding._asdict())


def filter_of(message: pb.AclBindingFilter) -> AclBindingFilter:
    """Returns the filter of a message. A number that Kafka does not have becomes UNKNOWN."""
    return AclBindingFilter(
        ResourceType(message.resource_type),
        message.resource_name if message.HasField("resource_name") else None,
        PatternType(message.pattern_type),
        message.principal if message.HasField("principal") else None,
        message.host if message.HasField("host") else None,
        AclOperation(message.operation),
        AclPermissionType(message.permission_type),
    )


def filter_message(wanted: AclBindingFilter) -> pb.AclBindingFilter:
    """Returns the message of a filter, for a request."""
    return pb.AclBindingFilter(**wanted._asdict())


def decision_fields(decision: AclDecision) -> dict[str, Any]:
    """Returns a decision as fields of CheckAclResponse."""
    if isinstance(decision.rule, AclBinding):
        return {"is_allowed": decision.is_allowed, "acl": binding_message(decision.rule)}
    return {"is_allowed": decision.is_allowed, "built_in": decision.rule}


def decision_of(message: pb.CheckAclResponse) -> AclDecision:
    """Returns the decision of a message. A rule that this version does not know becomes UNKNOWN."""
    rule = binding_of(message.acl) if message.HasField("acl") else BuiltInRule(message.built_in)
    return AclDecision(message.is_allowed, rule)
