"""Tests the fields that a server registers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from klamm_server.rpc.server import RpcServer
from klamm_server.security.operations import UncheckedCallError
from tests.support.memory_transport import MemoryTransport


def test_a_service_with_a_call_without_a_check_is_refused() -> None:
    server = RpcServer(max_message_bytes=1_000, max_concurrent_rpcs=1, transport=MemoryTransport())
    service: Any = SimpleNamespace(methods=[SimpleNamespace(name="open", path="/klamm.v1.Vault/Open")])
    with pytest.raises(UncheckedCallError, match="Vault/Open"):
        server.add_service(service, SimpleNamespace(open=None))
