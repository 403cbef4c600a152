"""Configs of topics and brokers."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class ConfigResourceType(enum.IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigResource(NamedTuple):
    """A resource that has configs, such as a topic or a broker."""

    type: ConfigResourceType
    name: str
    """A topic's name, a broker's id as text, or empty for the default of all brokers."""


class ConfigSource(enum.IntEnum):
    """The source of a config's value, such as a topic's own config or the default."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str
    """Empty when `sensitive`."""
    source: ConfigSource
    default_value: str
    read_only: bool
    sensitive: bool
    type: str
    """BOOLEAN, STRING, INT, LONG, DOUBLE or LIST."""
    documentation: str
    """Empty unless asked for."""


class ConfigOperation(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one config. `value` is not used for DELETE."""

    name: str
    value: str = ""
    operation: ConfigOperation = ConfigOperation.SET
