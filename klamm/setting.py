"""The definition of settings. Servers, topics, clients, and Spark's source and sink use it to declare each setting
once.

A setting is a field of a frozen dataclass, and the field's name is the setting's with underscores:

    @dataclass(frozen=True, kw_only=True)
    class ProducerConfig(ClientConfig):
        batch_size: int = integer(16_384, at_least=0, doc="A batch is sent when the next record would ...")

`definitions` gives the settings of such a class by dotted name (`batch.size`), `parse` turns what a user gave into
typed values for its fields, and `render` turns a value into Kafka's text. The type checker holds a field's annotation
to the kind of setting: `str` beside `integer` is an error."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from klamm.errors import ConfigError
from klamm.secret import Secret

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(enum.Enum):
    """Kafka's `ConfigDef.Type`, as DescribeConfigs spells it. A LIST is a tuple of strings."""

    BOOLEAN = "BOOLEAN"
    SHORT = "SHORT"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"
    """The value is a `Secret`."""


class UpdateMode(enum.Enum):
    """Kafka's "update mode" of a broker config (KIP-226); a topic's own configs can always be changed."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    """The setting changes on one broker, or on all of them by the resource with the empty name."""


class Synonym(NamedTuple):
    """A broker setting that is the default of a topic setting. The broker's number times `factor` is the topic's
    value.
    """

    name: str
    factor: int = 1


class _Required:
    """The default of a setting that must be set."""


REQUIRED: Any = _Required()


class Validator(NamedTuple):
    """The valid values of a setting. `expected` completes the sentence "expected ..."."""

    expected: str
    accepts: Callable[[Any], bool]
    options: tuple[str, ...] = ()
    """The only valid texts, if there are few."""


def at_least(minimum: float) -> Validator:
    """Returns a validator for numbers from `minimum` on."""
    return between(minimum, math.inf)


def between(minimum: float, maximum: float) -> Validator:
    """Returns a validator for numbers from `minimum` to `maximum`, both included."""
    expected = f"at least {minimum}" if maximum == math.inf else f"{minimum} to {maximum}"
    return Validator(expected=expected, accepts=lambda value: bool(minimum <= value <= maximum))


def one_of(*allowed: str) -> Validator:
    """Returns a validator for one of the `allowed` strings."""
    return Validator(expected=f"one of {', '.join(allowed)}", accepts=lambda value: value in allowed, options=allowed)


def list_of(*allowed: str) -> Validator:
    """Returns a validator for a list of different `allowed` strings, which may be empty."""
    return Validator(
        expected=f"a list of {', '.join(allowed)}, none of them twice",
        accepts=lambda value: set(value) <= set(allowed) and len(set(value)) == len(value),
    )


def list_matching(pattern: str, expected: str) -> Validator:
    """Returns a validator for a list of strings that match a regular expression. The list may be empty."""
    compiled = re.compile(pattern)
    return Validator(expected=expected, accepts=lambda value: all(compiled.fullmatch(item) for item in value))


class Setting(NamedTuple):
    """One setting. `default` is typed, not text; None stands for "not set"."""

    type: ConfigType
    default: Any
    documentation: str
    name: str = ""
    """The dotted name. `definitions` makes it from the field's, unless it is given."""
    field: str = ""
    validator: Validator | None = None
    convert: Callable[[Any], Any] | None = None
    """Converts a user's value, if the type does not. Raises ValueError that names the expected values."""
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    takes_effect: str = ""
    """The time at which a change at run time takes effect, if it is not immediate."""
    read_by: str = ""
    """The code that reads the setting, if it is not the class that declares it."""
    sensitive: bool = False
    per_listener: bool = False
    """True if a listener of a server may have its own value."""
    mechanisms: tuple[str, ...] = ()
    """The SASL mechanisms for which a listener may have its own value."""
    shown: str = ""
    """The default as shown to users, if it is not the default's text."""
    accepts: str = ""
    """The Python type of a user's value, if `convert` decides. `tools.setting_types` writes it for type checkers."""
    synonyms: tuple[Synonym, ...] = ()
    """The broker settings that a topic setting falls back to. The first one that is set applies."""

    def parse(self, value: object) -> Any:
        """Returns the typed value of text, or of a value that has the type. Raises ConfigError, which names the
        setting, the value and the allowed values."""
        if value is None and self.default is None:
            return None
        try:
            parsed = (self.convert or _CONVERTERS[self.type])(value)
        except ValueError as error:
            raise self._problem(value, str(error)) from None
        if self.validator is not None and not self.validator.accepts(parsed):
            raise self._problem(value, self.validator.expected)
        return parsed

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def has_default(self) -> bool:
        """True if the setting has a value without being set."""
        return self.default is not None and not self.is_required

    def default_text(self) -> str:
        """Returns the default as text, or empty text if there is none."""
        return self.shown or ("" if self.is_required else render(self.default))

    def _problem(self, value: object, expected: str) -> ConfigError:
        shown = "the value given" if self.sensitive else repr(value)
        return ConfigError(f"{self.name}: {shown} is not valid, expected {expected}")


def render(value: Any) -> str:
    """Returns Kafka's text of a typed value, which `Setting.parse` can read. None becomes the empty text, and a secret
    "[hidden]"."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    return ",".join(value) if isinstance(value, tuple) else str(value)


def split_list(text: str) -> tuple[str, ...]:
    """Returns the trimmed items of a LIST. Blank text is the empty list. Raises ValueError for an empty item."""
    if not text.strip():
        return ()
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise ValueError("items separated by commas")
    return items


# How a field is declared


class _Details(TypedDict, total=False):
    """The fields of a Setting that only few settings need."""

    name: str
    update_mode: UpdateMode
    takes_effect: str
    read_by: str
    sensitive: bool
    per_listener: bool
    shown: str
    synonyms: tuple[Synonym, ...]


_Bool = TypeVar("_Bool", bound=bool | None)
_Int = TypeVar("_Int", bound=int | None)
_Float = TypeVar("_Float", bound=float | None)
_Str = TypeVar("_Str", bound=str | None)
_Secret = TypeVar("_Secret", bound=Secret | None)
_List = TypeVar("_List", bound=tuple[str, ...] | None)
_Any = TypeVar("_Any")


def boolean(default: _Bool, *, doc: str, valid: Validator | None = None, **details: Unpack[_Details]) -> _Bool:
    """Declares a setting that is true or false."""
    return _field(ConfigType.BOOLEAN, default, doc, valid, details)


def integer(
    default: _Int,
    *,
    doc: str,
    at_least: int | None = None,
    at_most: int | None = None,
    valid: Validator | None = None,
    **details: Unpack[_Details],
) -> _Int:
    """Declares a whole number of 32 bits."""
    return _field(ConfigType.INT, default, doc, valid or _within(at_least, at_most), details)


def long(
    default: _Int,
    *,
    doc: str,
    at_least: int | None = None,
    valid: Validator | None = None,
    **details: Unpack[_Details],
) -> _Int:
    """Declares a whole number of 64 bits."""
    return _field(ConfigType.LONG, default, doc, valid or _within(at_least, None), details)


def double(default: _Float, *, doc: str, valid: Validator | None = None, **details: Unpack[_Details]) -> _Float:
    """Declares a finite number."""
    return _field(ConfigType.DOUBLE, default, doc, valid, details)


def text(default: _Str, *, doc: str, valid: Validator | None = None, **details: Unpack[_Details]) -> _Str:
    """Declares a string."""
    return _field(ConfigType.STRING, default, doc, valid, details)


def secret(default: _Secret, *, doc: str, **details: Unpack[_Details]) -> _Secret:
    """Declares a string that is never shown."""
    return _field(ConfigType.PASSWORD, default, doc, None, {**details, "sensitive": True})


def text_list(default: _List, *, doc: str, valid: Validator | None = None, **details: Unpack[_Details]) -> _List:
    """Declares a list of strings. Its value is a list, or text with commas between the items."""
    return _field(ConfigType.LIST, default, doc, valid, details)


def custom(
    default: _Any,
    convert: Callable[[Any], Any],
    *,
    doc: str,
    type: ConfigType = ConfigType.CLASS,
    accepts: str = "",
    **details: Unpack[_Details],
) -> _Any:
    """Declares a setting with any value that `convert` accepts. `convert` raises ValueError that names the expected
    values."""
    declared = Setting(type=type, default=default, documentation=doc, convert=convert, accepts=accepts, **details)
    field: _Any = _declared(declared)
    return field


def again(owner: type[Any], name: str, **changes: Any) -> Any:
    """Declares a setting of another class again, with `changes` of its definition."""
    return _declared(definitions(owner)[name]._replace(**changes))


def _field(type_: ConfigType, default: _Any, doc: str, validator: Validator | None, details: _Details) -> _Any:
    field: _Any = _declared(Setting(type=type_, default=default, documentation=doc, validator=validator, **details))
    return field


def _declared(setting: Setting) -> Any:
    if setting.is_required:
        return dataclasses.field(metadata={"setting": setting})
    return dataclasses.field(default=setting.default, metadata={"setting": setting})


def _within(minimum: int | None, maximum: int | None) -> Validator | None:
    if minimum is not None and maximum is not None:
        return between(minimum, maximum)
    if minimum is not None:
        return at_least(minimum)
    assert maximum is None
    return None


# What a class declares


def dotted(field_name: str) -> str:
    """Returns Kafka's name of a field."""
    return field_name.replace("_", ".")


_definitions: dict[type[Any], Mapping[str, Setting]] = {}


def definitions(owner: type[Any]) -> Mapping[str, Setting]:
    """Returns the settings that a class and its base classes declare, by name."""
    if owner in _definitions:
        return _definitions[owner]
    declared = ((field.name, field.metadata.get("setting")) for field in dataclasses.fields(owner))
    settings = [
        setting._replace(field=name, name=setting.name or dotted(name))
        for name, setting in declared
        if setting is not None
    ]
    _definitions[owner] = {setting.name: setting for setting in settings}
    return _definitions[owner]


def parse(owner: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the typed values of the given settings, by field. Raises ConfigError for an unknown name, for an invalid
    value, and for a required setting that is missing."""
    known = definitions(owner)
    values = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(unknown(name, known))
        values[known[name].field] = known[name].parse(value)
    for name, setting in known.items():
        if setting.is_required and name not in given:
            raise ConfigError(f"{name} is not set: {setting.documentation}")
    return values


def unknown(name: str, known: Iterable[str]) -> str:
    """Says that a program with the settings `known` has no setting `name`, and what to write in its place."""
    return f"unknown configuration {name}{hint(name, known)}"


def hint(name: str, known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """Returns the name to write in place of `name`, as the rest of a sentence. The sentence says that there is no such
    setting. The text is empty if no known name fits. `shown` is how the program writes the name of a near miss."""
    # Import here, because only a mistyped name needs these modules.
    from klamm.kafka_names.refused import advice
    from klamm.near_miss import near_miss

    known = set(known)
    if (found := advice(name, known)) is not None:
        return f"; {found}"
    nearest = near_miss(name, known)
    return "" if nearest is None else f"; did you mean {shown(nearest)}?"


# Types


def _to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("true or false")


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
"""Matches whole numbers. int() also accepts "1_000" and digits of other scripts, which Java's parser refuses."""


def _to_integer(bits: int) -> Callable[[Any], int]:
    limit = 1 << bits - 1

    def convert(value: Any) -> int:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit:
            return value
        raise ValueError(f"a whole number of {bits} bits")

    return convert


def _to_double(value: Any) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError("a number")


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("text")


def _to_secret(value: Any) -> Secret:
    if isinstance(value, str):
        return Secret(value)
    raise ValueError("text")


def to_list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return split_list(value)
    if isinstance(value, Iterable):
        items = tuple(value)
        if all(isinstance(item, str) and item.strip() for item in items):
            return tuple(item.strip() for item in items)
    raise ValueError("items separated by commas, or a list of them")


_CONVERTERS: Mapping[ConfigType, Callable[[Any], Any]] = {
    ConfigType.BOOLEAN: _to_boolean,
    ConfigType.SHORT: _to_integer(16),
    ConfigType.INT: _to_integer(32),
    ConfigType.LONG: _to_integer(64),
    ConfigType.DOUBLE: _to_double,
    ConfigType.STRING: _to_text,
    ConfigType.LIST: to_list,
    ConfigType.PASSWORD: _to_secret,
}
