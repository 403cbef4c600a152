"""Admin: configs."""

from __future__ import annotations

from typing import Any

from klamm.wire.v1.controller_pb2 import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm_controller.metadata.configs import handle_incremental_alter_configs
from klamm_controller.metadata.describe_configs import describe_configs
from klamm_controller.rpc.gateway import Gateway


class ConfigsRpcs:
    """DescribeConfigs, IncrementalAlterConfigs."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def describe_configs(self, request: DescribeConfigsRequest, context: Any) -> DescribeConfigsResponse:
        return await self._gateway.read(
            context, lambda image: describe_configs(request, image), DescribeConfigsResponse
        )

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: Any
    ) -> IncrementalAlterConfigsResponse:
        decided = self._gateway.controller.submit(
            "IncrementalAlterConfigs", lambda image: handle_incremental_alter_configs(request, image)
        )
        return await self._gateway.change(context, decided, IncrementalAlterConfigsResponse)
