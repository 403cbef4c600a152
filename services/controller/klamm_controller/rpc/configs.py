"""The calls of the Admin service about configs of topics and brokers."""

from __future__ import annotations

from typing import Final

from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfigs,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    NamedResult,
)
from klamm_controller.metadata.configs import handle_incremental_alter_configs
from klamm_controller.metadata.describe_configs import describe_configs
from klamm_controller.rpc.gateway import Gateway
from klamm_controller.rpc.rights import Permitted, may_with_configs, refusal_of_configs
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import ALTER_CONFIGS, DESCRIBE_CONFIGS

_RESOURCES_PER_TURN: Final = 25
"""The resources that are described in one turn of the event loop. Each has dozens of configs."""


class ConfigsRpcs:
    """Answers DescribeConfigs and IncrementalAlterConfigs."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def describe_configs(self, request: DescribeConfigsRequest, context: CallContext) -> DescribeConfigsResponse:
        permitted: Permitted[DescribeConfigsResource, DescribedConfigs] = await Permitted.of(
            request.resources,
            lambda wanted: may_with_configs(DESCRIBE_CONFIGS, wanted.resource),
            _not_described,
        )

        async def described() -> DescribeConfigsResponse:
            image = await self._gateway.controller.confirm()
            results = await map_in_slices(
                lambda wanted: describe_configs(wanted, image, request), permitted.asked, per_turn=_RESOURCES_PER_TURN
            )
            return DescribeConfigsResponse(results=permitted.results(results))

        return await self._gateway.answer(described(), DescribeConfigsResponse)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: CallContext
    ) -> IncrementalAlterConfigsResponse:
        permitted: Permitted[AlterConfigsResource, NamedResult] = await Permitted.of(
            request.resources,
            lambda wanted: may_with_configs(ALTER_CONFIGS, wanted.resource),
            _not_altered,
        )
        asked = IncrementalAlterConfigsRequest(resources=permitted.asked, validate_only=request.validate_only)

        async def decided() -> IncrementalAlterConfigsResponse:
            reply = await self._gateway.controller.submit(
                "IncrementalAlterConfigs", lambda image: handle_incremental_alter_configs(asked, image)
            )
            return IncrementalAlterConfigsResponse(results=permitted.results(reply.results))

        return await self._gateway.change(decided(), IncrementalAlterConfigsResponse)


def _not_described(wanted: DescribeConfigsResource) -> DescribedConfigs:
    refused = refusal_of_configs(wanted.resource)
    return DescribedConfigs(resource=wanted.resource, error_code=refused.code, error_message=refused.message)


def _not_altered(wanted: AlterConfigsResource) -> NamedResult:
    refused = refusal_of_configs(wanted.resource)
    return NamedResult(name=wanted.resource.name, error_code=refused.code, error_message=refused.message)
