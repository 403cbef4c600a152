"""Describes the configs in force: value, source, default and documentation (KIP-226).

The empty broker name means the default of all brokers. For it, only the configs that are set at this level are
described, as in Kafka. Kafka's configs that have no effect in Klamm are described only if they are set
(`configs_without_effect`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from klamm.setting import Setting, UpdateMode
from klamm.wire.v1.controller_pb2 import (
    CONFIG_SOURCE_DEFAULT,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribedConfig,
    DescribedConfigs,
)
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_TOPIC
from klamm_controller.metadata.config_layers import broker_layers
from klamm_controller.metadata.configs import check_resource
from klamm_controller.metadata.decision import Refusal
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.config_defs import (
    Layer,
    Resolved,
    SynonymValue,
    accepted_broker_configs,
    broker_config_synonyms,
    resolve_broker_config,
    resolve_topic_config,
    topic_config_synonyms,
)
from klamm_server.config.listener_settings import listener_setting
from klamm_server.config.topic_configs import TOPIC_CONFIGS
from klamm_server.metadata.image import MetadataImage


def describe_configs(
    wanted: DescribeConfigsResource, image: MetadataImage, request: DescribeConfigsRequest
) -> DescribedConfigs:
    """Describes one resource of the request. Leaves out names of configs that do not exist, as Kafka does."""
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
    definition: Setting
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
    """Returns the configs of a broker, by name. For the empty name, returns only the configs that are set as the
    default of all brokers."""
    broker_id = int(broker_name) if broker_name else None
    layers = broker_layers(image, broker_id)
    definitions: Mapping[str, Setting] = {**BROKER_CONFIGS, **_set_besides(layers)}
    if broker_id is None:
        layers = layers[:1]
        definitions = {name: accepted_broker_configs()[name] for name in image.broker_configs(None)}
    return {
        name: _Described(
            definition,
            resolve_broker_config(name, layers),
            partial(broker_config_synonyms, name, layers, with_default=broker_id is not None),
        )
        for name, definition in definitions.items()
    }


def _set_besides(layers: Sequence[Layer]) -> dict[str, Setting]:
    """Returns the configs in `layers` that are not in BROKER_CONFIGS: settings of single listeners, and configs without
    effect."""
    known = accepted_broker_configs()
    names = {name for _, configs in layers for name in configs if name not in BROKER_CONFIGS}
    found = (known.get(name) or listener_setting(known, name) for name in names)
    return {one.name: one for one in found if one is not None}


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
                name=synonym.name,
                value="" if definition.sensitive else synonym.value,
                source=synonym.source,  # type: ignore[arg-type]
            )
            for synonym in (described.synonyms() if request.include_synonyms else ())
        ],
        has_no_value=resolved.source == CONFIG_SOURCE_DEFAULT and not definition.has_default,
    )
