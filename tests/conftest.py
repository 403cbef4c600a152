"""Comes before every test: `klamm` before gRPC, which reads what `klamm` sets when it is imported."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import klamm as klamm
from tests.support import seeds

# How long an example takes says more about the machine than about the code. Examples are the same in every run, as the
# seeds of `support/seeds.py` are.
settings.register_profile(
    "klamm",
    max_examples=seeds.examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize="TEST_SEED" not in os.environ,
)
settings.load_profile("klamm")
if "TEST_SEED" not in os.environ:
    # Hypothesis draws constants that it finds in the modules that the process has imported by then: which those are
    # depends on the tests that it happened to run before.
    providers._get_local_constants = lambda: providers._local_constants

# A JVM that lives for a minute is not worth optimising: half of its CPU time went into that.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_LONGEST_FIRST = ("chaos", "clients", "compose", "integration", "security", "sim", "scenarios", "unit")
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
