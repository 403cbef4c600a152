"""Tests users through the requests of Kafka clients."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.metadata_pb2 import MetadataRecord, UserScramCredentialRecord
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.cold.users import UserApis
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.support.cold_requests import answer_of, request_of

USERS = replay(
    MetadataImage.empty(),
    [
        MetadataRecord(user_scram_credential=UserScramCredentialRecord(name=name, mechanism=number, iterations=4096))
        for name, number in (("b", 2), ("a", 1), ("b", 1))
    ],
    3,
)


class Controller:
    """A controller that gives a prepared answer and keeps its requests."""

    def __init__(self, answer: pb.AlterUserScramCredentialsResponse | BrokerError) -> None:
        self._answer = answer
        self.asked: list[pb.AlterUserScramCredentialsRequest] = []

    async def change(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        self.asked.append(request)
        if isinstance(self._answer, BrokerError):
            raise self._answer
        return self._answer


def describe(names: list[str] | None) -> list[tuple[str, ErrorCode, list[int]]]:
    fields = {"users": None if names is None else [{"name": name} for name in names]}
    handle = UserApis(None, lambda: USERS).describe_scram_credentials
    answer = asyncio.run(answer_of(handle, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, fields))
    assert answer.error_code == ErrorCode.NONE
    return [
        (result.user, ErrorCode.of(result.error_code), [info.mechanism for info in result.credential_infos])
        for result in answer.results
    ]


def alter(controller: Controller) -> list[tuple[str, ErrorCode, str | None]]:
    wanted = {
        "deletions": [{"name": "old", "mechanism": 2}],
        "upsertions": [
            {"name": "new", "mechanism": 1, "iterations": 5000, "salt": b"s", "salted_password": b"p"},
            {"name": "old", "mechanism": 1, "iterations": 4096, "salt": b"t", "salted_password": b"q"},
        ],
    }
    handle = UserApis(controller, lambda: USERS).alter_scram_credentials
    answer = asyncio.run(answer_of(handle, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, wanted))
    return [(result.user, ErrorCode.of(result.error_code), result.error_message) for result in answer.results]


def test_all_users_are_described_from_the_brokers_metadata() -> None:
    assert describe(None) == describe([]) == [("a", ErrorCode.NONE, [1]), ("b", ErrorCode.NONE, [1, 2])]


def test_a_user_that_a_request_names_twice_is_a_duplicate() -> None:
    assert describe(["b", "a", "nobody", "b"]) == [
        ("b", ErrorCode.DUPLICATE_RESOURCE, []),
        ("a", ErrorCode.NONE, [1]),
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND, []),
    ]


def test_credential_changes_are_sent_to_the_controller_and_get_its_results() -> None:
    refused = pb.NamedResult(name="old", error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message="why")
    controller = Controller(pb.AlterUserScramCredentialsResponse(results=[refused, pb.NamedResult(name="new")]))
    assert alter(controller) == [("old", ErrorCode.RESOURCE_NOT_FOUND, "why"), ("new", ErrorCode.NONE, None)]
    (asked,) = controller.asked
    assert [(deletion.name, deletion.mechanism) for deletion in asked.deletions] == [("old", 2)]
    assert [
        (upsertion.name, upsertion.mechanism, upsertion.iterations, upsertion.salt, upsertion.salted_password)
        for upsertion in asked.upsertions
    ] == [
        ("new", 1, 5000, b"s", b"p"),
        ("old", 1, 4096, b"t", b"q"),
    ]


def test_a_byte_after_the_end_of_a_request_is_ignored() -> None:
    """librdkafka sends this byte."""
    request = request_of(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": []})
    longer = request._replace(frame=memoryview(bytes(request.frame) + b"\0"))
    assert messages.decode(longer) == messages.decode(request)


def test_without_a_controller_each_user_gets_the_error_once() -> None:
    controller = Controller(ErrorCode.REQUEST_TIMED_OUT.exception("nobody answers"))
    assert alter(controller) == [
        ("old", ErrorCode.REQUEST_TIMED_OUT, "nobody answers"),
        ("new", ErrorCode.REQUEST_TIMED_OUT, "nobody answers"),
    ]
