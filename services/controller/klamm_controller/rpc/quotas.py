"""The calls of the Admin service about the quotas of clients."""

from __future__ import annotations

from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from klamm_controller.metadata.quotas import describe_client_quotas, handle_alter_client_quotas
from klamm_controller.rpc.gateway import Gateway


class QuotasRpcs:
    """Answers AlterClientQuotas and DescribeClientQuotas."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def alter_client_quotas(
        self, request: AlterClientQuotasRequest, context: CallContext
    ) -> AlterClientQuotasResponse:
        decided = self._gateway.controller.submit(
            "AlterClientQuotas", lambda image: handle_alter_client_quotas(request, image)
        )
        return await self._gateway.change(decided, AlterClientQuotasResponse)

    async def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, context: CallContext
    ) -> DescribeClientQuotasResponse:
        return await self._gateway.read(
            lambda image: describe_client_quotas(request, image), DescribeClientQuotasResponse
        )
