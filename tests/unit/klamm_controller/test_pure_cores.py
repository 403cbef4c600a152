from __future__ import annotations

import ast
from pathlib import Path

import pytest

import klamm_controller.metadata

FORBIDDEN = {"asyncio", "grpc", "logging", "os", "rocksdict", "secrets", "socket", "threading", "time"}
CORES = sorted(Path(klamm_controller.metadata.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", CORES, ids=[path.stem for path in CORES])
def test_decisions_know_neither_time_nor_io_nor_chance(path):
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert not {name.partition(".")[0] for name in imported} & FORBIDDEN
    shells = [name for name in imported if name.startswith("klamm_controller.")]
    assert all(name.startswith("klamm_controller.metadata.") for name in shells), shells
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not {name for name in called if name.startswith("random.") or name in ("uuid.uuid4", "uuid.uuid1")}
