"""Tests rules that import-linter cannot see: decisions use no own randomness and no shell of the controller."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import klamm_controller.metadata

CORES = sorted(Path(klamm_controller.metadata.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", CORES, ids=[path.stem for path in CORES])
def test_decisions_use_no_shared_randomness_and_import_only_the_metadata_core(path):
    tree = ast.parse(path.read_text())
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not {name for name in called if name.startswith("random.") or name in ("uuid.uuid4", "uuid.uuid1")}
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    own = {name for name in imported if name.startswith("klamm_controller.")}
    assert all(name.startswith("klamm_controller.metadata.") for name in own), own
