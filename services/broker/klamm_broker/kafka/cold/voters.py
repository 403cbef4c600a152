"""Forwards AddRaftVoter and RemoveRaftVoter to the active controller (KIP-853)."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable
from typing import Any, Final

from klamm.acls import ResourceType
from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_rpc import AdminStub
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields, milliseconds
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, ActiveController
from klamm_broker.kafka.requests import Request
from klamm_server.metadata.image import MetadataImage
from klamm_server.security.session import refusal

CONTROLLER_LISTENER: Final = "CONTROLLER"
"""The name that Kafka clients use for the controllers' listener."""


def _not_changed(_body: Any) -> Fields:
    error = refusal(ResourceType.CLUSTER)
    return {"error_code": error.code, "error_message": error.message}


class VoterApis:
    """Answers requests about the quorum's voters. Each method takes a decoded request and returns the answer's
    fields."""

    def __init__(self, controller: ActiveController, image: Callable[[], MetadataImage]) -> None:
        self._controller = controller
        self._image = image

    @api(
        ApiKey.ADD_RAFT_VOTER,
        Versions(0, 1, flexible=0),
        forwarded_to="Admin/AddRaftVoter",
        refused=_not_changed,
        is_whole=True,
    )
    async def add(self, request: Request, body: Any) -> Fields:
        """Adds a voter. Answers after the change is committed, even if the client asked for an earlier answer."""
        endpoint = next((listener for listener in body.listeners if listener.name == CONTROLLER_LISTENER), None)
        ask = pb.AddRaftVoterRequest(
            timeout_ms=milliseconds(body.timeout),
            node_id=body.voter_id,
            directory_id=directory_text(body.voter_directory_id),
            endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        )
        try:
            self._check(body)
            if endpoint is None:
                raise ErrorCode.INVALID_REQUEST.exception(
                    f"the voter has no endpoint with the listener name {CONTROLLER_LISTENER}"
                )
            await self._controller.ask(AdminStub.add_raft_voter, ask, timeout_ms=ask.timeout_ms)
        except BrokerError as error:
            return {"error_code": error.code, "error_message": error.message}
        return {"error_code": ErrorCode.NONE, "error_message": None}

    @api(
        ApiKey.REMOVE_RAFT_VOTER, Versions(0, 0, flexible=0), forwarded_to="Admin/RemoveRaftVoter", refused=_not_changed
    )
    async def remove(self, request: Request, body: Any) -> Fields:
        ask = pb.RemoveRaftVoterRequest(
            node_id=body.voter_id, directory_id=directory_text(body.voter_directory_id), timeout_ms=TIMEOUT_MS
        )
        try:
            self._check(body)
            await self._remove(ask)
        except BrokerError as error:
            return {"error_code": error.code, "error_message": error.message}
        return {"error_code": ErrorCode.NONE, "error_message": None}

    async def _remove(self, ask: pb.RemoveRaftVoterRequest) -> None:
        """Removes a voter. Raises VoterNotFoundError also for the last voter, as Kafka does."""
        try:
            await self._controller.ask(AdminStub.remove_raft_voter, ask, timeout_ms=ask.timeout_ms)
        except BrokerError as error:
            if error.code is ErrorCode.INVALID_REQUEST:
                raise ErrorCode.VOTER_NOT_FOUND.exception(error.message) from error
            raise

    def _check(self, body: Any) -> None:
        """Checks the cluster id and the voter. Raises InconsistentClusterIdError or InvalidRequestError."""
        cluster_id = self._image().cluster_id
        if body.cluster_id is not None and body.cluster_id != cluster_id:
            raise ErrorCode.INCONSISTENT_CLUSTER_ID.exception(
                f"the server belongs to cluster {cluster_id}, but the request is for {body.cluster_id}"
            )
        if body.voter_id < 0 or body.voter_directory_id is None:
            raise ErrorCode.INVALID_REQUEST.exception(
                f"the voter has id {body.voter_id} and directory id {body.voter_directory_id}; expected an id of 0"
                " or more and a directory id"
            )


def directory_id(text: str) -> uuid.UUID | None:
    """Returns the id of Kafka's 22 characters, or None for any other text."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error):
        return None


def directory_text(number: uuid.UUID | None) -> str:
    """Returns the 22 characters of an id, or "" without an id."""
    return "" if number is None else base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")
