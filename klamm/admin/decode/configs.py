"""Decodes the configs that the controller describes."""

from __future__ import annotations

from klamm.admin.types.configs import ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource
from klamm.wire.v1 import controller_pb2


def config_resource(message: controller_pb2.ConfigResource) -> ConfigResource:
    return ConfigResource(ConfigResourceType(message.type), message.name)


def config_entry(message: controller_pb2.DescribedConfig) -> ConfigEntry:
    return ConfigEntry(
        name=message.name,
        value=message.value,
        source=ConfigSource(message.source),
        default_value=message.default_value,
        read_only=message.read_only,
        sensitive=message.sensitive,
        type=message.type,
        documentation=message.documentation,
    )
