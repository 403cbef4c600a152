"""Shows the parameters that a docstring explains as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe

from tools.docs_parameters import with_parameter_tables


class ParameterTables(griffe.Extension):  # type: ignore[misc]  # griffe is there for `make docs` alone
    """Turns the explained parameters of each function into a table."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called when a package has been read as a whole."""
        for owner in _classes(pkg):
            for function in owner.functions.values():
                if not function.is_alias and function.docstring is not None:
                    names = [parameter.name for parameter in function.parameters]
                    function.docstring = griffe.Docstring(
                        with_parameter_tables(function.docstring.value, names), parent=function
                    )


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    """Yields the classes that the module and the modules below it define. A class that they import is an alias."""
    yield from (each for each in module.classes.values() if not each.is_alias)
    for each in module.modules.values():
        if not each.is_alias:
            yield from _classes(each)
