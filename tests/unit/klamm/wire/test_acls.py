"""Tests access control entries through their messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.acls import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm.wire.acls import binding_message, binding_of, filter_message, filter_of
from klamm.wire.v1.controller_pb2 import AclBinding as AclBindingMessage
from klamm.wire.v1.controller_pb2 import AclBindingFilter as AclBindingFilterMessage
from tests.support.acl_strategies import BINDINGS

FILTERS = st.builds(
    AclBindingFilter,
    resource_type=st.sampled_from(ResourceType),
    resource_name=st.none() | st.sampled_from(["", "orders"]),
    pattern_type=st.sampled_from(PatternType),
    principal=st.none() | st.sampled_from(["", "User:alice"]),
    host=st.none() | st.sampled_from(["", "*"]),
    operation=st.sampled_from(AclOperation),
    permission_type=st.sampled_from(AclPermissionType),
)


@given(BINDINGS)
def test_an_acl_binding_round_trips_through_its_message(binding: AclBinding) -> None:
    message = AclBindingMessage.FromString(binding_message(binding).SerializeToString())
    assert binding_of(message) == binding


@given(FILTERS)
def test_an_acl_filter_round_trips_through_its_message(wanted: AclBindingFilter) -> None:
    message = AclBindingFilterMessage.FromString(filter_message(wanted).SerializeToString())
    assert filter_of(message) == wanted


@given(st.integers(-128, -1) | st.integers(16, 127))
def test_numbers_that_kafka_does_not_have_are_unknown(number: int) -> None:
    message = AclBindingMessage(resource_type=number, pattern_type=number, operation=number, permission_type=number)
    binding = binding_of(message)
    assert binding.resource_type is ResourceType.UNKNOWN
    assert binding.pattern_type is PatternType.UNKNOWN
    assert binding.operation is AclOperation.UNKNOWN
    assert binding.permission_type is AclPermissionType.UNKNOWN
