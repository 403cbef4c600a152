"""Tests that no answer has the name or id of an existing resource, for a client without an access control entry.

The client has a certificate and asks every Kafka API in every version. It also sends every RPC an empty request.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import grpc

from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.canary_cluster import CANARY, CanaryCluster
from tests.support.every_request import BY_NAME, requests, requests_by_name
from tests.support.every_rpc import Caller, every_rpc
from tests.support.kafka_wire import KafkaWire

MISSING = "never-there-0"
NOT_ASKED = {"SASL_HANDSHAKE", "SASL_AUTHENTICATE"}
"""Requests that only a listener with SASL serves."""
_METADATA = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": True,
    "include_cluster_authorized_operations": True,
}
OF_EVERYTHING: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {"topics": None, **_METADATA},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "response_partition_limit": 9, "cursor": None},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": []},
    ApiKey.OFFSET_FETCH: {
        "group_id": MISSING,
        "topics": None,
        "groups": [{"group_id": MISSING, "member_id": None, "member_epoch": -1, "topics": None}],
    },
    ApiKey.DELETE_ACLS: {
        "filters": [
            {
                "resource_type_filter": 1,
                "resource_name_filter": None,
                "pattern_type_filter": 1,
                "principal_filter": None,
                "host_filter": None,
                "operation": 1,
                "permission_type": 1,
            }
        ]
    },
}
"""Requests of all that there is, beside those of which `requests` has one."""
OLDER: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: _METADATA,
    ApiKey.FIND_COORDINATOR: {"key": MISSING},
    ApiKey.LEAVE_GROUP: {"member_id": "m"},
    ApiKey.DELETE_TOPICS: {"topic_names": [MISSING]},
    ApiKey.OFFSET_COMMIT: {"retention_time": -1},
    ApiKey.OFFSET_FETCH: {"group_id": MISSING, "topics": [{"name": MISSING, "partition_indexes": [0]}]},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": MISSING,
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": MISSING, "partitions": [0]}],
    },
    ApiKey.JOIN_GROUP: {"session_timeout": 6_000},
}
"""Fields that only older versions have."""


def versions(api_key: ApiKey) -> range:
    return range(SPOKEN[api_key].min, SPOKEN[api_key].max + 1)


def all_requests() -> Iterator[tuple[ApiKey, int, dict[str, Any]]]:
    """Yields every API in every version, about missing names and about everything."""
    for api_key, fields in {**requests(MISSING), **requests_by_name(MISSING)}.items():
        for version in versions(api_key):
            if version > BY_NAME.get(api_key, version):
                continue  # by_id covers these versions
            yield api_key, version, {**fields, **OLDER.get(api_key, {})}
    for api_key, fields in OF_EVERYTHING.items():
        for version in versions(api_key):
            if (api_key, version) != (ApiKey.OFFSET_FETCH, 1):  # this version has no request for everything
                yield api_key, version, fields


def by_id(topic_id: uuid.UUID) -> Iterator[tuple[ApiKey, int, dict[str, Any]]]:
    """Yields the requests of a client that knows a topic's id."""
    named = {"topic_id": topic_id}
    everything = {**requests(""), **requests_by_name("")}
    for version in range(10, SPOKEN[ApiKey.METADATA].max + 1):
        yield ApiKey.METADATA, version, {"topics": [{**named, "name": None}], **_METADATA}
    yield ApiKey.DELETE_TOPICS, 6, {"topics": [{**named, "name": None}], "timeout": 1_000}
    for api_key, topics in (
        (ApiKey.FETCH, "topics"),
        (ApiKey.PRODUCE, "topic_data"),
        (ApiKey.OFFSET_COMMIT, "topics"),
        (ApiKey.TXN_OFFSET_COMMIT, "topics"),
    ):
        for version in range(BY_NAME[api_key] + 1, SPOKEN[api_key].max + 1):
            fields = everything[api_key]
            yield api_key, version, {**fields, topics: [{**fields[topics][0], **named}]}
    group = everything[ApiKey.OFFSET_FETCH]["groups"][0]
    topics_of_group = [{**group["topics"][0], **named}]
    yield ApiKey.OFFSET_FETCH, 10, {"require_stable": False, "groups": [{**group, "topics": topics_of_group}]}


def leaks(answer: str, canary: CanaryCluster, *known: str) -> list[str]:
    """Returns the canary's names and ids in the answer, except those that the client `known` sent itself."""
    return [one for one in (CANARY, *canary.ids) if one in answer and one not in known]


def asked(wire: KafkaWire, api_key: ApiKey, version: int, fields: dict[str, Any]) -> str:
    return str(wire.ask(api_key, version, fields))


def test_no_answer_of_a_kafka_api_names_a_topic_or_group_to_a_user_without_acls(canary: CanaryCluster) -> None:
    found: list[str] = []
    spoken: set[str] = set()
    with canary.cluster.wire("stranger") as wire:
        for api_key, version, fields in all_requests():
            spoken.add(api_key.name)
            answer = asked(wire, api_key, version, fields)
            if leaks(answer, canary):
                found.append(f"{api_key.name} {version}: {answer}")
    assert not found, "\n".join(found)
    assert spoken >= {api_key.name for api_key in SPOKEN} - NOT_ASKED


def test_a_user_without_acls_cannot_learn_a_topics_name_from_its_id(canary: CanaryCluster) -> None:
    topic_id = canary.ids[0]
    found: list[str] = []
    with canary.cluster.wire("stranger") as wire:
        for api_key, version, fields in by_id(uuid.UUID(topic_id)):
            answer = asked(wire, api_key, version, fields)
            if leaks(answer, canary, topic_id):
                found.append(f"{api_key.name} {version}: {answer}")
    assert not found, "\n".join(found)


def test_the_searches_find_the_names_in_answers_to_an_admin(canary: CanaryCluster) -> None:
    """The searches above find the names that they look for."""
    with canary.cluster.wire("admin") as wire:
        for api_key in (ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_ACLS):
            fields = {**requests(MISSING), **OF_EVERYTHING}[api_key]
            assert leaks(asked(wire, api_key, SPOKEN[api_key].max, fields), canary), api_key
        topics = asked(wire, ApiKey.METADATA, SPOKEN[ApiKey.METADATA].max, OF_EVERYTHING[ApiKey.METADATA])
        assert leaks(topics, canary) == [CANARY, canary.ids[0]]
        described = asked(
            wire, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [CANARY], "include_authorized_operations": False}
        )
        assert canary.ids[1] in described


def test_no_answer_of_an_rpc_names_a_topic_or_group_to_a_user_without_acls(canary: CanaryCluster) -> None:
    cluster = canary.cluster
    stores = cluster.stores("stranger")
    needles = [CANARY.encode(), uuid.UUID(canary.ids[0]).bytes, canary.ids[1].encode()]
    for address in (cluster.controller_grpc, cluster.grpc, cluster.coordinator_grpc):
        with Caller(address, stores) as caller:
            for rpc in every_rpc():
                for request in (b"", rpc.request(MISSING)):
                    try:
                        first = caller.first_answer(rpc, request)
                        answer = b"" if first is None else first.SerializeToString()
                    except grpc.RpcError as error:
                        answer = str(error).encode()
                    assert not [needle for needle in needles if needle in answer], (rpc.path, answer)
