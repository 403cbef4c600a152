"""Provides one cluster for all tests, whose servers are bound to their certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.authorized_cluster import authorized_cluster
from tests.support.canary_cluster import CanaryCluster, filled

NODES: Final = "controller:1=User:controller,broker:1=User:broker,coordinator:1=User:coordinator"


@pytest.fixture(scope="session")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CanaryCluster]:
    with authorized_cluster(tmp_path_factory.mktemp("canary"), node_principals=NODES) as made:
        yield filled(made)
