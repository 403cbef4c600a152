"""What a config is: its type, default, valid values, documentation, and whether it changes at run time.

Values travel as text, as in Kafka: in properties files, in ConfigRecords, in DescribeConfigs. `ConfigDef.parse`
is the only place that turns such text into a typed value, `ConfigDef.render` its inverse.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from klamm.errors import ConfigError

ConfigValue = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(enum.Enum):
    """Kafka's `ConfigDef.Type`, as DescribeConfigs spells it. A LIST is a tuple of strings."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    LIST = "LIST"


class UpdateMode(enum.Enum):
    """Kafka's "update mode" of a broker config; a topic's own configs can always be changed."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    """On one broker, or on all of them by the resource with the empty name."""


class Required(enum.Enum):
    """The default of a config that has none."""

    REQUIRED = "required"


REQUIRED = Required.REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator:
    """Which values of the type are valid; `expected` completes the sentence "expected ..."."""

    expected: str
    accepts: Callable[[ConfigValue], bool]


def at_least(minimum: float) -> Validator:
    """Numbers from `minimum` on."""
    return between(minimum, math.inf)


def between(minimum: float, maximum: float) -> Validator:
    """Numbers from `minimum` to `maximum`, both included."""
    expected = f"at least {minimum}" if maximum == math.inf else f"{minimum} to {maximum}"
    return Validator(
        expected=expected, accepts=lambda value: isinstance(value, (int, float)) and minimum <= value <= maximum
    )


def one_of(*allowed: str) -> Validator:
    """One of some strings."""
    return Validator(expected=f"one of {', '.join(allowed)}", accepts=lambda value: value in allowed)


def list_of(*allowed: str) -> Validator:
    """A list of different strings out of some; it may be empty."""
    return Validator(
        expected=f"a list of {', '.join(allowed)}, none of them twice",
        accepts=lambda value: isinstance(value, tuple) and set(value) <= set(allowed) and len(set(value)) == len(value),
    )


def list_matching(pattern: str, expected: str) -> Validator:
    """A list of strings that match a regular expression; it may be empty."""
    compiled = re.compile(pattern)
    return Validator(
        expected=expected,
        accepts=lambda value: isinstance(value, tuple) and all(compiled.fullmatch(item) for item in value),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef:
    """One config. `default` is typed, not text; None stands for "not set"."""

    name: str
    type: ConfigType
    default: ConfigValue | Required
    documentation: str
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    sensitive: bool = False

    def parse(self, text: str) -> ConfigValue:
        """The typed value. Raises ConfigError naming the config, the text and what was expected."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise self._problem(text, _EXPECTED[self.type]) from None
        if self.validator is not None and not self.validator.accepts(value):
            raise self._problem(text, self.validator.expected)
        return value

    @property
    def has_default(self) -> bool:
        """Whether it has a value that nobody set."""
        return self.default is not None and not isinstance(self.default, Required)

    def default_text(self) -> str:
        """The default as text; empty when there is none."""
        return "" if isinstance(self.default, Required) else render(self.default)

    def _problem(self, text: str, expected: str) -> ConfigError:
        shown = "the value given" if self.sensitive else repr(text)
        return ConfigError(f"{self.name}: {shown} is not valid, expected {expected}")


def render(value: ConfigValue) -> str:
    """Kafka's text of a typed value, which `parse` reads back; None is the empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    return ",".join(value) if isinstance(value, tuple) else str(value)


def split_list(text: str) -> tuple[str, ...]:
    """The items of a LIST, trimmed; blank text is the empty list."""
    if not text.strip():
        return ()
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise ValueError(text)
    return items


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_integer(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # int() also takes "1_000", " 1" and digits of other scripts; Java's parser does not.
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError(text)
        value = int(text)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value

    return parse


def _parse_double(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PARSERS: dict[ConfigType, Callable[[str], ConfigValue]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.INT: _parse_integer(32),
    ConfigType.LONG: _parse_integer(64),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.STRING: str,
    ConfigType.LIST: split_list,
}
_EXPECTED: dict[ConfigType, str] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
    ConfigType.STRING: "text",
    ConfigType.LIST: "items separated by commas",
}
