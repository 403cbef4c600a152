"""Klamm and a real Apache Kafka, asked the same."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from tests.clients import scenarios
from tests.support.apache_kafka import ApacheKafka, running_kafka
from tests.support.kafka_wire import KafkaWire

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
SETTLE_S = 60


def ranges(bootstrap: str) -> dict[int, tuple[int, int]]:
    """api key -> first and last version"""
    asked = {"client_software_name": "wire", "client_software_version": "1"}
    with KafkaWire(bootstrap) as wire:
        answer = wire.ask(ApiKey.API_VERSIONS, 3, asked)
    assert answer.error_code == ErrorCode.none
    return {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in answer.api_keys}


def test_klamm_speaks_no_version_that_kafka_does_not(bootstrap: str, apache_kafka: ApacheKafka) -> None:
    ours, theirs = ranges(bootstrap), ranges(apache_kafka.bootstrap)
    assert ours.keys() <= theirs.keys()
    beyond = {
        key: (spoken, theirs[key])
        for key, spoken in ours.items()
        if spoken[0] < theirs[key][0] or spoken[1] > theirs[key][1]
    }
    assert not beyond


def test_three_started_kafka_nodes_list_each_other_as_brokers(tmp_path) -> None:
    asked = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    with running_kafka(tmp_path, brokers=3) as kafka:
        assert len(kafka.bootstrap.split(",")) == 3
        for address in kafka.bootstrap.split(","):
            with KafkaWire(address) as wire:
                assert {broker.node_id for broker in wire.ask(ApiKey.METADATA, 12, asked).brokers} == {1, 2, 3}


def coordinated(bootstrap: str, keys: list[str]) -> dict[str, Any]:
    """Returns how many brokers list each group, name it as theirs, and describe it. Also returns the answers of the
    others."""
    addresses = bootstrap.split(",")
    with KafkaWire(addresses[0]) as wire:
        for key in keys:
            scenarios.find_coordinator(wire, key)
    found = {}
    for key in keys:
        with KafkaWire(addresses[0]) as wire:
            asked = {"key_type": scenarios.GROUP, "coordinator_keys": [key]}
            (named,) = wire.ask(ApiKey.FIND_COORDINATOR, 4, asked).coordinators
        found[key] = f"{named.host}:{named.port}"
        with KafkaWire(found[key]) as wire:
            join = {
                "group_id": key,
                "session_timeout": 60_000,
                "rebalance_timeout": 10_000,
                "member_id": "",
                "group_instance_id": "one",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
                "reason": None,
            }
            assert scenarios.settled(lambda wire=wire, join=join: wire.ask(ApiKey.JOIN_GROUP, 9, join)).error_code == 0
    listed: list[tuple[str, str]] = []
    elsewhere: set[tuple[Any, ...]] = set()
    for address in addresses:
        with KafkaWire(address) as wire:
            groups = wire.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}).groups
            listed += [(group.group_id, address) for group in groups if group.group_id in keys]
            others = [key for key in keys if found[key] != address]
            asked = {"groups": others, "include_authorized_operations": True}
            elsewhere |= {
                (
                    "describe",
                    group.error_code,
                    group.group_state,
                    group.protocol_type,
                    group.members,
                    group.authorized_operations,
                )
                for group in wire.ask(ApiKey.DESCRIBE_GROUPS, 5, asked).groups
            }
            asked = {"group_ids": others, "include_authorized_operations": True}
            elsewhere |= {
                ("describe new", group.error_code, group.group_state, group.members, group.authorized_operations)
                for group in wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, asked).groups
            }
            answers = wire.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": others}).results
            elsewhere |= {("delete", one.error_code) for one in answers}
            for key in others:
                answer = wire.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": key, "topics": []})
                elsewhere.add(("delete offsets", answer.error_code, answer.topics))
            described = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": keys}).transaction_states
            elsewhere |= {("transaction", one.error_code, one.transaction_state) for one in described}
    return {"each listed by the one named": sorted(listed) == sorted(found.items()), "elsewhere": elsewhere}


def test_groups_are_listed_and_described_by_one_broker_as_in_kafka(tmp_path, bootstrap: str) -> None:
    keys = [f"group-{number}" for number in range(12)]
    with KafkaWire(bootstrap) as wire:
        scenarios.find_coordinator(wire, keys[0], scenarios.TRANSACTION)
    with running_kafka(tmp_path, brokers=3) as kafka:
        with KafkaWire(kafka.bootstrap) as wire:
            scenarios.find_coordinator(wire, keys[0], scenarios.TRANSACTION)
        deadline_s = time.monotonic() + SETTLE_S
        theirs = coordinated(kafka.bootstrap, keys)
        # Coordinators move while the nodes start.
        while not theirs["each listed by the one named"] and time.monotonic() < deadline_s:
            theirs = coordinated(kafka.bootstrap, keys)
    ours = coordinated(bootstrap, keys)
    assert theirs["each listed by the one named"]
    assert ours == theirs
