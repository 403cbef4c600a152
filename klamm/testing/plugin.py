"""The pytest plugin: `klamm.testing` tells of its fixtures."""

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
"""Characters of a topic's name, of 249 that Kafka allows."""


@pytest.fixture(scope="session")
def klamm_options() -> dict[str, Any]:
    """The arguments of the session's `EmbeddedCluster`."""
    return {}


@pytest.fixture(scope="session")
def klamm_cluster(klamm_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A cluster for all tests of the session; each pytest-xdist worker has its own."""
    from klamm.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(**{"data_dir": tmp_path_factory.mktemp("klamm"), **klamm_options}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def klamm_admin(klamm_cluster: EmbeddedCluster) -> Iterator[Admin]:
    """An administrator's client of the session's cluster."""
    from klamm import Admin

    with Admin(bootstrap_servers=klamm_cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def klamm_topic(klamm_admin: Admin, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic of the test's own, with one partition."""
    from klamm import NewTopic

    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:_NAME_MAX]
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    klamm_admin.create_topics([NewTopic(topic, partition_count=1)])
    yield topic
    klamm_admin.delete_topics([topic])


@pytest.fixture
def klamm_producer(klamm_cluster: EmbeddedCluster) -> Iterator[Producer]:
    """A producer for one test."""
    from klamm import Producer

    with Producer(bootstrap_servers=klamm_cluster.bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def klamm_consumer(klamm_cluster: EmbeddedCluster, klamm_topic: str) -> Iterator[Consumer]:
    """A consumer of `klamm_topic`, from its first record, in a group named as the topic is."""
    from klamm import Consumer

    with Consumer(
        bootstrap_servers=klamm_cluster.bootstrap_servers, group_id=klamm_topic, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([klamm_topic])
        yield consumer
