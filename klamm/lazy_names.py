"""Public names of a package that are loaded on first use (PEP 562), so that importing the package costs little.

The package's stub (`__init__.pyi`) is the only list of the names: type checkers read it, and so does this module."""

from __future__ import annotations

import importlib
import os
from _ast import ImportFrom, Module, PyCF_ONLY_AST  # `ast` itself takes 4 ms to load
from collections.abc import Callable, Iterator
from typing import Any


def lazy_names(namespace: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns the `__getattr__`, `__dir__` and `__all__` of a package. `namespace` is the package's `globals()`."""
    package = namespace["__name__"]
    path = os.path.join(os.path.dirname(namespace["__file__"]), "__init__.pyi")
    # The loader reads the file also from a zip file, as Spark ships packages to its workers.
    modules = dict(_imports_of(namespace["__spec__"].loader.get_data(path)))

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        namespace[name] = value
        return value

    def names() -> list[str]:
        return sorted({*namespace, *modules})

    return load, names, sorted(modules)


def _imports_of(stub: bytes) -> Iterator[tuple[str, str]]:
    """Returns the names that a stub imports, each with its module."""
    tree = compile(stub, "__init__.pyi", "exec", flags=PyCF_ONLY_AST)
    assert isinstance(tree, Module), tree
    for statement in tree.body:
        assert isinstance(statement, ImportFrom), statement
        assert statement.module is not None, statement
        for alias in statement.names:
            if alias.name == "*":
                yield from ((name, statement.module) for name in importlib.import_module(statement.module).__all__)
            else:
                yield alias.name, statement.module
