"""Finds the changes, and the failed changes, in the answer to an administrative call.

The result has names only: no config values, and of a password only the user's name. Requests that the authorizer
refused are left out, because the audit already has an event for them. Requests with `validate_only` are left out too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from klamm.acls import ResourceType
from klamm.errors import ErrorCode
from klamm.wire.acls import binding_of
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_GROUP, CONFIG_RESOURCE_TYPE_TOPIC
from klamm_server.security.audit.events import Activity, AuditEvent, Category

_RECORDED_ALREADY: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


_NAMED: Final = {
    int(CONFIG_RESOURCE_TYPE_TOPIC): ResourceType.TOPIC,
    int(CONFIG_RESOURCE_TYPE_GROUP): ResourceType.GROUP,
}
"""The types of resources with configs. All others belong to the cluster."""


def is_change(call: str) -> bool:
    """Returns whether a call such as `CreateTopics` makes a change that the audit records."""
    return call in _CALLS


def changes_of(call: str, request: Any, response: Any) -> Iterator[AuditEvent]:
    """Yields the events of such a call, without the principal that made it."""
    if getattr(request, "validate_only", False):
        return
    found = _CALLS[call](request, response)
    if getattr(response, "error_code", 0):
        # The call failed as a whole and changed nothing.
        found = [_cluster(Activity.OTHER, response.error_code)]
    for event in found:
        if event.detail not in _TOLD_NAMES:
            yield event._replace(api=call)


def change(
    activity: Activity, resource_type: ResourceType, name: str, code: int, *, api: str = "", detail: str = ""
) -> AuditEvent:
    """Returns the event of a change of one resource. `detail` adds information if the change succeeded."""
    tallied = ErrorCode.of(code).name if code else detail
    return AuditEvent(
        Category.MANAGEMENT,
        activity,
        not code,
        "",
        "",
        api=api,
        resource_type=resource_type.name,
        resource_name=name,
        detail=tallied,
    )


_TOLD_NAMES: Final = frozenset(code.name for code in _RECORDED_ALREADY)


def _cluster(activity: Activity, code: int, detail: str = "") -> AuditEvent:
    return change(activity, ResourceType.CLUSTER, "kafka-cluster", code, detail=detail)


def _named(activity: Activity, resource_type: ResourceType) -> Callable[[Any, Any], Iterable[AuditEvent]]:
    """Reads the changes of answers that have a result for each name."""

    def events(request: Any, response: Any) -> Iterable[AuditEvent]:
        return (
            change(activity, resource_type, result.name, result.error_code)
            for result in response.results
            if result.error_code not in _RECORDED_ALREADY
        )

    return events


def _create_topics(request: Any, response: Any) -> Iterable[AuditEvent]:
    return [change(Activity.CREATE, ResourceType.TOPIC, topic.name, topic.error_code) for topic in response.topics]


def _alter_configs(request: Any, response: Any) -> Iterable[AuditEvent]:
    for asked, result in zip(request.resources, response.results, strict=False):
        names = ",".join(config.name for config in asked.changes)
        resource_type = _NAMED.get(asked.resource.type, ResourceType.CLUSTER)
        name = asked.resource.name
        yield change(Activity.UPDATE, resource_type, name, result.error_code, detail=names)


def _partitions(request: Any, response: Any) -> Iterable[AuditEvent]:
    return [
        change(Activity.UPDATE, ResourceType.TOPIC, f"{result.topic}-{result.partition}", result.error_code)
        for result in response.results
    ]


def _unregister_broker(request: Any, response: Any) -> Iterable[AuditEvent]:
    return [_cluster(Activity.DELETE, response.error_code, f"broker {request.broker_id}")]


def _voter(activity: Activity) -> Callable[[Any, Any], Iterable[AuditEvent]]:
    return lambda request, response: [_cluster(activity, response.error_code, f"controller {request.node_id}")]


def _create_acls(request: Any, response: Any) -> Iterable[AuditEvent]:
    for asked, result in zip(request.creations, response.results, strict=False):
        yield _acl(Activity.ATTACH_POLICY, asked, result.error_code)


def _delete_acls(request: Any, response: Any) -> Iterable[AuditEvent]:
    for result in response.results:
        if result.error_code:
            yield _cluster(Activity.OTHER, result.error_code)
        for removed in result.removed:
            yield _acl(Activity.DETACH_POLICY, removed, 0)


def _acl(activity: Activity, message: Any, code: int) -> AuditEvent:
    binding = binding_of(message)
    event = change(activity, binding.resource_type, binding.resource_name, code)
    return event._replace(rule=str(binding), account=binding.principal)


def _alter_users(request: Any, response: Any) -> Iterable[AuditEvent]:
    deleted = {deletion.name for deletion in request.deletions} - {upsertion.name for upsertion in request.upsertions}
    for result in response.results:
        activity = Activity.DELETE if result.name in deleted else Activity.CHANGE_PASSWORD
        event = change(activity, ResourceType.USER, result.name, result.error_code)
        yield event._replace(account=f"User:{result.name}")


def _alter_quotas(request: Any, response: Any) -> Iterable[AuditEvent]:
    for result in response.results:
        entity = ",".join(f"{part.type}={part.name or '<default>'}" for part in result.entity)
        yield _cluster(Activity.UPDATE, result.error_code, f"quotas of {entity}")


def _delete_groups(request: Any, response: Any) -> Iterable[AuditEvent]:
    return [
        change(Activity.DELETE, ResourceType.GROUP, result.group_id, result.error_code) for result in response.results
    ]


def _delete_offsets(request: Any, response: Any) -> Iterable[AuditEvent]:
    return [change(Activity.UPDATE, ResourceType.GROUP, request.group_id, 0)]


_CALLS: Final[dict[str, Callable[[Any, Any], Iterable[AuditEvent]]]] = {
    "CreateTopics": _create_topics,
    "DeleteTopics": _named(Activity.DELETE, ResourceType.TOPIC),
    "CreatePartitions": _named(Activity.UPDATE, ResourceType.TOPIC),
    "IncrementalAlterConfigs": _alter_configs,
    "ElectLeaders": _partitions,
    "AlterPartitionReassignments": _partitions,
    "UnregisterBroker": _unregister_broker,
    "AddRaftVoter": _voter(Activity.CREATE),
    "RemoveRaftVoter": _voter(Activity.DELETE),
    "CreateAcls": _create_acls,
    "DeleteAcls": _delete_acls,
    "AlterUserScramCredentials": _alter_users,
    "AlterClientQuotas": _alter_quotas,
    "DeleteGroups": _delete_groups,
    "OffsetDelete": _delete_offsets,
}
