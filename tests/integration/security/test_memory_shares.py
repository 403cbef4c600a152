"""Tests that groups and transactional ids have a bound of memory in the coordinator's process, and that each user has
a share of it.

A user joins many groups with as many bytes of metadata as a member may have, or begins ids of the longest length. The
users of this cluster do not log in, so they differ by their addresses.
"""

from __future__ import annotations

import contextlib
import pathlib
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from klamm import Admin, NewTopic
from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey
from tests.support.deployed_services import HOST, Deployment
from tests.support.kafka_wire import KafkaWire
from tests.support.ports import free_port
from tests.support.waiting import wait_until

OTHER_HOST = "127.0.0.2"
MAX_BYTES = 32 * 1024**2
ID_MAX_BYTES = 4 * 1024**2
METADATA = bytes(250_000)
GROUPS = 4 * MAX_BYTES // len(METADATA)
NOT_READY = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def deployment(tmp_path: pathlib.Path, metrics_port: int) -> Iterator[Deployment]:
    settings = {
        "group.metadata.max.bytes": str(MAX_BYTES),
        "transactional.id.metadata.max.bytes": str(ID_MAX_BYTES),
        "metrics.port": str(metrics_port),
    }
    deployed = Deployment(tmp_path, coordinator=settings)
    try:
        for service in (deployed.coordinator, deployed.broker, deployed.controller):
            service.start()
        with Admin(bootstrap_servers=deployed.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", partition_count=1)])
        yield deployed
    finally:
        for service in deployed.services.values():
            service.abandon()


def join(wire: KafkaWire, group_id: str, metadata: bytes, member_id: str = "") -> Any:
    """Sends a JoinGroup of a version in which a member gets its id with the answer."""
    fields = {
        "group_id": group_id,
        "session_timeout": 1_800_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "protocol_type": "test",
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    return wait_until(lambda: ready(wire.ask(ApiKey.JOIN_GROUP, 2, fields)))


def ready(answer: Any) -> Any:
    """Returns the answer, or None while the coordinator loads its shards."""
    return None if answer.error_code in NOT_READY else answer


def heartbeat(wire: KafkaWire, group_id: str, joined: Any) -> ErrorCode:
    fields = {"group_id": group_id, "generation_id": joined.generation_id, "member_id": joined.member_id}
    return ErrorCode.of(wire.ask(ApiKey.HEARTBEAT, 3, fields).error_code)


def sync(wire: KafkaWire, group_id: str, joined: Any) -> Any:
    fields = {
        "group_id": group_id,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": b"assigned"}],
    }
    return wire.ask(ApiKey.SYNC_GROUP, 1, fields)


def commit(wire: KafkaWire, group_id: str, joined: Any) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    fields = {
        "group_id": group_id,
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
        "retention_time": -1,
        "topics": [{"name": "orders", "partitions": [partition]}],
    }
    answer = wire.ask(ApiKey.OFFSET_COMMIT, 2, fields)
    return ErrorCode.of(answer.topics[0].partitions[0].error_code)


def shown(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def test_one_users_groups_take_a_bounded_memory_and_leave_room_for_another_user(deployment, metrics_port):
    with contextlib.ExitStack() as stack:
        greedy = stack.enter_context(KafkaWire(deployment.kafka_bootstrap))
        modest = stack.enter_context(KafkaWire(deployment.kafka_bootstrap, source=OTHER_HOST))
        # The first search for a coordinator creates the internal topic.
        greedy.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["first"]})
        first = join(greedy, "first", b"")
        assert sync(greedy, "first", first).error_code == ErrorCode.NONE
        before_bytes = deployment.coordinator.resident_bytes

        codes = Counter(join(greedy, f"large-{number}", METADATA).error_code for number in range(GROUPS))

        assert codes.keys() == {ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED}, codes
        assert codes[ErrorCode.NONE] * len(METADATA) > MAX_BYTES / 2
        assert deployment.coordinator.resident_bytes - before_bytes < 2 * MAX_BYTES
        assert shown(metrics_port, "klamm_coordinator_group_metadata_bytes") <= MAX_BYTES
        refused_count = shown(metrics_port, "klamm_coordinator_group_refusals_total")
        assert refused_count == codes[ErrorCode.GROUP_MAX_SIZE_REACHED]
        (line,) = (
            splitline for splitline in deployment.coordinator.log.splitlines() if "refused a request" in splitline
        )
        assert "group.metadata.max.bytes, group=large-" in line
        assert f"user={HOST} " in line

        joined = join(modest, "modest", bytes(10_000))
        assert joined.error_code == ErrorCode.NONE
        assert sync(modest, "modest", joined).assignment == b"assigned"
        assert commit(modest, "modest", joined) is ErrorCode.NONE
        assert heartbeat(modest, "modest", joined) is ErrorCode.NONE

        # The members of the refused user work as before.
        assert heartbeat(greedy, "first", first) is ErrorCode.NONE
        assert commit(greedy, "first", first) is ErrorCode.NONE


def init_producer_id(wire: KafkaWire, transactional_id: str) -> Any:
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return wait_until(lambda: ready(wire.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)))


def test_one_users_transactional_ids_take_a_bounded_memory_and_leave_room_for_another_user(deployment, metrics_port):
    with contextlib.ExitStack() as stack:
        greedy = stack.enter_context(KafkaWire(deployment.kafka_bootstrap))
        modest = stack.enter_context(KafkaWire(deployment.kafka_bootstrap, source=OTHER_HOST))
        greedy.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["modest"]})

        codes = Counter(init_producer_id(greedy, f"{number:030000}").error_code for number in range(100))

        assert codes.keys() == {ErrorCode.NONE, ErrorCode.POLICY_VIOLATION}, codes
        assert shown(metrics_port, "klamm_coordinator_transactional_id_metadata_bytes") <= ID_MAX_BYTES
        refused_count = shown(metrics_port, "klamm_coordinator_transactional_id_refusals_total")
        assert refused_count == codes[ErrorCode.POLICY_VIOLATION]
        assert init_producer_id(modest, "modest").error_code == ErrorCode.NONE
        # The ids of the refused user work as before.
        assert init_producer_id(greedy, f"{0:030000}").error_code == ErrorCode.NONE
