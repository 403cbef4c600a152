"""Tests the audit events of changing calls, which have names but never values."""

from __future__ import annotations

import pytest

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.acls import binding_message
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1 import coordinator_pb2
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_GROUP, CONFIG_RESOURCE_TYPE_TOPIC
from klamm_server.security.audit.changes import _CALLS, changes_of, is_change
from klamm_server.security.audit.events import Activity
from klamm_server.security.operations import RPCS, check_of_rpc
from tests.support.callers import allow

CANARY = "canary-4711"
READ_ORDERS = allow(AclOperation.READ, ResourceType.TOPIC, "orders")
_READS = ("Describe", "List", "Check", "Find", "Fetch", "Watch")


def test_every_changing_admin_call_is_audited() -> None:
    changing = {name for name in RPCS["Admin"] if not name.startswith(_READS)}
    assert changing <= _CALLS.keys()
    assert all(any(name in calls for calls in RPCS.values()) for name in _CALLS)
    assert not is_change("Produce")
    assert check_of_rpc("/klamm.v1.Admin/CreateAcls").of_cluster


def test_topic_changes_are_audited_by_their_own_results() -> None:
    results = [
        pb.CreatedTopic(name="a"),
        pb.CreatedTopic(name="b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        pb.CreatedTopic(name="c", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    events = list(changes_of("CreateTopics", pb.CreateTopicsRequest(), pb.CreateTopicsResponse(topics=results)))
    assert [(event.resource_name, event.is_allowed, event.detail) for event in events] == [
        ("a", True, ""),
        ("b", False, "TOPIC_ALREADY_EXISTS"),
    ], "what the authorizer has refused is told as that"
    assert {(event.api, event.activity, event.resource_type) for event in events} == {
        ("CreateTopics", Activity.CREATE, "TOPIC")
    }


def test_a_validate_only_request_is_not_audited() -> None:
    asked = pb.CreateTopicsRequest(validate_only=True)
    answered = pb.CreateTopicsResponse(topics=[pb.CreatedTopic(name="a")])
    assert list(changes_of("CreateTopics", asked, answered)) == []


@pytest.mark.parametrize("call", sorted(_CALLS))
def test_a_call_that_was_refused_as_a_whole_is_audited_once(call: str) -> None:
    module = coordinator_pb2 if call in RPCS["Coordinator"] else pb
    request, response = getattr(module, f"{call}Request")(), getattr(module, f"{call}Response")()
    if "error_code" not in response.DESCRIPTOR.fields_by_name:
        return
    response.error_code = ErrorCode.NOT_CONTROLLER
    (event,) = changes_of(call, request, response)
    assert (event.is_allowed, event.detail, event.api) == (False, "NOT_CONTROLLER", call)


def test_config_changes_are_audited_by_name_without_their_values() -> None:
    resource = pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="orders")
    changes = [pb.ConfigChange(name="retention.ms", value=CANARY), pb.ConfigChange(name="segment.ms", value=CANARY)]
    request = pb.IncrementalAlterConfigsRequest(resources=[pb.AlterConfigsResource(resource=resource, changes=changes)])
    response = pb.IncrementalAlterConfigsResponse(results=[pb.NamedResult(name="orders")])
    (event,) = changes_of("IncrementalAlterConfigs", request, response)
    assert (event.resource_name, event.detail) == ("orders", "retention.ms,segment.ms")
    assert CANARY not in str(event)


def test_a_refused_change_of_a_groups_configs_names_the_group() -> None:
    resource = pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_GROUP, name="shop")
    request = pb.IncrementalAlterConfigsRequest(resources=[pb.AlterConfigsResource(resource=resource)])
    response = pb.IncrementalAlterConfigsResponse(results=[pb.NamedResult(error_code=ErrorCode.INVALID_REQUEST)])
    (event,) = changes_of("IncrementalAlterConfigs", request, response)
    assert (event.resource_type, event.resource_name) == ("GROUP", "shop")


def test_user_changes_are_audited_without_their_passwords() -> None:
    request = pb.AlterUserScramCredentialsRequest(
        upsertions=[pb.ScramCredentialUpsertion(name="alice", salted_password=CANARY.encode(), salt=CANARY.encode())],
        deletions=[pb.ScramCredentialDeletion(name="bob")],
    )
    response = pb.AlterUserScramCredentialsResponse(
        results=[pb.NamedResult(name="alice"), pb.NamedResult(name="bob", error_code=ErrorCode.RESOURCE_NOT_FOUND)]
    )
    alice, bob = changes_of("AlterUserScramCredentials", request, response)
    assert (alice.account, alice.activity, alice.is_allowed) == ("User:alice", Activity.CHANGE_PASSWORD, True)
    assert (bob.account, bob.activity, bob.is_allowed) == ("User:bob", Activity.DELETE, False)
    assert CANARY not in f"{alice}{bob}"


def test_acl_changes_are_audited_with_their_binding() -> None:
    message = binding_message(READ_ORDERS)
    request = pb.CreateAclsRequest(creations=[message])
    (made,) = changes_of("CreateAcls", request, pb.CreateAclsResponse(results=[pb.AclCreationResult()]))
    assert (made.account, made.rule, made.activity) == ("User:alice", str(READ_ORDERS), Activity.ATTACH_POLICY)
    removed = pb.DeleteAclsResponse(results=[pb.DeleteAclsFilterResult(removed=[message])])
    (gone,) = changes_of("DeleteAcls", pb.DeleteAclsRequest(), removed)
    assert gone == made._replace(activity=Activity.DETACH_POLICY, api="DeleteAcls")
