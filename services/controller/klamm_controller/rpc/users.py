"""The calls of the Admin service about users who log in with SCRAM."""

from __future__ import annotations

import random
from typing import Final

from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from klamm_controller.metadata.users import describe_user_scram_credentials, handle_alter_user_scram_credentials
from klamm_controller.rpc.gateway import Gateway

SECRET_BYTES: Final = 32


class UsersRpcs:
    """Answers AlterUserScramCredentials and DescribeUserScramCredentials."""

    def __init__(self, gateway: Gateway, rng: random.Random) -> None:
        self._gateway = gateway
        self._rng = rng

    async def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, context: CallContext
    ) -> AlterUserScramCredentialsResponse:
        new_secret = self._rng.randbytes(SECRET_BYTES)
        decided = self._gateway.controller.submit(
            "AlterUserScramCredentials",
            lambda image: handle_alter_user_scram_credentials(request, image, new_secret),
        )
        return await self._gateway.change(decided, AlterUserScramCredentialsResponse)

    async def describe_user_scram_credentials(
        self, request: DescribeUserScramCredentialsRequest, context: CallContext
    ) -> DescribeUserScramCredentialsResponse:
        return await self._gateway.read(
            lambda image: describe_user_scram_credentials(request, image), DescribeUserScramCredentialsResponse
        )
