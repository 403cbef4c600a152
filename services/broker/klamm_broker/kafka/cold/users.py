"""Answers requests about users with SCRAM logins (KIP-554). AlterUserScramCredentials is forwarded to the active
controller. DescribeUserScramCredentials is answered from this broker's metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, ActiveController
from klamm_broker.kafka.requests import Request
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.users import DescribedUser, described_users


def _not_described(_body: Any) -> Fields:
    return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error_message": None, "results": []}


class UserApis:
    """Answers requests about users. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, controller: ActiveController, image: Callable[[], MetadataImage]) -> None:
        self._controller = controller
        self._image = image

    @api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        Versions(0, 0, flexible=0),
        forwarded_to="Admin/AlterUserScramCredentials",
        is_whole=True,
    )
    async def alter_scram_credentials(self, request: Request, body: Any) -> Fields:
        ask = pb.AlterUserScramCredentialsRequest(
            deletions=[
                pb.ScramCredentialDeletion(name=deletion.name, mechanism=deletion.mechanism)
                for deletion in body.deletions
            ],
            upsertions=[
                pb.ScramCredentialUpsertion(
                    name=upsertion.name,
                    mechanism=upsertion.mechanism,
                    iterations=upsertion.iterations,
                    salt=upsertion.salt,
                    salted_password=upsertion.salted_password,
                )
                for upsertion in body.upsertions
            ],
        )
        try:
            answer = await self._controller.change(AdminStub.alter_user_scram_credentials, ask, timeout_ms=TIMEOUT_MS)
            results = list(answer.results)
        except BrokerError as error:
            names = dict.fromkeys(
                [deletion.name for deletion in ask.deletions] + [upsertion.name for upsertion in ask.upsertions]
            )
            results = [pb.NamedResult(name=name, error_code=error.code, error_message=error.message) for name in names]
        return {
            "results": [
                {"user": result.name, "error_code": result.error_code, "error_message": result.error_message or None}
                for result in results
            ]
        }

    @api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        Versions(0, 0, flexible=0),
        rights_of="Admin/DescribeUserScramCredentials",
        refused=_not_described,
        is_whole=True,
    )
    async def describe_scram_credentials(self, request: Request, body: Any) -> Fields:
        """Describes the named users, or all users if none is named."""
        users = described_users(self._image(), [user.name for user in body.users or ()])
        return {"error_code": ErrorCode.NONE, "error_message": None, "results": [_described(user) for user in users]}


def _described(user: DescribedUser) -> Fields:
    return {
        "user": user.name,
        "error_code": user.error_code,
        "error_message": user.error_message or None,
        "credential_infos": [
            {"mechanism": mechanism.number, "iterations": iterations} for mechanism, iterations in user.credentials
        ],
    }
