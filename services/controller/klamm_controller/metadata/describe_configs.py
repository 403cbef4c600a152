"""Configs as they are in force: value, source, default, documentation (KIP-226).

The empty broker name is the default of all brokers: described are only the configs that are set there, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.wire.v1.controller_pb2 import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigs,
)
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_TOPIC
from klamm_controller.metadata.config_layers import broker_layers
from klamm_controller.metadata.configs import check_resource
from klamm_controller.metadata.decision import Refusal
from klamm_server.config_defs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    Resolved,
    UpdateMode,
    resolve_broker_config,
    resolve_topic_config,
)
from klamm_server.metadata.image import MetadataImage


def describe_configs(request: DescribeConfigsRequest, image: MetadataImage) -> DescribeConfigsResponse:
    """One answer for each resource, in order; names that do not exist are left out, as in Kafka."""
    results = [_describe(wanted, image, request.include_documentation) for wanted in request.resources]
    return DescribeConfigsResponse(results=results)


def _describe(wanted: DescribeConfigsResource, image: MetadataImage, documented: bool) -> DescribedConfigs:
    resource = wanted.resource
    try:
        check_resource(resource, image)
    except Refusal as refusal:
        return DescribedConfigs(resource=resource, error_code=refusal.code, error_message=refusal.message)
    known, resolved = _resolve(resource, image)
    names = sorted(resolved.keys() & set(wanted.names) if wanted.names else resolved)
    return DescribedConfigs(
        resource=resource,
        configs=[_config(known[name], resolved[name], documented) for name in names],
    )


def _resolve(resource: ConfigResource, image: MetadataImage) -> tuple[Mapping[str, ConfigDef], dict[str, Resolved]]:
    if resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
        own, layers = image.topic_configs(resource.name), broker_layers(image, None)
        return TOPIC_CONFIGS, {name: resolve_topic_config(name, own, layers) for name in TOPIC_CONFIGS}
    broker_id = int(resource.name) if resource.name else None
    names = BROKER_CONFIGS if resource.name else image.broker_configs(None)
    layers = broker_layers(image, broker_id)
    return BROKER_CONFIGS, {name: resolve_broker_config(name, layers) for name in names}


def _config(definition: ConfigDef, resolved: Resolved, documented: bool) -> DescribedConfig:
    return DescribedConfig(
        name=definition.name,
        value="" if definition.sensitive else resolved.value,
        source=resolved.source,  # type: ignore[arg-type]  # stubs want the enum, not its number
        default_value="" if definition.sensitive else definition.default_text(),
        read_only=definition.update_mode is UpdateMode.READ_ONLY,
        sensitive=definition.sensitive,
        type=definition.type.value,
        documentation=definition.documentation if documented else "",
    )
