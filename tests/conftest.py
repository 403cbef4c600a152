"""Comes before every test: `klamm` before gRPC, which reads what `klamm` sets when it is imported."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

import klamm as klamm

# How long an example takes says more about the machine than about the code.
settings.register_profile("klamm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("klamm")

_LONGEST_FIRST = ("chaos", "clients", "compose", "integration", "sim", "scenarios", "unit")
"""Folders of tests. Two processes share them by file: what takes minutes must not be what the last one begins with."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the random order within each folder."""
    root = config.rootpath / "tests"
    items.sort(key=lambda item: _LONGEST_FIRST.index(item.path.relative_to(root).parts[0]))
