"""Configs as they are in force: value, source, default, documentation (KIP-226).

The empty broker name is the default of all brokers: described are only the configs that are set there, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from klamm.wire.v1.controller_pb2 import (
    CONFIG_SOURCE_DEFAULT,
    ConfigSynonym,
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
    SynonymValue,
    UpdateMode,
    broker_config_synonyms,
    resolve_broker_config,
    resolve_topic_config,
    topic_config_synonyms,
)
from klamm_server.metadata.image import MetadataImage


def describe_configs(request: DescribeConfigsRequest, image: MetadataImage) -> DescribeConfigsResponse:
    """One answer for each resource, in order; names that do not exist are left out, as in Kafka."""
    results = [_describe(wanted, image, request) for wanted in request.resources]
    return DescribeConfigsResponse(results=results)


def _describe(
    wanted: DescribeConfigsResource, image: MetadataImage, request: DescribeConfigsRequest
) -> DescribedConfigs:
    resource = wanted.resource
    try:
        check_resource(resource, image)
    except Refusal as refusal:
        return DescribedConfigs(resource=resource, error_code=refusal.code, error_message=refusal.message)
    is_topic = resource.type == CONFIG_RESOURCE_TYPE_TOPIC
    described = _topic(resource.name, image) if is_topic else _broker(resource.name, image)
    names = sorted(described.keys() & set(wanted.names) if wanted.names else described)
    return DescribedConfigs(resource=resource, configs=[_config(described[name], request) for name in names])


class _Described(NamedTuple):
    definition: ConfigDef
    resolved: Resolved
    synonyms: Callable[[], list[SynonymValue]]


def _topic(name: str, image: MetadataImage) -> dict[str, _Described]:
    own, layers = image.topic_configs(name), broker_layers(image, None)
    return {
        name: _Described(
            definition, resolve_topic_config(name, own, layers), partial(topic_config_synonyms, name, own, layers)
        )
        for name, definition in TOPIC_CONFIGS.items()
    }


def _broker(broker_name: str, image: MetadataImage) -> dict[str, _Described]:
    """Of the default of all brokers, whose name is empty, only what is set there."""
    broker_id = int(broker_name) if broker_name else None
    layers = broker_layers(image, broker_id)
    names: Iterable[str] = BROKER_CONFIGS
    if broker_id is None:
        names, layers = image.broker_configs(None), layers[:1]
    return {
        name: _Described(
            BROKER_CONFIGS[name],
            resolve_broker_config(name, layers),
            partial(broker_config_synonyms, name, layers, with_default=broker_id is not None),
        )
        for name in names
    }


def _config(described: _Described, request: DescribeConfigsRequest) -> DescribedConfig:
    definition, resolved = described.definition, described.resolved
    return DescribedConfig(
        name=definition.name,
        value="" if definition.sensitive else resolved.value,
        source=resolved.source,  # type: ignore[arg-type]  # stubs want the enum, not its number
        default_value="" if definition.sensitive else definition.default_text(),
        read_only=definition.update_mode is UpdateMode.READ_ONLY,
        sensitive=definition.sensitive,
        type=definition.type.value,
        documentation=definition.documentation if request.include_documentation else "",
        synonyms=[
            ConfigSynonym(
                name=one.name,
                value="" if definition.sensitive else one.value,
                source=one.source,  # type: ignore[arg-type]
            )
            for one in (described.synonyms() if request.include_synonyms else ())
        ],
        has_no_value=resolved.source == CONFIG_SOURCE_DEFAULT and not definition.has_default,
    )
