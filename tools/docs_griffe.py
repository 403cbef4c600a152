"""Gives the reference the docstrings that synchronous clients take over from the asynchronous ones, and shows the
parameters that a docstring explains as a table.

`klamm.threads.facade.documented_by` copies them when a program runs. The reference reads the sources and runs nothing,
so this extension of griffe (mkdocs.yml) does the same with what it read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe

from tools.docs_parameters import with_parameter_tables


class FacadeDocstrings(griffe.Extension):  # type: ignore[misc]  # griffe is there for `make docs` alone
    """Fills in the docstrings of classes that are decorated by `documented_by`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called when a package has been read as a whole."""
        for owner in _classes(pkg):
            for decorator in owner.decorators:
                if decorator.callable_path.endswith(".documented_by"):
                    source = pkg.modules_collection[_source_path(owner, decorator)]
                    _copy(source, owner)
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


def _source_path(owner: griffe.Class, decorator: griffe.Decorator) -> str:
    """The full name of the class that the decorator is given."""
    name = str(decorator.value).partition("(")[2].rstrip(")")
    assert owner.parent is not None
    return owner.parent.resolve(name)


def _copy(source: Any, target: griffe.Class) -> None:
    known = source.all_members
    for name, method in target.functions.items():
        if method.docstring is None and not name.startswith("_") and name in known:
            method.docstring = known[name].docstring
