"""SQL statements in the five parameter styles of DB-API 2.0 (PEP 249)."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm.errors import ConfigError

PARAMSTYLES: Final = ("qmark", "numeric", "named", "format", "pyformat")
_NAME: Final = re.compile(r":(\w+)")


class Statement:
    """A statement whose parameters are written as `:name`."""

    def __init__(self, text: str, paramstyle: str) -> None:
        numbers = itertools.count(1)

        def placeholder(match: re.Match[str]) -> str:
            match paramstyle:
                case "qmark":
                    return "?"
                case "numeric":
                    return f":{next(numbers)}"
                case "named":
                    return match[0]
                case "format":
                    return "%s"
                case _:
                    return f"%({match[1]})s"

        self.text = _NAME.sub(placeholder, text)
        """The statement in the style of the driver."""
        self._names = None if paramstyle in ("named", "pyformat") else _NAME.findall(text)

    def arguments(self, values: Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
        """Returns the values as the style of the driver expects them."""
        return values if self._names is None else tuple(values[name] for name in self._names)


def paramstyle_of(connection: object) -> str:
    """Returns the `paramstyle` of the module that has the connection's class. Raises ConfigError if there is none."""
    for owner in type(connection).__mro__:
        package = owner.__module__.partition(".")[0]
        style = getattr(sys.modules.get(package), "paramstyle", None)
        if style in PARAMSTYLES:
            return str(style)
    raise ConfigError(
        f"no module with a paramstyle has the class {type(connection).__qualname__} of the connection: pass"
        f" paramstyle, one of {', '.join(PARAMSTYLES)}"
    )
