"""How options of `format("klamm")` are written and checked, for source and sink alike.

Spark hands options over with lower-cased keys; messages name them as they are documented. `kafka.` options (and
`bootstrap.servers` by itself) configure the clients; those that would break our own bookkeeping are refused, as Spark's
Kafka connector refuses them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from klamm.errors import ConfigError
from klamm.model import topic_name_problem

_SPARK_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "serialization.format"})
"""What Spark adds to a source's or sink's options."""
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
"""`kafka.` options that people write without it, or close to it."""
_TIME: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionValues:
    """The options a user gave, read by their documented names."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        """`known`: all there are. Raises ConfigError for any other, with the nearest known name."""
        self._given = {name.lower(): str(value) for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._given:
            if name not in names and name not in _SPARK_OWN and not _is_of_client(name):
                raise ConfigError(_unknown(name, names))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str | None:
        """As it was given, without blanks around it."""
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def boolean(self, name: str, *, default: bool) -> bool:
        """Raises ConfigError unless true or false, in any letter case."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{name}={value!r}: expected true or false")
        return value.lower() == "true"

    def choice(self, name: str, *choices: str) -> str:
        """One of `choices` in any letter case; the first is the default. Raises ConfigError."""
        value = (self.text(name) or choices[0]).lower()
        if value not in choices:
            raise ConfigError(f"{name}={self.text(name)!r}: expected {' or '.join(choices)}")
        return value

    def integer(self, name: str, *, at_least: int) -> int | None:
        """Raises ConfigError unless a whole number of that size."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise ConfigError(f"{name}={value!r}: expected a whole number of at least {at_least}")
        return number

    def duration_ms(self, name: str) -> int | None:
        """A time as Spark's Kafka source has it, such as 15m or 200ms; a bare number is milliseconds."""
        value = self.text(name)
        if value is None:
            return None
        match = _TIME.fullmatch(value.lower())
        if match is None:
            raise ConfigError(f"{name}={value!r}: expected a time such as 200ms, 30s, 15m or 1h")
        return int(match[1]) * _UNITS_MS[match[2] or "ms"]

    def topic(self, name: str) -> str | None:
        """The name of a topic. Raises ConfigError when it cannot be one."""
        value = self.text(name)
        if value is not None and (problem := topic_name_problem(value)):
            raise ConfigError(f"{name}={value!r}: {problem}")
        return value

    def client_settings(self) -> dict[str, str]:
        """The settings of the clients by Kafka's dotted names. Raises ConfigError for one that is not the user's."""
        settings = {name.removeprefix(_KAFKA): value for name, value in self._given.items() if name.startswith(_KAFKA)}
        if "bootstrap.servers" in self._given:
            settings.setdefault("bootstrap.servers", self._given["bootstrap.servers"])
        for name in settings:
            if name in _FORBIDDEN:
                raise ConfigError(f"kafka.{name} cannot be set: {_FORBIDDEN[name]}")
        if "bootstrap.servers" not in settings:
            raise ConfigError("option kafka.bootstrap.servers is required: host:port of a broker")
        return settings


def _is_of_client(name: str) -> bool:
    return name.startswith(_KAFKA) or name == "bootstrap.servers"


def _unknown(name: str, names: Mapping[str, str]) -> str:
    candidates = {**names, **{each: each for each in _NAMED_IN_HINTS}}
    candidates |= {each.removeprefix(_KAFKA).replace(".", ""): each for each in _NAMED_IN_HINTS}
    nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    hint = f"did you mean {candidates[nearest[0]]}? " if nearest else ""
    return f"klamm has no option {name!r} here; {hint}it knows {', '.join(sorted(names.values()))} and kafka.*"
