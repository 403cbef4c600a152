"""Tests that a dead process is noticed at once, because its connection to the controller ends before its session."""

from __future__ import annotations

import pathlib
import signal

import grpc

from klamm.wire.v1.controller_pb2 import DescribeClusterRequest, DescribeClusterResponse
from klamm.wire.v1.controller_rpc import ADMIN
from tests.support.controller_quorum import Quorum, quorum_processes
from tests.support.waiting import patience, wait_until

SESSION_TIMEOUT_MS = "3600000"
"""The session time-out of brokers: longer than the test waits."""


def cluster_of(quorum: Quorum) -> DescribeClusterResponse:
    (method,) = (method for method in ADMIN.methods if method.name == "describe_cluster")
    with grpc.insecure_channel(quorum.wait_leader().address) as channel:
        call = channel.unary_unary(method.path, method.request_serializer, method.response_deserializer)
        answer = call(DescribeClusterRequest(), timeout=patience())
    assert isinstance(answer, DescribeClusterResponse)
    return answer


def wait_fenced(quorum: Quorum, *, fenced: bool) -> None:
    """Waits until the broker and the coordinator both are fenced, or both are not."""

    def is_so() -> bool:
        cluster = cluster_of(quorum)
        nodes = [*cluster.brokers, *cluster.coordinators]
        return len(nodes) == 2 and all(node.fenced == fenced for node in nodes)

    wait_until(is_so, lambda: cluster_of(quorum), pause_s=0.05)


def test_a_killed_process_is_fenced_before_its_session_ends(tmp_path: pathlib.Path) -> None:
    sessions = {
        "broker_session_timeout_ms": SESSION_TIMEOUT_MS,
        "coordinator_session_timeout_ms": SESSION_TIMEOUT_MS,
    }
    with quorum_processes(tmp_path, **sessions) as quorum:
        quorum.start()
        wait_fenced(quorum, fenced=False)
        for process in (quorum.broker, quorum.coordinator):
            process.end(signal.SIGKILL)
        wait_fenced(quorum, fenced=True)
