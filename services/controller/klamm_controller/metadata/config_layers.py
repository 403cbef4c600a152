"""The levels at which brokers' configs are set, strongest first, in the form that config_defs expects."""

from __future__ import annotations

from klamm.wire.v1.controller_pb2 import (
    CONFIG_SOURCE_DYNAMIC_BROKER,
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER,
    CONFIG_SOURCE_STATIC_BROKER,
)
from klamm_server.config.config_defs import Layer
from klamm_server.metadata.image import MetadataImage


def broker_layers(image: MetadataImage, broker_id: int | None) -> list[Layer]:
    """Returns the layers of a broker's configs. If `broker_id` is None, returns the layers that are valid for all
    brokers, which topic configs inherit.

    The brokers' own files may differ. For all brokers, this uses the file of the first live broker. In Kafka, the
    broker that receives a request answers from its own file."""
    layers: list[Layer] = [(CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER, image.broker_configs(None))]
    if broker_id is not None:
        layers.insert(0, (CONFIG_SOURCE_DYNAMIC_BROKER, image.broker_configs(broker_id)))
        broker = image.brokers.get(broker_id)
    else:
        broker = next(iter(image.live_brokers()), None)
    if broker is not None:
        layers.append((CONFIG_SOURCE_STATIC_BROKER, broker.static_configs))
    return layers
