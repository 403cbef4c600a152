"""Tests that the generated types of calls agree with the messages on the wire."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import klamm.wire.v1
from klamm.wire.stubs import Service
from klamm.wire.v1.broker_rpc import BROKER, REPLICATION, BrokerStub
from klamm.wire.v1.common_rpc import SERVER
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm.wire.v1.raft_rpc import RAFT

SERVICES = [ADMIN, BROKER, CONTROLLER, COORDINATOR, RAFT, REPLICATION, SERVER]


def classes(kind: str) -> dict[str, dict[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Returns the methods of the classes whose names end in `kind`, in all .pyi files."""
    found = {}
    for path in Path(klamm.wire.v1.__path__[0]).glob("*_rpc.pyi"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(kind):
                found[node.name] = {
                    one.name: one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                }
    return found


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_the_types_of_each_stub_method_equal_its_messages(service: Service):
    stubs, apis = classes("Stub"), classes("Api")
    short = service.name.rpartition(".")[2]
    typed, served = stubs[f"{short}Stub"], apis[f"{short}Api"]
    assert list(typed) == list(served) == [method.name for method in service.methods]
    for method in service.methods:
        stub, api = typed[method.name], served[method.name]
        assert isinstance(stub, ast.AsyncFunctionDef) is not (method.client_streaming or method.server_streaming)
        request, answer = ast.unparse(api.args.posonlyargs[1].annotation), ast.unparse(api.returns)
        if method.client_streaming:
            request = request.removeprefix("AsyncIterator[").removesuffix("]")
        if method.server_streaming:
            answer = answer.removeprefix("AsyncIterator[").removesuffix("]")
        assert (request == "bytes") is (method.request_serializer is None), method.path
        assert (answer == "bytes") is (method.response_serializer is None), method.path
        if method.client_streaming:
            assert ast.unparse(stub.returns) == f"Duplex[{request}, {answer}]"
        else:
            assert ast.unparse(stub.args.args[1].annotation) == request
            assert ast.unparse(stub.returns) == ast.unparse(api.returns)
        assert ast.get_docstring(stub), f"{method.path} has no comment in the contract"


def test_a_stub_method_is_bound_once_and_can_be_called_through_its_class():
    bound = []

    def bind(method):
        bound.append(method.name)
        return lambda request, **options: (method.name, request, options)

    stub = BrokerStub(bind)
    assert stub.fetch(1) == ("fetch", 1, {})
    assert BrokerStub.fetch(stub, 2, timeout_ms=3) == ("fetch", 2, {"timeout_ms": 3})
    assert BrokerStub.fetch.__name__ == "fetch"
    assert bound == ["fetch"]
    with pytest.raises(AttributeError):
        stub.no_such_call(1)  # type: ignore[attr-defined]
