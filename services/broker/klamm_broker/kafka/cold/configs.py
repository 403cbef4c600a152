"""Forwards requests about configs to the active controller: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs,
ListConfigResources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm.acls import AclOperation
from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_GROUP,
    CONFIG_RESOURCE_TYPE_TOPIC,
)
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, ActiveController
from klamm_broker.kafka.requests import Request
from klamm_server.metadata.image import MetadataImage
from klamm_server.security.operations import Check

_CONFIG_TYPES: Final = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}
"""The numbers of config types in DescribeConfigs (KIP-569)."""
_BROKER_LOGGER, _CLIENT_METRICS = 8, 16
"""Types of resources that have configs in Kafka, but no resources to list in this cluster."""


def _not_listed(_body: Any) -> Fields:
    return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "config_resources": []}


class ConfigApis:
    """Answers requests about configs. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, controller: ActiveController, image: Callable[[], MetadataImage]) -> None:
        self._controller = controller
        self._image = image

    @api(ApiKey.DESCRIBE_CONFIGS, Versions(1, 4, flexible=4), forwarded_to="Admin/DescribeConfigs")
    async def describe(self, request: Request, body: Any) -> Fields:
        ask = pb.DescribeConfigsRequest(
            resources=[
                pb.DescribeConfigsResource(
                    resource=_resource(resource.resource_type, resource.resource_name),
                    names=resource.configuration_keys or (),
                )
                for resource in body.resources
            ],
            include_documentation=getattr(body, "include_documentation", False),
            include_synonyms=body.include_synonyms,
        )
        try:
            answer = await self._controller.ask(AdminStub.describe_configs, ask, timeout_ms=TIMEOUT_MS)
            results = list(answer.results)
        except BrokerError as error:
            results = [
                pb.DescribedConfigs(resource=resource.resource, error_code=error.code, error_message=error.message)
                for resource in ask.resources
            ]
        return {"results": [_described(result) for result in results]}

    @api(ApiKey.ALTER_CONFIGS, Versions(0, 2, flexible=2), forwarded_to="Admin/IncrementalAlterConfigs", is_whole=True)
    async def alter(self, request: Request, body: Any) -> Fields:
        """Replaces all configs of resources (the older API). A config that the request does not name gets its
        default."""
        resources = [
            pb.AlterConfigsResource(
                resource=_resource(resource.resource_type, resource.resource_name),
                changes=[pb.ConfigChange(name=config.name, value=config.value or "") for config in resource.configs],
                replace_all=True,
            )
            for resource in body.resources
        ]
        nulls = [[config.name for config in resource.configs if config.value is None] for resource in body.resources]
        return await self._alter(body, resources, nulls)

    @api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        Versions(0, 1, flexible=1),
        forwarded_to="Admin/IncrementalAlterConfigs",
        is_whole=True,
    )
    async def alter_incrementally(self, request: Request, body: Any) -> Fields:
        resources = [
            pb.AlterConfigsResource(
                resource=_resource(resource.resource_type, resource.resource_name),
                changes=[
                    pb.ConfigChange(name=change.name, operation=change.config_operation, value=change.value or "")
                    for change in resource.configs
                ],
            )
            for resource in body.resources
        ]
        nulls = [
            [
                change.name
                for change in resource.configs
                if change.value is None and change.config_operation != pb.CONFIG_OPERATION_DELETE
            ]
            for resource in body.resources
        ]
        return await self._alter(body, resources, nulls)

    async def _alter(self, body: Any, resources: list[pb.AlterConfigsResource], nulls: list[list[str]]) -> Fields:
        """Alters the configs of resources. `nulls` has the names of each resource whose value would be null. Such a
        resource is not changed."""
        asked = [resource for resource, names in zip(resources, nulls, strict=True) if not names]
        answered = iter(await self._ask_to_alter(asked, body.validate_only))
        results = [
            pb.NamedResult(
                error_code=ErrorCode.INVALID_REQUEST, error_message=f"a null value is not supported for {names}"
            )
            if names
            else next(answered)
            for names in nulls
        ]
        responses = [
            {
                "error_code": result.error_code,
                "error_message": result.error_message or None,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            for resource, result in zip(body.resources, results, strict=True)
        ]
        return {"responses": responses}

    async def _ask_to_alter(
        self, resources: list[pb.AlterConfigsResource], validate_only: bool
    ) -> list[pb.NamedResult]:
        if not resources:
            return []
        ask = pb.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
        try:
            answer = await self._controller.change(AdminStub.incremental_alter_configs, ask, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return [pb.NamedResult(error_code=error.code, error_message=error.message)] * len(resources)
        return list(answer.results)

    @api(
        ApiKey.LIST_CONFIG_RESOURCES,
        Versions(0, 1, flexible=0),
        Check(of_cluster=(AclOperation.DESCRIBE_CONFIGS,)),
        refused=_not_listed,
        is_whole=True,
    )
    async def list_resources(self, request: Request, body: Any) -> Fields:
        """Lists the resources that have configs, by kind (KIP-1142). Version 0 lists only subscriptions to clients'
        metrics, and there are none."""

        if request.version == 0:
            return {"error_code": ErrorCode.NONE, "config_resources": []}
        image = self._image()
        brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
        names: dict[int, list[str]] = {
            CONFIG_RESOURCE_TYPE_TOPIC: sorted(image.topics_by_name),
            CONFIG_RESOURCE_TYPE_BROKER: brokers,
            _BROKER_LOGGER: brokers,
            _CLIENT_METRICS: [],
            CONFIG_RESOURCE_TYPE_GROUP: [],
        }
        if not set(body.resource_types) <= names.keys():
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
        return {
            "error_code": ErrorCode.NONE,
            "config_resources": [
                {"resource_name": name, "resource_type": kind}
                for kind in dict.fromkeys(body.resource_types or names)
                for name in names[kind]
            ],
        }


def _resource(resource_type: int, name: str) -> pb.ConfigResource:
    """Returns the resource of a request. Kafka's and Klamm's numbers are equal, and the controller refuses unknown
    ones."""
    return pb.ConfigResource(type=resource_type, name=name)  # type: ignore[arg-type]


def _described(result: pb.DescribedConfigs) -> Fields:
    return {
        "error_code": result.error_code,
        "error_message": result.error_message or None,
        "resource_type": result.resource.type,
        "resource_name": result.resource.name,
        "configs": [
            {
                **described_config(config),
                "is_default": config.source == pb.CONFIG_SOURCE_DEFAULT,
                "synonyms": [
                    {
                        "name": synonym.name,
                        "value": None if config.sensitive else synonym.value,
                        "source": synonym.source,
                    }
                    for synonym in config.synonyms
                ],
                "config_type": _CONFIG_TYPES.get(config.type, 0),
                "documentation": config.documentation or None,
            }
            for config in result.configs
        ],
    }


def described_config(config: pb.DescribedConfig) -> Fields:
    """Returns the fields of a config that DescribeConfigs and CreateTopics have in common."""
    return {
        "name": config.name,
        "value": None if config.sensitive or config.has_no_value else config.value,
        "read_only": config.read_only,
        "config_source": config.source,
        "is_sensitive": config.sensitive,
    }
