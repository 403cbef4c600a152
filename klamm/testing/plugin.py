"""The pytest plugin. The documentation of `klamm.testing` lists its fixtures."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from klamm import Admin, Consumer, Producer
    from klamm.testing.cluster import EmbeddedCluster

_NAME_MAX = 200
"""The maximum length of a topic's name here. Kafka allows 249 characters."""


@pytest.fixture(scope="session")
def klamm_options() -> dict[str, Any]:
    """Returns the arguments of the session's `EmbeddedCluster`."""
    return {}


@pytest.fixture(scope="session")
def klamm_cluster(klamm_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Starts a cluster for all tests of the session. Each pytest-xdist worker has its own."""
    from klamm.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(**{"data_dir": tmp_path_factory.mktemp("klamm"), **klamm_options}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def klamm_admin(klamm_cluster: EmbeddedCluster) -> Iterator[Admin]:
    """Makes an Admin client of the session's cluster."""
    from klamm import Admin

    with Admin(bootstrap_servers=klamm_cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def klamm_topic(klamm_admin: Admin, request: pytest.FixtureRequest) -> Iterator[str]:
    """Creates a topic with one partition for the test, and returns its name."""
    from klamm import NewTopic

    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:_NAME_MAX]
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    klamm_admin.create_topics([NewTopic(topic, partition_count=1)])
    yield topic
    klamm_admin.delete_topics([topic])


@pytest.fixture
def klamm_producer(klamm_cluster: EmbeddedCluster) -> Iterator[Producer]:
    """Makes a producer for one test."""
    from klamm import Producer

    with Producer(bootstrap_servers=klamm_cluster.bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def klamm_consumer(klamm_cluster: EmbeddedCluster, klamm_topic: str) -> Iterator[Consumer]:
    """Makes a consumer of `klamm_topic` that begins at the first record. Its group has the name of the topic."""
    from klamm import Consumer

    with Consumer(
        bootstrap_servers=klamm_cluster.bootstrap_servers, group_id=klamm_topic, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([klamm_topic])
        yield consumer
