"""Tests the Spark source's calls to a wrong address, without Spark. They fail at once if no retry can help, and warn
otherwise."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructType

from klamm.errors import NoBrokerError, SslAuthenticationError
from pyspark_klamm import cluster_access
from pyspark_klamm.cluster_access import ClusterAccess
from pyspark_klamm.source_options import source_options
from pyspark_klamm.stream_source import KlammStreamReader
from tests.support.ports import free_port

NOT_TLS = "it does not speak TLS"
MANY = "1000000"
"""So many retries that a test would not end if a query used them."""


def given(bootstrap: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": "flights", "fetchOffset.numRetries": MANY, **options}


def reader(bootstrap: str, **options: str) -> KlammStreamReader:
    checked = source_options(given(bootstrap, **options), streaming=True)
    return KlammStreamReader(checked, StructType().add("value", BinaryType()))


@pytest.fixture
def silent_port() -> Iterator[str]:
    """Yields an address at which connections are accepted and nothing is ever said, as behind some firewalls."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_an_error_that_no_retry_mends_is_raised_at_the_first_attempt(cluster, caplog):
    with pytest.raises(SslAuthenticationError, match=NOT_TLS):
        reader(cluster.bootstrap, **{"kafka.security.protocol": "SSL"}).initialOffset()
    assert "attempt 1" not in caplog.text


def test_a_cluster_that_never_answered_is_tried_for_one_default_api_timeout_with_a_warning(caplog):
    with pytest.raises(NoBrokerError, match="Connection refused"):
        reader(f"127.0.0.1:{free_port()}", **{"kafka.default.api.timeout.ms": "500"}).initialOffset()
    (warning,) = (record.getMessage() for record in caplog.records if record.name == cluster_access.__name__)
    assert "does not answer, and the query will try again: " in warning


def test_a_check_that_may_pass_later_only_warns(silent_port, monkeypatch, caplog):
    monkeypatch.setattr(cluster_access, "CHECK_TIMEOUT_MS", 300)
    for bootstrap in (silent_port, f"127.0.0.1:{free_port()}"):
        access = ClusterAccess({"bootstrap.servers": bootstrap})
        access.check_address()
        access.close()
        assert f"the cluster at {bootstrap} does not answer" in caplog.text


def test_a_check_passes_if_one_of_the_addresses_is_right(cluster):
    access = ClusterAccess({"bootstrap.servers": f"{cluster.kafka_bootstrap},{cluster.bootstrap}"})
    access.check_address()
    assert access.has_answered
    access.close()
