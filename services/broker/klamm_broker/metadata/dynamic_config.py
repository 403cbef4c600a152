"""The broker's effective configuration, and the parts of the broker that it reconfigures after a change (KIP-226).

Kafka's `DynamicBrokerConfig`. The parts of a broker are built with its static configuration. A part with settings that
can be changed at run time is reconfigured with each new configuration, in one turn of the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from klamm.errors import ConfigError
from klamm.setting import definitions, render
from klamm_server.config.broker_configs import BROKER_CONFIGS, BrokerConfig
from klamm_server.config.dynamic_configs import in_force
from klamm_server.metadata.image import MetadataImage

log = logging.getLogger(__name__)

Reconfigure = Callable[[BrokerConfig], None]
"""The type of a function that applies a new configuration."""


class DynamicConfig:
    """The effective configuration. The owner calls `apply` with each image of the metadata. Event loop only."""

    def __init__(self, own: BrokerConfig) -> None:
        self._own = own
        self._configs: object = None
        self._reconfigured: list[Reconfigure] = []
        self.current = own
        """The effective configuration."""

    def add(self, reconfigure: Reconfigure) -> None:
        """Registers a function that is called with each new configuration."""
        self._reconfigured.append(reconfigure)

    def apply(self, image: MetadataImage) -> None:
        """Applies the configs of the metadata. A wrong value is logged and skipped. If values contradict each other,
        the previous configuration stays."""
        if image.configs is self._configs:
            return
        self._configs = image.configs
        layers = (image.broker_configs(self._own.node_id), image.broker_configs(None))
        try:
            config = in_force(self._own, *map(_fitting, layers))
        except ConfigError as error:
            log.error("could not apply configs of the metadata: %s", error)
            return
        before, self.current = self.current, config
        changes = _changes(before, config)
        if not changes:
            return
        log.info("config in force: %s", ", ".join(changes))
        for reconfigure in self._reconfigured:
            reconfigure(config)


def _fitting(layer: Mapping[str, str]) -> dict[str, str]:
    """Returns the configs without invalid values. Another version may have accepted such values."""
    fitting = {}
    for name, text in layer.items():
        try:
            if name in BROKER_CONFIGS:
                BROKER_CONFIGS[name].parse(text)
                fitting[name] = text
        except ConfigError as error:
            log.error("ignored a config of the metadata: %s", error)
    return fitting


def _changes(before: BrokerConfig, after: BrokerConfig) -> list[str]:
    return [
        f"{name}={render(getattr(after, setting.field))}"
        for name, setting in definitions(BrokerConfig).items()
        if getattr(before, setting.field) != getattr(after, setting.field)
    ]
