"""How options of `format("klamm")` are written and checked, for source and sink alike.

Spark passes options with lower-case keys. Messages use the documented names. `kafka.` options (and `bootstrap.servers`
by itself) configure the clients; those that would break our own bookkeeping are refused, as Spark's Kafka connector
refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from klamm.config import ClientConfig, hide_secrets
from klamm.errors import ConfigError
from klamm.near_miss import near_miss
from klamm.setting import definitions, parse
from pyspark_klamm.client_file import CLIENT_FILE, with_file

_SPARK_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "serialization.format"})
"""The options that Spark adds to those of a source or sink."""
_KAFKA: Final = "kafka."
_FORBIDDEN: Final = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the checkpoint remembers the offsets",
    "interceptor.classes": "interceptors would see records twice",
    "key.deserializer": "keys are binary; use DataFrame operations",
    "value.deserializer": "values are binary; use DataFrame operations",
    "key.serializer": "keys are binary or strings",
    "value.serializer": "values are binary or strings",
}
_NAMED_IN_HINTS: Final = ("kafka.bootstrap.servers", "kafka.isolation.level", "kafka.group.id")
"""`kafka.` options that users often write without the prefix, or misspell."""
_TIME: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


S = TypeVar("S")


class OptionValues(Generic[S]):
    """The options a user gave, read by their documented names."""

    def __init__(self, given: Mapping[str, str], declared: type[S]) -> None:
        """Reads the options. `declared` is the class with all valid settings. Raises ConfigError for another name, with
        the nearest valid name, and for a value that does not fit."""
        self._given = {name.lower(): str(value).strip() for name, value in given.items()}
        names = {name.lower(): name for name in definitions(declared)}
        for name in self._given:
            if name not in names and name not in _SPARK_OWN and not _is_of_client(name):
                raise ConfigError(_unknown(name, names))
        known = {names[name]: value for name, value in self._given.items() if name in names}
        self.values = declared(**parse(declared, known))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str | None:
        """Returns the option's text without surrounding blanks, or None."""
        return self._given.get(name.lower())

    def client_settings(self) -> dict[str, str]:
        """Returns the settings of the clients by Kafka's dotted names; secrets are Secret. They include the name of the
        file with more settings, if there is one (`client_file`). Raises ConfigError for a setting that users may not
        set, and for a file that cannot be used."""
        settings = {name.removeprefix(_KAFKA): value for name, value in self._given.items() if name.startswith(_KAFKA)}
        if "bootstrap.servers" in self._given:
            settings.setdefault("bootstrap.servers", self._given["bootstrap.servers"])
        for name in settings:
            if name in _FORBIDDEN:
                raise ConfigError(f"kafka.{name} cannot be set: {_FORBIDDEN[name]}")
        if CLIENT_FILE in self:
            settings[CLIENT_FILE] = self._given[CLIENT_FILE.lower()]
        if "bootstrap.servers" not in with_file(settings, ClientConfig):
            raise ConfigError("option kafka.bootstrap.servers is not set: expected host:port of a broker")
        return hide_secrets(settings)


def choice(*choices: str) -> Callable[[object], str]:
    """Returns a function that accepts one of `choices` in any letter case, and raises ValueError for another value."""

    def convert(value: object) -> str:
        if str(value).lower() not in choices:
            raise ValueError(" or ".join(choices))
        return str(value).lower()

    return convert


def duration_ms(value: object) -> int:
    """Returns a duration in ms, from a text such as 15m or 200ms, as in Spark's Kafka source. A bare number is
    milliseconds."""
    match = _TIME.fullmatch(str(value).lower())
    if match is None:
        raise ValueError("a time such as 200ms, 30s, 15m or 1h")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _is_of_client(name: str) -> bool:
    return name.startswith(_KAFKA) or name == "bootstrap.servers"


def _unknown(name: str, names: Mapping[str, str]) -> str:
    candidates = {**names, **{in_hint: in_hint for in_hint in _NAMED_IN_HINTS}}
    candidates |= {in_hint.removeprefix(_KAFKA).replace(".", ""): in_hint for in_hint in _NAMED_IN_HINTS}
    nearest = near_miss(name, candidates)
    if nearest is not None:
        return f"unknown option {name!r}; did you mean {candidates[nearest]}?"
    return f"unknown option {name!r}; the options are {', '.join(sorted(names.values()))} and kafka.*"
