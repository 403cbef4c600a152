"""Tests how access control entries are created, deleted and described, and the words of Kafka's refusals."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.acls import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.acls import binding_message, binding_of, filter_message
from klamm.wire.v1 import controller_pb2 as pb
from klamm_controller.metadata import acls as module
from klamm_controller.metadata.acls import describe_acls, handle_create_acls, handle_delete_acls
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.support.acl_strategies import BINDINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDERS = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
TEAM = ORDERS._replace(resource_name="team-", pattern_type=PatternType.PREFIXED)
GROUP = ORDERS._replace(resource_type=ResourceType.GROUP)


class Acls:
    """An image, changed by the real handlers."""

    def __init__(self, *bindings: AclBinding) -> None:
        self.image = MetadataImage.empty()
        self.rng = random.Random(1)
        assert not self.create(*bindings).error_code

    def create(self, *bindings: AclBinding) -> pb.CreateAclsResponse:
        request = pb.CreateAclsRequest(creations=map(binding_message, bindings))
        decision = handle_create_acls(request, self.image, self.rng)
        self.image = replay(self.image, decision.records, self.image.end_index + len(decision.records))
        return decision.reply

    def delete(self, *filters: AclBindingFilter) -> pb.DeleteAclsResponse:
        decision = handle_delete_acls(pb.DeleteAclsRequest(filters=map(filter_message, filters)), self.image)
        self.image = replay(self.image, decision.records, self.image.end_index + len(decision.records))
        return decision.reply

    def all(self) -> set[AclBinding]:
        return set(self.image.acls.by_id.values())


def described(acls: Acls, wanted: AclBindingFilter) -> list[AclBinding]:
    answer = describe_acls(pb.DescribeAclsRequest(filter=filter_message(wanted)), acls.image)
    assert answer.error_code == ErrorCode.NONE
    return [binding_of(acl) for acl in answer.acls]


def outcomes(results: Sequence[pb.AclCreationResult | pb.DeleteAclsFilterResult]) -> list[tuple[int, str]]:
    return [(result.error_code, result.error_message) for result in results]


@given(st.lists(BINDINGS, max_size=8), st.lists(BINDINGS, max_size=8))
def test_creating_existing_acls_succeeds_without_records(first: list[AclBinding], second: list[AclBinding]) -> None:
    acls = Acls(*first)
    reply = acls.create(*second, *first)
    assert outcomes(reply.results) == [(ErrorCode.NONE, "")] * (len(first) + len(second))
    assert acls.all() == {*first, *second}
    assert acls.image.end_index == len(acls.all())


@given(st.lists(BINDINGS, max_size=12), st.lists(BINDINGS, min_size=1, max_size=3))
def test_delete_removes_the_acls_that_the_filters_match(created: list[AclBinding], named: list[AclBinding]) -> None:
    acls = Acls(*created)
    filters = [AclBindingFilter(resource_name=each.resource_name, principal=each.principal) for each in named]
    reply = acls.delete(*filters)
    for wanted, result in zip(filters, reply.results, strict=True):
        assert {binding_of(each) for each in result.removed} == {each for each in created if wanted.matches(each)}
    assert acls.all() == {each for each in created if not any(wanted.matches(each) for wanted in filters)}


def test_describe_returns_the_acls_that_the_filter_matches() -> None:
    acls = Acls(ORDERS, TEAM, GROUP)
    topics = AclBindingFilter(resource_type=ResourceType.TOPIC)
    assert described(acls, AclBindingFilter()) == [ORDERS, TEAM, GROUP]
    assert described(acls, topics) == [ORDERS, TEAM]
    assert described(acls, topics._replace(resource_name="team-x", pattern_type=PatternType.MATCH)) == [TEAM]


CLUSTER = ORDERS._replace(resource_type=ResourceType.CLUSTER, resource_name="kafka-cluster")
REFUSED = {
    "The only valid name for the CLUSTER resource is kafka-cluster, not 'other'": CLUSTER._replace(
        resource_name="other"
    ),
    "Invalid empty resource name": ORDERS._replace(resource_name=""),
    "Invalid resourceType ANY": ORDERS._replace(resource_type=ResourceType.ANY),
    "Invalid resourceType UNKNOWN": ORDERS._replace(resource_type=ResourceType.UNKNOWN),
    "Invalid patternType MATCH": ORDERS._replace(pattern_type=PatternType.MATCH),
    "Invalid patternType UNKNOWN": ORDERS._replace(pattern_type=PatternType.UNKNOWN),
    "Invalid operation ANY": ORDERS._replace(operation=AclOperation.ANY),
    "Invalid permissionType ANY": ORDERS._replace(permission_type=AclPermissionType.ANY),
    "Could not parse principal from `alice` (no colon is present separating the principal type from the principal"
    " name)": ORDERS._replace(principal="alice"),
    "Host should not be empty": ORDERS._replace(host=""),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_an_invalid_acl_is_refused_and_the_others_are_created(problem: str) -> None:
    acls = Acls()
    reply = acls.create(ORDERS, REFUSED[problem], TEAM)
    assert outcomes(reply.results) == [
        (ErrorCode.NONE, ""),
        (ErrorCode.INVALID_REQUEST, problem),
        (ErrorCode.NONE, ""),
    ]
    assert acls.all() == {ORDERS, TEAM}


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (AclBindingFilter(resource_type=ResourceType.UNKNOWN), "Unknown patternFilter."),
        (AclBindingFilter(pattern_type=PatternType.UNKNOWN), "Unknown patternFilter."),
        (AclBindingFilter(operation=AclOperation.UNKNOWN), "Unknown entryFilter."),
        (AclBindingFilter(permission_type=AclPermissionType.UNKNOWN), "Unknown entryFilter."),
    ],
)
def test_a_filter_with_an_unknown_value_is_refused(wanted: AclBindingFilter, problem: str) -> None:
    acls = Acls(ORDERS, GROUP)
    reply = acls.delete(wanted, AclBindingFilter(resource_type=ResourceType.GROUP))
    assert outcomes(reply.results) == [(ErrorCode.INVALID_REQUEST, problem), (ErrorCode.NONE, "")]
    assert acls.all() == {ORDERS}
    answer = describe_acls(pb.DescribeAclsRequest(filter=filter_message(wanted)), acls.image)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, problem)
    assert not answer.acls


def test_a_request_with_too_many_acls_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACLS_PER_REQUEST_MAX", 2)
    acls = Acls(ORDERS, TEAM)
    three = [ORDERS._replace(principal=f"User:{number}") for number in range(3)]
    assert acls.create(*three).error_code == ErrorCode.POLICY_VIOLATION
    assert acls.all() == {ORDERS, TEAM}
    assert acls.create(*three[:2], ORDERS).error_code == ErrorCode.NONE
    reply = acls.delete(AclBindingFilter())
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert reply.error_message == "Cannot remove more than 2 acls in a single delete operation."
    assert len(acls.all()) == 4
