"""Tests that the core imports nothing that could block a run, or make two runs differ. The list is short and closed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import klamm_controller.raft

ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "json",
    "klamm.errors",
    "random",
    "typing",
}
MODULES = sorted(Path(klamm_controller.raft.__path__[0]).glob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_raft_core_imports_only_pure_modules(path: Path) -> None:
    names = imported(ast.parse(path.read_text()))
    assert {name for name in names if not name.startswith("klamm_controller.raft.")} <= ALLOWED


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_raft_core_never_uses_the_shared_random_generator(path: Path) -> None:
    """The module may use `random` for its type, but must never call the shared generator."""
    used = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"
    }
    assert used <= {"Random"}
