"""Writes the settings of the clients as TypedDicts, for type checkers and editors, or checks them:
`python -m tools.setting_types [--check]`.

A client declares `**settings: Unpack[ProducerSettings]`. An editor then completes the settings and shows the sentence
of each, and a type checker finds misspelt names and wrong types. The TypedDicts are made from the classes that declare
the settings, and are never written by hand.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.producer.config import ProducerConfig
from klamm.setting import ConfigType, Setting, definitions

ROOT: Final = Path(__file__).resolve().parents[1]
_WIDTH: Final = 120
_TYPES: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "bool",
    ConfigType.SHORT: "int",
    ConfigType.INT: "int",
    ConfigType.LONG: "int",
    ConfigType.DOUBLE: "float",
    ConfigType.STRING: "str",
    ConfigType.PASSWORD: "str",
    ConfigType.LIST: "str | Sequence[str]",
}
_MODULES: Final[Mapping[str, str]] = {
    "Assignor": "klamm.consumer.assignors",
    "Callable": "collections.abc",
    "ClientSettings": "klamm.setting_types",
    "ConsumerInterceptor": "klamm.consumer.config",
    "Generic": "typing",
    "Iterable": "collections.abc",
    "KeyT": "klamm.type_variables",
    "Literal": "typing",
    "PartitionFunction": "klamm.partitioner",
    "Partitioner": "klamm.partitioner",
    "PositionReset": "klamm.consumer.position_reset",
    "ProducerInterceptor": "klamm.producer.interceptors",
    "Sequence": "collections.abc",
    "SerdeName": "klamm.serializers",
    "TokenCallback": "klamm.security.client_settings",
    "TypedDict": "typing",
    "ValueT": "klamm.type_variables",
}
"""The module of each name that the generated types use."""


class _Made(NamedTuple):
    """A TypedDict of the settings of one class."""

    path: str
    name: str
    bases: str
    owner: type[Any]
    inherited: type[Any] | None
    """The class whose settings the base has."""
    subject: str


_ALL: Final = (
    _Made("klamm/setting_types.py", "ClientSettings", "TypedDict", ClientConfig, None, "every client"),
    _Made(
        "klamm/producer/setting_types.py",
        "ProducerSettings",
        "ClientSettings, Generic[KeyT, ValueT]",
        ProducerConfig,
        ClientConfig,
        "a producer",
    ),
    _Made(
        "klamm/consumer/setting_types.py",
        "ConsumerSettings",
        "ClientSettings, Generic[KeyT, ValueT]",
        ConsumerConfig,
        ClientConfig,
        "a consumer",
    ),
)


def modules() -> dict[str, str]:
    """Returns the text of each generated module, by its path in the repository."""
    return {made.path: _formatted(made.path, _module(made)) for made in _ALL}


def type_of(setting: Setting) -> str:
    """Returns the Python type of the values that a user may give."""
    options = setting.validator.options if setting.validator is not None else ()
    if setting.accepts:
        accepted = setting.accepts
    elif options and setting.type is ConfigType.STRING:
        accepted = f"Literal[{', '.join(map(repr, options))}]"
    else:
        accepted = _TYPES[setting.type]
    return f"{accepted} | None" if setting.default is None else accepted


def description(setting: Setting) -> str:
    """Returns what an editor shows about a setting: its sentence, unit, default and Kafka's name."""
    parts = [setting.documentation]
    if setting.name.endswith(".ms"):
        parts.append("In milliseconds.")
    default = setting.default_text()
    parts.append(f"Default: {default}." if default else "Not set by default.")
    parts.append(f"Name in a mapping: `{setting.name}`.")
    return " ".join(parts)


def _module(made: _Made) -> str:
    inherited = definitions(made.inherited) if made.inherited is not None else {}
    settings = [definition for name, definition in definitions(made.owner).items() if name not in inherited]
    fields = "\n".join(line for setting in settings for line in _field(setting))
    used = set(re.findall(r"\w+", " ".join([made.bases, *map(type_of, settings)]))) & set(_MODULES)
    return (
        f'"""The settings of {made.subject}, as keyword arguments. Written by `python -m tools.setting_types`."""\n\n'
        f"from __future__ import annotations\n\n{_imports(used)}\n\n"
        f"class {made.name}({made.bases}, total=False):\n"
        f'    """The settings of {made.subject}, by names with underscores. Each may be left out."""\n\n{fields}\n'
    )


def _field(setting: Setting) -> Iterator[str]:
    yield f"    {setting.field}: {type_of(setting)}"
    text = '"""' + description(setting).replace("\\", "\\\\")
    yield from textwrap.wrap(
        text + '"""', _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


def _imports(used: set[str]) -> str:
    by_module: dict[str, list[str]] = {}
    for name in sorted(used):
        by_module.setdefault(_MODULES[name], []).append(name)
    return "\n".join(f"from {module} import {', '.join(names)}" for module, names in by_module.items())


def _formatted(path: str, text: str) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for command in (["check", "--select=I", "--fix", "--quiet"], ["format"]):
        run = subprocess.run(
            [*ruff, *command, f"--stdin-filename={path}", "-"], input=text, capture_output=True, text=True, check=True
        )
        text = run.stdout
    return text


def main() -> int:
    """Returns the exit status: 1 if `--check` finds a module that is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tools.setting_types", description="Writes the TypedDicts.")
    parser.add_argument("--check", action="store_true", help="Write nothing; name the modules that are out of date.")
    is_check = parser.parse_args().check
    stale = []
    for path, text in modules().items():
        if is_check and (ROOT / path).read_text(encoding="utf-8") != text:
            stale.append(path)
        if not is_check:
            (ROOT / path).write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path} is out of date: write it again by `python -m tools.setting_types`", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
