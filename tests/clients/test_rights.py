"""Tests that the rows of `klamm_server.security.operations` for Kafka's APIs are what Apache Kafka asks for.

Kafka with its StandardAuthorizer gets the requests of `tests/integration/security/test_rights.py`, from clients with
the same sets of rights. Its outcomes are those of the rows, with the differences of `DIFFERENCES`. All clients are
anonymous, and the ACLs of each are for its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from klamm.acls import (
    ANONYMOUS,
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from klamm_broker.kafka.api import ApiKey
from tests.support.apache_kafka import running_kafka
from tests.support.every_request import codes_in
from tests.support.kafka_rights import KafkaThings, ask, kafka_cases
from tests.support.kafka_wire import KafkaWire
from tests.support.single_rights import OPENED, SERVERS, Addresses, Case, Rights, sets_of, unlike
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Until the first ACLs exist, which are those of this address. After them, an ACL of each type of resource exists.
    "allow.everyone.if.no.acl.found": "true",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
}
DIFFERENCES: Final = {
    "PRODUCE (to an internal topic)": "TOPIC_AUTHORIZATION_FAILED",
}
"""The outcome of cases for all sets of rights, where it is not that of the row. In Kafka, the right to write a topic is
also that to an internal one. These clients have it only for topics with their prefix."""
ACLS_AT_ONCE: Final = 1_000


def create_acls(wire: KafkaWire, bindings: Iterable[AclBinding]) -> None:
    creations: list[dict[str, Any]] = [
        {
            "resource_type": binding.resource_type,
            "resource_name": binding.resource_name,
            "resource_pattern_type": binding.pattern_type,
            "principal": binding.principal,
            "host": binding.host,
            "operation": binding.operation,
            "permission_type": binding.permission_type,
        }
        for binding in bindings
    ]
    answer = wire.ask(ApiKey.CREATE_ACLS, 3, {"creations": creations})
    assert codes_in(answer) == {0}, answer


def all_rights() -> Iterator[AclBinding]:
    """Yields the ACLs that give all rights to the broker and to the client that prepares the cluster."""
    for resource_type in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER):
        name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else WILDCARD
        yield AclBinding(
            resource_type, name, PatternType.LITERAL, ANONYMOUS, SERVERS, AclOperation.ALL, AclPermissionType.ALLOW
        )


def give(wire: KafkaWire, bootstrap: str, addresses: Addresses) -> None:
    """Creates the ACLs of all addresses, and waits until the broker has them."""
    bindings = iter(addresses.bindings(ANONYMOUS))
    while some := list(islice(bindings, ACLS_AT_ONCE)):
        create_acls(wire, some)
    # The addresses are in the order of their numbers of rights. So the last one may do everything.
    *_, (_, host) = addresses
    with KafkaWire(bootstrap, source=host) as last:
        asked = {"resource_types": []}
        wait_until(lambda: not last.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, asked).error_code)


def kafkas_line(case: Case, rights: Rights, outcome: str) -> str | None:
    """Returns a line for people if Kafka's outcome is neither that of the row nor a known difference, or None."""
    return None if DIFFERENCES.get(str(case)) == outcome else unlike(case, rights, outcome)


def test_apache_kafka_asks_for_the_rights_of_every_row(tmp_path: Path) -> None:
    wrong: list[str] = []
    outcomes: dict[str, set[str]] = {}
    with running_kafka(tmp_path, settings=SETTINGS) as kafka, KafkaWire(kafka.bootstrap) as wire:
        create_acls(wire, all_rights())
        cases = kafka_cases(KafkaThings(wire, lambda: kafka.log(1)))
        sets = {str(case): sets_of(case) for case in cases}
        addresses = Addresses(rights for each in sets.values() for rights in each)
        give(wire, kafka.bootstrap, addresses)
        for rights, host in addresses:
            with KafkaWire(kafka.bootstrap, source=host) as client:
                for case in cases:
                    if rights not in sets[str(case)]:
                        continue
                    outcome = ask(client, case)
                    outcomes.setdefault(str(case), set()).add(outcome)
                    wrong += filter(None, [kafkas_line(case, rights, outcome)])
                    if outcome == OPENED and case.renew is not None:
                        case.renew()
    assert not wrong, "\n".join(wrong)
    for name, outcome in DIFFERENCES.items():
        assert outcomes[name] == {outcome}, "the difference has vanished"
