"""Adds the option that rewrites the expected traces: run `pytest tests/scenarios --rewrite`, then read the diff."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="replace expected traces by the present ones")
