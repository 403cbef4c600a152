"""Tests the answers to requests in the middle of a login, as kio reads them.

`tests/clients/test_security_login_order.py` compares them with Kafka's.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kio.serial import entity_reader

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import APIS, ApiKey
from klamm_broker.kafka.codec.schemas import response_schema
from klamm_broker.kafka.login.login_interrupted import interrupted_answer
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.kafka.served_apis import SPOKEN

SINCE = {
    ApiKey.FETCH: 7,
    ApiKey.METADATA: 13,
    ApiKey.LEAVE_GROUP: 0,
    ApiKey.API_VERSIONS: 0,
    ApiKey.INIT_PRODUCER_ID: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
}
"""The first version of each response that has a field for an error of the whole request."""
NEVER = (ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.CREATE_TOPICS, ApiKey.WRITE_TXN_MARKERS)


def request(api_key: ApiKey, version: int) -> Request:
    """Returns a request with a body that cannot be parsed."""
    return parse_request(memoryview(struct.pack(">hhih", api_key, version, 7, -1) + b"\x00\xff\xff"), "here")


def read(api_key: ApiKey, version: int, parts: list[Any]) -> Any:
    data = b"".join(parts)
    answer, size = entity_reader(response_schema(api_key, version))(memoryview(data), 0)
    assert size == len(data)
    return answer


@pytest.mark.parametrize("api_key", set(SPOKEN) - {ApiKey.SASL_AUTHENTICATE})
def test_a_request_during_a_login_gets_illegal_sasl_state_if_its_response_has_an_error_code(api_key: ApiKey) -> None:
    spoken = SPOKEN[api_key]
    since = spoken.max + 1 if api_key in NEVER else SINCE.get(api_key)
    for version in range(spoken.min, spoken.max + 1):
        parts = interrupted_answer(request(api_key, version))
        if since is not None:
            assert (parts is not None) == (version >= since)
        if parts is not None:
            assert read(api_key, version, list(parts)).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_an_api_of_klamm_during_a_login_has_no_answer() -> None:
    of_klamm = [api.key for api in APIS.values() if api.is_klamms]
    assert [interrupted_answer(request(api_key, 0)) for api_key in of_klamm] == [None] * 3


def test_find_coordinator_during_a_login_is_answered_without_a_broker() -> None:
    parts = interrupted_answer(request(ApiKey.FIND_COORDINATOR, 3))
    assert parts is not None
    answer = read(ApiKey.FIND_COORDINATOR, 3, list(parts))
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)
    assert answer.error_message == "Unexpected Kafka request of type FIND_COORDINATOR during SASL authentication."


def test_api_versions_of_any_version_during_a_login_is_answered_in_version_0() -> None:
    parts = interrupted_answer(request(ApiKey.API_VERSIONS, 99))
    assert parts is not None
    assert read(ApiKey.API_VERSIONS, 0, list(parts)).error_code == ErrorCode.ILLEGAL_SASL_STATE
