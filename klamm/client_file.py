"""Reads properties files with the settings of clients of all kinds, which Kafka's tools take with --command-config."""

from __future__ import annotations

from pathlib import Path

from klamm.config import ClientConfig, hide_secrets
from klamm.consumer.config import ConsumerConfig
from klamm.errors import ConfigError
from klamm.producer.config import ProducerConfig
from klamm.properties import read_properties
from klamm.setting import definitions, unknown

_CLASSES = (ClientConfig, ConsumerConfig, ProducerConfig)


def read_client_file(name: str, config_class: type[ClientConfig]) -> dict[str, str]:
    """Returns the settings of a file that clients of `config_class` have. Settings of other kinds of clients are
    skipped. Values of secret settings are Secrets.

    Raises ConfigError for a file that cannot be read, and for a setting that no kind of client has."""
    given = read_properties(Path(name))
    known = {
        setting
        for client_class in (*_CLASSES, config_class)
        for setting in (*definitions(client_class), *client_class.WITHOUT_EFFECT)
    }
    for setting in given:
        if setting not in known:
            raise ConfigError(unknown(setting, known))
    own = definitions(config_class)
    return hide_secrets({setting: text for setting, text in given.items() if setting in own})
