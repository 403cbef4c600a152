"""Tests that the image installs the packages of requirements.lock and nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tools.deploy_locks import LOCKS, closure, read_pins, wanted_by_lock

ROOT = Path(__file__).resolve().parents[3]


def test_each_lock_is_its_closure_of_requirements_lock() -> None:
    pins = read_pins((ROOT / "requirements.lock").read_text())
    wanted = wanted_by_lock(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    assert {path.stem for path in LOCKS.glob("*.lock")} == wanted.keys()
    for name, requirements in wanted.items():
        part = read_pins((LOCKS / f"{name}.lock").read_text())
        assert part == {each: pins[each] for each in sorted(closure(requirements))}, f"{name}: make lock"


def test_every_line_of_requirements_lock_is_a_pin() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "".join(read_pins(text).values()) == "".join(
        line for line in text.splitlines(keepends=True) if line.strip() and not line.lstrip().startswith("#")
    )
