"""The levels at which brokers' configs are set, strongest first, as config_defs wants them."""

from __future__ import annotations

from klamm.wire.v1.controller_pb2 import (
    CONFIG_SOURCE_DYNAMIC_BROKER,
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER,
    CONFIG_SOURCE_STATIC_BROKER,
)
from klamm_server.config.config_defs import Layer
from klamm_server.metadata.image import MetadataImage


def broker_layers(image: MetadataImage, broker_id: int | None) -> list[Layer]:
    """Returns the layers of configs of a broker. With None, returns those of all brokers, which describe topics.

    Brokers' own files may differ; for all of them the file of the first one that is alive stands in, as the one that is
    most likely asked in Kafka, where brokers answer this from their own."""
    layers: list[Layer] = [(CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER, image.broker_configs(None))]
    if broker_id is not None:
        layers.insert(0, (CONFIG_SOURCE_DYNAMIC_BROKER, image.broker_configs(broker_id)))
        broker = image.brokers.get(broker_id)
    else:
        broker = next(iter(image.live_brokers()), None)
    if broker is not None:
        layers.append((CONFIG_SOURCE_STATIC_BROKER, broker.static_configs))
    return layers
