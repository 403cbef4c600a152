"""A process that dies is missed at once: its connection to the controller ends with it, long before its session."""

from __future__ import annotations

import pathlib
import signal
import time

import grpc

from klamm.wire.v1.controller_pb2 import DescribeClusterRequest, DescribeClusterResponse
from klamm.wire.v1.controller_rpc import ADMIN
from tests.support.controller_quorum import Quorum, quorum_processes
from tests.support.server_process import DEADLINE_S

SESSION_TIMEOUT_S = 60
"""Far longer than a busy machine takes to notice."""


def cluster_of(quorum: Quorum) -> DescribeClusterResponse:
    (method,) = (method for method in ADMIN.methods if method.name == "describe_cluster")
    with grpc.insecure_channel(quorum.wait_leader().address) as channel:
        call = channel.unary_unary(method.path, method.request_serializer, method.response_deserializer)
        answer = call(DescribeClusterRequest(), timeout=DEADLINE_S)
    assert isinstance(answer, DescribeClusterResponse)
    return answer


def wait_fenced(quorum: Quorum, *, fenced: bool) -> float:
    """Until the broker and the coordinator both are, or are not; returns the seconds that took."""
    begin_s = time.monotonic()
    while time.monotonic() < begin_s + DEADLINE_S:
        cluster = cluster_of(quorum)
        nodes = [*cluster.brokers, *cluster.coordinators]
        if len(nodes) == 2 and all(node.fenced == fenced for node in nodes):
            return time.monotonic() - begin_s
        time.sleep(0.05)
    raise AssertionError(cluster)


def test_a_killed_process_is_fenced_before_its_session_ends(tmp_path: pathlib.Path) -> None:
    session_ms = str(SESSION_TIMEOUT_S * 1_000)
    sessions = {"broker_session_timeout_ms": session_ms, "coordinator_session_timeout_ms": session_ms}
    with quorum_processes(tmp_path, **sessions) as quorum:
        quorum.start()
        wait_fenced(quorum, fenced=False)
        for process in (quorum.broker, quorum.coordinator):
            process.end(signal.SIGKILL)
        assert wait_fenced(quorum, fenced=True) < SESSION_TIMEOUT_S / 2
