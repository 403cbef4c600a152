"""Tests access control entries as Kafka clients name them, through a controller's decisions and back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.acls import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.acls import AclApis
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.acl_controller import AclController
from tests.support.cold_requests import answer_of

ORDERS = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
WRITE = ORDERS._replace(operation=AclOperation.WRITE)
TEAM = ORDERS._replace(resource_name="team-", pattern_type=PatternType.PREFIXED)
VERSIONS = range(SPOKEN[ApiKey.CREATE_ACLS].min, SPOKEN[ApiKey.CREATE_ACLS].max + 1)


class Client:
    """A client that uses one version of the protocol."""

    def __init__(self, controller: AclController, version: int) -> None:
        self._apis = AclApis(controller)
        self._version = version

    def create(self, *bindings: AclBinding) -> list[tuple[int, str | None]]:
        creations = [
            {
                "resource_type": binding.resource_type,
                "resource_name": binding.resource_name,
                "resource_pattern_type": binding.pattern_type,
                **_entry(binding),
            }
            for binding in bindings
        ]
        answer = self._ask(self._apis.create, ApiKey.CREATE_ACLS, {"creations": creations})
        return [(result.error_code, result.error_message) for result in answer.results]

    def describe(self, wanted: AclBindingFilter) -> Any:
        return self._ask(self._apis.describe, ApiKey.DESCRIBE_ACLS, _filter(wanted))

    def described(self, wanted: AclBindingFilter) -> list[AclBinding]:
        answer = self.describe(wanted)
        assert (answer.error_code, answer.error_message) == (0, None)
        return [
            AclBinding(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                AclPermissionType(acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        ]

    def delete(self, *filters: AclBindingFilter) -> Any:
        fields = {"filters": [_filter(each) for each in filters]}
        return self._ask(self._apis.delete, ApiKey.DELETE_ACLS, fields).filter_results

    def _ask(self, handler: Any, api_key: ApiKey, fields: dict[str, Any]) -> Any:
        return asyncio.run(answer_of(handler, api_key, self._version, fields))


def _entry(binding: AclBinding) -> dict[str, Any]:
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission_type,
    }


def _filter(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


@pytest.fixture(params=VERSIONS)
def client(request: pytest.FixtureRequest) -> Client:
    return Client(AclController(), request.param)


def test_a_created_acl_can_be_described_and_removed(client: Client) -> None:
    bad = ORDERS._replace(resource_name="")
    assert client.create(ORDERS, TEAM, bad, WRITE, ORDERS) == [
        (0, None),
        (0, None),
        (ErrorCode.INVALID_REQUEST, "Invalid empty resource name"),
        (0, None),
        (0, None),
    ]
    assert set(client.described(AclBindingFilter())) == {ORDERS, TEAM, WRITE}
    match = AclBindingFilter(resource_name="team-x", pattern_type=PatternType.MATCH)
    assert client.described(match) == [TEAM]
    first, second = client.delete(match, AclBindingFilter(operation=AclOperation.UNKNOWN))
    assert (first.error_code, first.error_message) == (0, None)
    (removed,) = first.matching_acls
    assert (removed.error_code, removed.resource_name, removed.pattern_type) == (0, "team-", PatternType.PREFIXED)
    assert (removed.principal, removed.host, removed.operation) == ("User:a", "*", AclOperation.READ)
    assert (second.error_code, second.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    assert set(client.described(AclBindingFilter())) == {ORDERS, WRITE}


def test_entries_of_one_pattern_are_described_together(client: Client) -> None:
    client.create(ORDERS, TEAM, WRITE)
    answer = client.describe(AclBindingFilter())
    assert [(resource.resource_name, len(resource.acls)) for resource in answer.resources] == [
        ("orders", 2),
        ("team-", 1),
    ]


def test_an_unknown_filter_is_refused(client: Client) -> None:
    answer = client.describe(AclBindingFilter(resource_type=ResourceType.UNKNOWN))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    assert answer.resources == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_controllers_refusal_is_reported_for_each_acl(version: int) -> None:
    client = Client(AclController(ErrorCode.SECURITY_DISABLED), version)
    assert client.create(ORDERS, TEAM) == [(ErrorCode.SECURITY_DISABLED, "as it was told")] * 2
    deleted = client.delete(AclBindingFilter())
    assert [(each.error_code, each.matching_acls) for each in deleted] == [(ErrorCode.SECURITY_DISABLED, ())]
    assert client.describe(AclBindingFilter()).error_code == ErrorCode.SECURITY_DISABLED
