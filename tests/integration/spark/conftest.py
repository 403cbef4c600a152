"""Shares one Spark session between all files of a process, and one cluster between the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from klamm import Admin
from tests.support.copy_job import CopyJob
from tests.support.klamm_process import KlammProcess, running_cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pyspark_klamm import local_session

    session = local_session("tests")
    session.sparkContext.setLogLevel("OFF")  # many queries fail on purpose
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def no_cached_clients() -> Iterator[None]:
    """Closes the clients that readers and sinks kept in this process. Other files look for clients left behind."""
    from pyspark_klamm import cluster_access, exactly_once, sink

    yield
    for kept in (cluster_access.accesses, sink.producers, exactly_once._admins):
        kept._close_idle(0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    """Yields a cluster for the tests of one file, which may kill it.

    Files with other settings have a fixture of their own.
    """
    # Old records are deleted at once, so that a test that would lose records after five minutes fails now.
    settings = {"transaction.state.log.num.partitions": "5", "log.retention.check.interval.ms": "1000"}
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings) as running:
        yield running


@pytest.fixture
def job(spark: Any, cluster: KlammProcess, tmp_path: Any) -> Iterator[CopyJob]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield CopyJob(spark, cluster, admin, tmp_path)
