"""Comes before every test: `klamm` before gRPC, which reads what `klamm` sets when it is imported."""

from __future__ import annotations

import os

import pytest
import seeds
from hypothesis import HealthCheck, settings

import klamm as klamm

# How long an example takes says more about the machine than about the code. Examples are the same in every run, as the
# seeds of `support/seeds.py` are.
settings.register_profile(
    "klamm",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize="TEST_SEED" not in os.environ,
)
settings.load_profile("klamm")

_LONGEST_FIRST = ("chaos", "clients", "compose", "integration", "sim", "scenarios", "unit")
"""Folders of tests. Two processes share them by file: what takes minutes must not be what the last one begins with."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Sets the seed of the tests' order, unless the command line names one."""
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = seeds.run_seed()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the random order within each folder."""
    root = config.rootpath / "tests"
    items.sort(key=lambda item: _LONGEST_FIRST.index(item.path.relative_to(root).parts[0]))
