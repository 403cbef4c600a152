"""Provides a broker with three log dirs."""

from __future__ import annotations

import pytest

from tests.support.log_managers import ManagerHarness


@pytest.fixture
def harness(tmp_path, faulty_disk):
    harness = ManagerHarness(tmp_path, faulty_disk)
    yield harness
    for manager in list(harness.running):
        harness.crash(manager)


@pytest.fixture
def manager(harness):
    return harness.start()
