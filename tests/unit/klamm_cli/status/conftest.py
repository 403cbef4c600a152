from __future__ import annotations

import dataclasses

import pytest

from tests.support.status_world import HEALTHY


@pytest.fixture
def facts():
    """Returns the function `facts(cluster={"controller_id": -1}, groups=...)`: a healthy cluster with these changes."""

    def changed(cluster=None, **changes):
        described = dataclasses.replace(HEALTHY.cluster, **(cluster or {}))
        return dataclasses.replace(HEALTHY, cluster=described, **changes)

    return changed
