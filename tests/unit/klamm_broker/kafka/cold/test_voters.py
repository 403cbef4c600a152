"""Tests how Kafka clients name the voters of the quorum, and refusals before a controller is called."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.v1.metadata_pb2 import ClusterRecord, MetadataRecord
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.voters import VoterApis, directory_id, directory_text
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.support.callers import allow, called_with
from tests.support.cold_requests import answer_of

DIRECTORY = uuid.UUID(int=2**127 + 5)
ENDPOINT = {"name": "CONTROLLER", "host": "c3", "port": 9093}


class ScriptedController:
    """A controller that records its requests, and refuses them with `code` if it is set."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._code = code

    async def ask(self, rpc: Any, request: Any, *, timeout_ms: int) -> None:
        self.asked.append((rpc.__name__, request))
        if self._code:
            raise self._code.exception("as it was told")


def voters_of(controller: ScriptedController) -> VoterApis:
    image = replay(MetadataImage.empty(), [MetadataRecord(cluster=ClusterRecord(cluster_id="cluster"))], 1)
    return VoterApis(controller, lambda: image)


def add(controller: ScriptedController, version: int = 1, **fields: Any) -> Any:
    wanted = {
        "cluster_id": "cluster",
        "timeout": 5_000,
        "voter_id": 3,
        "voter_directory_id": DIRECTORY,
        "listeners": [ENDPOINT],
        "ack_when_committed": True,
    }
    return asyncio.run(answer_of(voters_of(controller).add, ApiKey.ADD_RAFT_VOTER, version, wanted | fields))


def remove(controller: ScriptedController, **fields: Any) -> Any:
    wanted = {"cluster_id": None, "voter_id": 3, "voter_directory_id": DIRECTORY}
    return asyncio.run(answer_of(voters_of(controller).remove, ApiKey.REMOVE_RAFT_VOTER, 0, wanted | fields))


@pytest.mark.parametrize("version", [0, 1])
def test_a_voter_is_added_with_the_endpoint_of_its_controller_listener(version: int) -> None:
    controller = ScriptedController()
    answer = add(controller, version, listeners=[{"name": "OTHER", "host": "x", "port": 1}, ENDPOINT])
    assert (answer.error_code, answer.error_message) == (0, None)
    ((rpc, asked),) = controller.asked
    assert (rpc, asked.node_id, asked.endpoint.host, asked.endpoint.port) == ("add_raft_voter", 3, "c3", 9093)
    assert (directory_id(asked.directory_id), asked.timeout_ms) == (DIRECTORY, 5_000)


def test_a_voter_is_removed() -> None:
    controller = ScriptedController()
    assert remove(controller).error_code == 0
    ((rpc, asked),) = controller.asked
    assert (rpc, asked.node_id, asked.directory_id) == ("remove_raft_voter", 3, directory_text(DIRECTORY))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_directory_id": None}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_voter_change_for_another_cluster_or_without_a_valid_voter_is_refused(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    controller = ScriptedController()
    assert [add(controller, **fields).error_code, remove(controller, **fields).error_code] == [code, code]
    assert controller.asked == []


def test_a_new_voter_without_a_controller_listener_is_refused() -> None:
    controller = ScriptedController()
    answer = add(controller, listeners=[{"name": "OTHER", "host": "x", "port": 1}])
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "CONTROLLER" in answer.error_message
    assert controller.asked == []


def test_a_voter_change_gets_kafkas_error_code_for_the_controllers_refusal() -> None:
    assert add(ScriptedController(ErrorCode.DUPLICATE_VOTER)).error_code == ErrorCode.DUPLICATE_VOTER
    assert remove(ScriptedController(ErrorCode.VOTER_NOT_FOUND)).error_code == ErrorCode.VOTER_NOT_FOUND
    # Kafka has no better error for the last voter, which cannot be removed.
    assert remove(ScriptedController(ErrorCode.INVALID_REQUEST)).error_code == ErrorCode.VOTER_NOT_FOUND


@pytest.mark.parametrize(("ask", "fields"), [(add, {}), (add, {"cluster_id": "other"}), (remove, {"voter_id": -1})])
def test_a_caller_without_the_right_learns_nothing_of_the_cluster_and_the_request(
    ask: Callable[..., Any], fields: dict[str, Any]
) -> None:
    controller = ScriptedController()
    with called_with(allow(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)):
        answer = ask(controller, **fields)
    assert (answer.error_code, controller.asked) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
