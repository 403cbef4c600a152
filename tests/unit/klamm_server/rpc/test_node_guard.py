"""Tests calls in which servers speak for a node: permitted, refused at once, or ended during a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from klamm.wire.v1.broker_rpc import REPLICATION
from klamm.wire.v1.controller_rpc import CONTROLLER
from klamm.wire.v1.raft_pb2 import RaftEnvelope, RaftMessage, ReplicaKey
from klamm.wire.v1.raft_rpc import RAFT
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.net.listeners import CAME_BY
from klamm_server.rpc.node_guard import NodeGuard
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.auditor import Auditor
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.node_principals import NodePrincipals
from klamm_server.security.peer_principals import PeerPrincipals
from tests.support import certificates


class Caller:
    """The caller as gRPC describes it."""

    def __init__(self, certificate: str | None) -> None:
        self._shown = {} if certificate is None else {"x509_pem_cert": [certificate.encode()]}

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._shown

    def peer(self) -> str:
        return "ipv4:10.0.0.7:50321"


ONE = Caller(certificates.server("one").certificate_pem)
TWO = Caller(certificates.server("two").certificate_pem)
NOBODY = Caller(None)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[NodeGuard]:
    stores = certificates.write_stores(tmp_path, certificates.server())
    properties = {
        "node.id": "1",
        "listeners": "GRPC_SSL://localhost:9094",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        **stores.settings(),
    }
    principals = NodePrincipals.parse(["broker:1=User:one", "broker:2=User:two", "controller:1=User:one"])
    assert principals is not None
    came_by = CAME_BY.set("GRPC_SSL")
    yield NodeGuard(principals, PeerPrincipals(ListenersTls(load(BrokerConfig, properties))).of)
    CAME_BY.reset(came_by)


def method(methods: Sequence[Method], name: str) -> Method:
    (found,) = [one for one in methods if one.name == name]
    return found


def test_a_call_that_names_no_node_is_served_without_a_check(guard: NodeGuard) -> None:
    async def answer(request: Any, context: Any) -> None:
        raise AssertionError("nobody called")

    assert guard.guarded(method(CONTROLLER.methods, "watch_metadata"), answer) is answer


def test_a_request_for_another_node_is_refused_before_its_handler_is_called(guard: NodeGuard) -> None:
    async def answer(request: Any, context: Any) -> int:
        return int(request.broker_id)

    guarded = guard.guarded(method(CONTROLLER.methods, "broker_heartbeat"), answer)
    request = pb.BrokerHeartbeatRequest(broker_id=1)
    assert asyncio.run(guarded(request, ONE)) == 1
    for caller in (TWO, NOBODY):
        with pytest.raises(CallFailed) as caught:
            guarded(request, caller)
        assert caught.value.status is Status.PERMISSION_DENIED


def test_a_refusal_is_logged_and_audited_with_the_caller_and_the_node(
    tmp_path: Path, guard: NodeGuard, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[dict[str, Any]] = []

    class Output:
        async def write(self, lines: Sequence[bytes]) -> None:
            events.extend(map(json.loads, lines))

        async def close(self) -> None: ...

    config = load(BrokerConfig, {"node.id": "1", "audit.enable": "true"})
    guard._auditor = auditor = Auditor(config, "broker-1", SystemClock(), {"out": Output()})
    guarded = guard.guarded(method(CONTROLLER.methods, "broker_heartbeat"), lambda request, context: None)
    for node in (1, 3):
        with pytest.raises(CallFailed):
            guarded(pb.BrokerHeartbeatRequest(broker_id=node), TWO)
    asyncio.run(auditor.close())

    [line] = caplog.messages
    assert line == (
        "BrokerHeartbeat of 10.0.0.7 failed at the listener between servers: User:two may not act as another node"
        " (node.principals)"
    )
    assert {(event["actor"]["user"]["name"], event["status_detail"]) for event in events} == {
        ("two", f"User:two is not allowed to act as broker {node} (node.principals)") for node in (1, 3)
    }


async def _collect(answers: AsyncIterator[int], into: list[int]) -> None:
    async for answer in answers:
        into.append(answer)


async def _of(*requests: Any) -> AsyncIterator[Any]:
    for request in requests:
        yield request


def test_a_replica_fetch_stream_ends_at_the_first_request_for_another_broker(guard: NodeGuard) -> None:
    async def answer(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[int]:
        async for request in requests:
            yield request.max_wait_ms

    guarded = guard.guarded(method(REPLICATION.methods, "replica_fetch"), answer)

    async def scenario() -> list[int]:
        answered: list[int] = []
        requests = [
            ReplicaFetchRequest(replica_id=node, max_wait_ms=number) for number, node in enumerate((1, 1, 2, 1))
        ]
        with pytest.raises(CallFailed, match="User:one is not allowed to act as broker 2"):
            await _collect(guarded(_of(*requests), ONE), answered)
        return answered

    assert asyncio.run(scenario()) == [0, 1]


def test_raft_messages_are_accepted_only_from_the_principal_of_their_sender(guard: NodeGuard) -> None:
    async def answer(requests: AsyncIterator[Any], context: Any) -> list[int]:
        return [request.messages[0].term async for request in requests]

    guarded = guard.guarded(method(RAFT.methods, "exchange"), answer)

    async def exchanged(*senders: int) -> list[int]:
        messages = [RaftMessage(sender=ReplicaKey(node_id=node), term=7) for node in senders]
        answered: list[int] = await guarded(_of(*(RaftEnvelope(messages=[message]) for message in messages)), ONE)
        return answered

    assert asyncio.run(exchanged(1, 1)) == [7, 7]
    with pytest.raises(CallFailed, match="User:one is not allowed to act as controller 2"):
        asyncio.run(exchanged(1, 2))
