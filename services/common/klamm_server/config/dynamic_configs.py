"""The effective values of settings that change at run time (KIP-226).

A broker's own file is the weakest layer. The metadata's values for all brokers override it, and the metadata's values
for this broker override both. The controllers check a change before they write its record, and the broker checks it
when it applies the record. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from klamm.errors import ConfigError
from klamm.setting import UpdateMode, definitions, parse
from klamm_server.config.broker_configs import BrokerConfig

_THREAD_COUNTS: Final = ("log.cleaner.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir")


def in_force(own: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """Returns `own` with the values of `layers` (settings by name, strongest first). Settings that cannot change at run
    time stay the same.

    Raises ConfigError for a value that is invalid, by itself or together with others."""
    values: dict[str, Any] = {}
    known = definitions(BrokerConfig)
    for layer in reversed(layers):
        for name, text in layer.items():
            if name in known and known[name].update_mode is not UpdateMode.READ_ONLY:
                values[known[name].field] = known[name].parse(text)
    config = dataclasses.replace(own, **values)
    config.validate()
    return config


def check_step(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raises ConfigError if a number of threads changes to more than twice or less than half its value. So a typing
    error cannot start thousands of threads (Kafka's DynamicThreadPool)."""
    known = definitions(BrokerConfig)
    for name in _THREAD_COUNTS:
        old, new = getattr(before, known[name].field), getattr(after, known[name].field)
        if not old // 2 <= new <= old * 2:
            raise ConfigError(
                f"{name}: {new} is not valid, expected {max(1, old // 2)} to {old * 2}, because the current value"
                f" is {old}"
            )


def own_config(broker_id: int, static_configs: Mapping[str, str]) -> BrokerConfig:
    """Returns the configuration that a registered broker was started with. Skips unknown names, because the broker may
    have another version. Raises ConfigError."""
    known = definitions(BrokerConfig)
    given = {name: text for name, text in static_configs.items() if name in known} | {"node.id": str(broker_id)}
    return BrokerConfig(**parse(BrokerConfig, given), originals=dict(static_configs))
