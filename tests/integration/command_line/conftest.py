"""Provides one cluster for the tests of single commands, and names and topics that no other test uses."""

from __future__ import annotations

import itertools

import pytest

from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster


@pytest.fixture(scope="session")
def klamm(tmp_path_factory):
    """Runs commands against the cluster that the files share. Some files replace it by a cluster of their own."""
    with running_cluster(tmp_path_factory.mktemp("cli")) as cluster:
        yield KlammCommand(cluster.bootstrap)


@pytest.fixture
def name(request, _numbers=itertools.count()):  # noqa: B008 - one count for all tests
    """Returns a name that no other test uses."""
    return f"t{next(_numbers)}-{request.node.originalname.removeprefix('test_').replace('_', '-')}"


@pytest.fixture
def topic(klamm, name):
    """Creates a topic with three partitions and returns its name."""
    klamm.ok("topics", "create", name, "--partitions", 3)
    return name
