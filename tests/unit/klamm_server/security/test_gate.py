"""Tests every RPC of the contracts with clients without rights, with servers, and with clients that pose as servers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

import klamm.wire.v1
from klamm.acls import CLUSTER_NAME, AclBinding, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.rpc.call_metadata import CALL_METADATA
from klamm.rpc.status import CallFailed, Status
from klamm.wire.acls import binding_message
from klamm.wire.service import Method, methods
from klamm.wire.v1.controller_pb2 import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.net.listeners import CAME_BY
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.audit.decisions import Call, SessionAudit
from klamm_server.security.audit.events import TEXT_MAX
from klamm_server.security.audit.trail import AuditTrail
from klamm_server.security.gate import FORWARDED, Gate, for_caller, forwarded, host_of
from klamm_server.security.operations import check_of_rpc
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.session import CALL, CALLER, Session
from tests.support.audit_events import AuditedServer, short
from tests.support.callers import ALICE, HOST, allow, called_with, index_of, session_of

SERVER = "User:CN=broker"
IS_SERVER = allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, SERVER)


def contracts() -> list[Method]:
    found: list[Method] = []
    for module in pkgutil.iter_modules(klamm.wire.v1.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"klamm.wire.v1.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                found += methods(service)
    return found


METHODS = {method.path: method for method in contracts()}
OF_CLUSTER = [path for path in METHODS if check_of_rpc(path).of_cluster]
OTHERS = [path for path in METHODS if not check_of_rpc(path).of_cluster]


class Context:
    """A call as a transport describes it."""

    def __init__(self, *metadata: tuple[str, str | bytes]) -> None:
        self._metadata = metadata

    def peer(self) -> str:
        return f"ipv4:{HOST}:50321"

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self._metadata

    def add_done_callback(self, function: Any) -> None:
        """Ignores the function, because no test waits for the end of the call."""


def assert_denied(path: str, principal: str, *acls: AclBinding, context: Context | None = None) -> None:
    with pytest.raises(CallFailed) as refused:
        call(path, principal, *acls, context=context, servicer=_must_not_be_called)
    assert refused.value.status is Status.PERMISSION_DENIED


def _must_not_be_called() -> None:
    raise AssertionError("the servicer was called")


def call(
    path: str,
    principal: str,
    *acls: AclBinding,
    context: Context | None = None,
    servicer: Callable[[], None] = lambda: None,
) -> list[Session | None]:
    """Calls a method whose servicer records the caller."""
    index, method = index_of(acls), METHODS[path]
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    gate = Gate(authorizer, lambda: index, lambda _: principal)
    called: list[Session | None] = []

    async def unary(request: Any, context: Any) -> None:
        servicer()
        called.append(CALLER.get())

    async def stream(request: Any, context: Any) -> AsyncIterator[None]:
        servicer()
        called.append(CALLER.get())
        yield None

    async def run() -> None:
        if method.server_streaming:
            async for _ in gate.guarded(method, stream)(None, context or Context()):
                pass
        else:
            await gate.guarded(method, unary)(None, context or Context())

    asyncio.run(run())
    return called


@pytest.mark.parametrize("path", OF_CLUSTER)
def test_a_cluster_call_without_the_right_never_reaches_the_servicer(path: str) -> None:
    assert_denied(path, ALICE)
    assert_denied(path, ALICE, allow(AclOperation.ALL, ResourceType.TOPIC, "*"))


@pytest.mark.parametrize("path", OF_CLUSTER)
def test_each_sufficient_cluster_operation_allows_the_call(path: str) -> None:
    for operation in check_of_rpc(path).of_cluster:
        (caller,) = call(path, ALICE, allow(operation, ResourceType.CLUSTER, CLUSTER_NAME))
        # A caller that may do CLUSTER_ACTION is a server, which acts for itself.
        assert (caller is None) is (operation is AclOperation.CLUSTER_ACTION)


@pytest.mark.parametrize("path", OTHERS)
def test_a_resource_call_reaches_the_servicer_with_its_caller(path: str) -> None:
    (caller,) = call(path, ALICE)
    assert caller is not None
    assert (caller.principal, caller.host) == (ALICE, HOST)
    assert not caller.may(AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")


@pytest.mark.parametrize("path", [path for path in METHODS if METHODS[path].server_streaming])
def test_a_servers_stream_ends_when_the_server_loses_its_right(path: str) -> None:
    """The stream then belongs to a client, which has no right to the calls between servers."""
    indexes = [index_of([IS_SERVER])]
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    gate = Gate(authorizer, lambda: indexes[-1], lambda _: SERVER)
    callers: list[Session | None] = []

    async def stream(request: Any, context: Any) -> AsyncIterator[int]:
        for number in range(4):
            callers.append(CALLER.get())
            yield number

    async def run() -> list[int | Status]:
        told: list[int | Status] = []
        try:
            async for number in gate.guarded(METHODS[path], stream)(None, Context()):
                told.append(number)
                if number == 1:
                    indexes.append(index_of([]))
        except CallFailed as error:
            told.append(error.status)
        return told

    told = asyncio.run(run())
    if path in OF_CLUSTER:
        assert told == [0, 1, Status.PERMISSION_DENIED]
    else:
        assert told == [0, 1, 2, 3]
        assert [caller and caller.principal for caller in callers] == [None, None, None, SERVER]


@pytest.mark.parametrize("path", METHODS)
def test_a_server_may_call_for_itself_or_forward_a_clients_call(path: str) -> None:
    assert call(path, SERVER, IS_SERVER) == [None]
    alice = session_of(principal=ALICE)
    if path in OF_CLUSTER:
        assert_denied(path, SERVER, IS_SERVER, context=Context(forwarded(alice)))
    else:
        (caller,) = call(path, SERVER, IS_SERVER, context=Context(("x", "y"), forwarded(alice)))
        assert caller is not None
        assert (caller.principal, caller.host) == (ALICE, HOST)


@pytest.mark.parametrize("path", METHODS)
def test_a_client_must_not_forward_calls_of_another_principal(path: str) -> None:
    """The rights of the claimed principal do not help."""
    admin = allow(AclOperation.ALL, ResourceType.CLUSTER, CLUSTER_NAME, "User:admin")
    claims = Context(forwarded(session_of(principal="User:admin")))
    assert_denied(path, ALICE, admin, context=claims)


@pytest.mark.parametrize("told", [b"\xff\nUser:admin", b"10.0.0.1\n\xff", b"no line", b""])
def test_a_call_with_a_malformed_forwarded_principal_is_refused(told: bytes) -> None:
    """A client without the right to forward gets the same refusal as for a readable claim."""
    path, claims = "/klamm.v1.Admin/DescribeCluster", Context((FORWARDED, told))
    assert_denied(path, ALICE, context=claims)
    with pytest.raises(
        CallFailed, match="klamm-principal-bin is malformed, expected a line with an address"
    ) as refused:
        call(path, SERVER, IS_SERVER, context=claims, servicer=_must_not_be_called)
    assert refused.value.status is Status.INVALID_ARGUMENT


def test_a_call_for_a_caller_carries_the_forwarded_principal() -> None:
    assert CALL_METADATA.get() == ()
    with for_caller():
        assert CALL_METADATA.get() == ()
    with called_with(), for_caller():
        assert CALL_METADATA.get() == (forwarded(session_of()),)
    assert CALL_METADATA.get() == ()


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:50321", "10.0.0.1"),
        ("ipv6:%5B::1%5D:50321", "::1"),
        ("ipv6:[2001:db8::5]:1", "2001:db8::5"),
        ("unix:/tmp/socket", "unix:/tmp/socket"),
    ],
)
def test_the_host_of_a_caller_is_parsed_from_its_grpc_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


@pytest.mark.parametrize("default", [True, False])
def test_until_the_acls_are_loaded_only_super_users_are_allowed(default: bool) -> None:
    is_loaded = False
    who = ALICE
    authorizer = StandardAuthorizer(super_users=["User:root"], allow_everyone_if_no_acl_found=default)
    gate = Gate(authorizer, lambda: index_of(()), lambda _: who, is_loaded=lambda: is_loaded)

    async def answer(request: Any, context: Any) -> str:
        return "answered"

    describe = gate.guarded(METHODS["/klamm.v1.Admin/DescribeCluster"], answer)
    with pytest.raises(CallFailed) as refused:
        asyncio.run(describe(None, Context()))
    assert refused.value.status is Status.UNAVAILABLE
    who = "User:root"
    assert asyncio.run(describe(None, Context())) == "answered"
    who, is_loaded = ALICE, True
    assert asyncio.run(describe(None, Context())) == "answered"


@pytest.mark.parametrize(("listener", "is_server"), [("INTERNAL", True), ("CLIENTS", False)])
def test_cluster_action_makes_a_caller_a_server_only_at_the_listener_between_servers(
    listener: str, is_server: bool
) -> None:
    """Elsewhere, a client with that right could otherwise do everything, for any principal."""
    index = index_of((IS_SERVER,))
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    gate = Gate(authorizer, lambda: index, lambda _: SERVER, servers_listener="INTERNAL")
    called: list[Session | None] = []

    async def answer(request: Any, context: Any) -> None:
        called.append(CALLER.get())

    async def run(path: str, *metadata: tuple[str, str | bytes]) -> None:
        CAME_BY.set(listener)
        await gate.guarded(METHODS[path], answer)(None, Context(*metadata))

    asyncio.run(run("/klamm.v1.Admin/DescribeCluster"))
    assert [session is None for session in called] == [is_server]
    for path, metadata in ((CREATE_ACLS, ()), (CREATE_ACLS, (forwarded(session_of(principal="User:root")),))):
        with contextlib.nullcontext() if is_server and not metadata else pytest.raises(CallFailed):
            asyncio.run(run(path, *metadata))


class ToldGate(AuditedServer):
    """A gate's auditor that keeps its events."""

    def after(
        self,
        path: str,
        principal: str,
        *acls: AclBinding,
        context: Context | None = None,
        answer: Any = None,
        request: Any = None,
        logged_in: str | None = None,
    ) -> list[tuple[object, ...]]:
        """Calls a method twice as this principal. Returns the audit events in short form."""
        index = index_of(acls)
        authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
        gate = Gate(authorizer, lambda: index, lambda _: principal, auditor=self.auditor)

        async def servicer(request: Any, context: Any) -> Any:
            return answer

        async def run() -> None:
            LOGGED_IN.set(logged_in)
            for _ in range(2):
                with contextlib.suppress(CallFailed):
                    await gate.guarded(METHODS[path], servicer)(request, context or Context())
            await self.auditor.close()

        asyncio.run(run())
        return [short(event) for event in self.events]


CREATE_ACLS = "/klamm.v1.Admin/CreateAcls"
ALTER = allow(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)


def test_the_audit_has_each_denied_call_and_each_certificate_once() -> None:
    assert ToldGate().after(CREATE_ACLS, ALICE) == [
        (3002, True, ALICE, "", 1),
        (6003, False, ALICE, "CreateAcls", CLUSTER_NAME, 1),
        (6003, False, ALICE, "CreateAcls", CLUSTER_NAME, 1),
    ]


def test_a_client_that_logged_in_is_not_audited_as_authenticated_by_certificate() -> None:
    denied = (6003, False, ALICE, "CreateAcls", CLUSTER_NAME, 1)
    assert ToldGate().after(CREATE_ACLS, ALICE, logged_in=ALICE) == [denied, denied]


def test_the_audit_has_each_change_and_its_principal() -> None:
    entry = allow(AclOperation.READ, ResourceType.TOPIC, "orders", "User:bob")
    request = CreateAclsRequest(creations=[binding_message(entry)])
    answer = CreateAclsResponse(results=[AclCreationResult()])
    told = ToldGate()
    told.after(CREATE_ACLS, ALICE, ALTER, request=request, answer=answer, logged_in=ALICE)
    made, again = told.events
    assert made["class_uid"] == 3001
    assert made["actor"]["user"]["name"] == "alice"
    assert made["user"]["name"] == "bob"
    assert made["policy"]["desc"] == str(entry)
    assert again["count"] == 1


@pytest.mark.parametrize(
    ("principal", "policy", "excluded", "is_refused"),
    [
        (ALICE, "reject", "", True),
        (ALICE, "permit", "", False),
        (ALICE, "reject", ALICE, False),
        (SERVER, "reject", "", False),
    ],
)
def test_a_change_that_the_audit_could_not_record_is_refused_before_it_is_made(
    principal: str, policy: str, excluded: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that acts for itself is not refused, because it may have to create the audit's topic."""
    told = AuditedServer(**{"audit.failure.policy": policy, "audit.excluded.principals": excluded})
    monkeypatch.setattr(AuditTrail, "is_overrun", True)
    index = index_of((ALTER, IS_SERVER))
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    gate = Gate(authorizer, lambda: index, lambda _: principal, auditor=told.auditor)
    changed = []

    async def servicer(request: Any, context: Any) -> CreateAclsResponse:
        changed.append(request)
        return CreateAclsResponse()

    async def run() -> None:
        await gate.guarded(METHODS[CREATE_ACLS], servicer)(CreateAclsRequest(), Context())

    if not is_refused:
        asyncio.run(run())
        assert changed
        return
    with pytest.raises(CallFailed, match="the audit does not accept events") as refused:
        asyncio.run(run())
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert not changed


def test_the_audit_names_a_server_that_changes_something_for_itself() -> None:
    answer = CreateAclsResponse(results=[AclCreationResult()])
    request = CreateAclsRequest(creations=[binding_message(IS_SERVER)])
    told = ToldGate()
    told.after(CREATE_ACLS, SERVER, IS_SERVER, request=request, answer=answer, logged_in=SERVER)
    assert {event["actor"]["user"]["name"] for event in told.events} == {"CN=broker"}


def test_the_audit_has_clients_that_claim_to_be_a_server() -> None:
    context = Context(forwarded(session_of(principal="User:victim")))
    told = ToldGate()
    told.after(CREATE_ACLS, ALICE, context=context, logged_in=ALICE)
    assert {short(event) for event in told.events} == {(6003, False, ALICE, "CreateAcls", CLUSTER_NAME, 1)}
    assert {event["unmapped"]["operation"] for event in told.events} == {"CLUSTER_ACTION"}


def test_the_audit_has_the_client_id_and_the_listener_of_a_forwarded_call() -> None:
    answer = CreateAclsResponse(results=[AclCreationResult()])
    request = CreateAclsRequest(creations=[binding_message(IS_SERVER)])
    client = session_of(principal=ALICE)
    client.audit = SessionAudit(ToldGate().auditor.trail, lambda: 0, ALICE, HOST)
    caller, made = CALLER.set(client), CALL.set(Call("CREATE_ACLS", "app-7\n" + 300 * "é", "SASL_SSL"))
    with for_caller():
        context = Context(*CALL_METADATA.get())
    CALLER.reset(caller)
    CALL.reset(made)
    for acls, is_allowed in ((ALTER, IS_SERVER), True), ((IS_SERVER,), False):
        told = ToldGate()
        told.after(CREATE_ACLS, SERVER, *acls, context=context, request=request, answer=answer, logged_in=SERVER)
        event = told.events[0]
        assert (event["status_id"] == 1, event["actor"]["user"]["name"]) == (is_allowed, "alice")
        assert event["src_endpoint"] == {"ip": HOST, "name": ("app-7\n" + 300 * "é")[:TEXT_MAX]}
        assert event["dst_endpoint"]["svc_name"] == "SASL_SSL"


def test_a_forwarded_call_of_an_older_server_is_audited_without_the_client_id() -> None:
    told = ToldGate()
    told.after(CREATE_ACLS, SERVER, IS_SERVER, context=Context(forwarded(session_of())), logged_in=SERVER)
    assert {event["actor"]["user"]["name"] for event in told.events} == {"alice"}
    assert "name" not in told.events[0]["src_endpoint"]


def test_the_audit_has_certificates_that_match_no_rule() -> None:
    def principal_of(_: Any) -> str:
        raise CallFailed(Status.UNAUTHENTICATED, "no rule takes it")

    told = ToldGate()
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    gate = Gate(authorizer, AclIndex, principal_of, auditor=told.auditor)

    async def servicer(request: Any, context: Any) -> None:
        raise AssertionError("the servicer was called")

    async def run() -> None:
        with pytest.raises(CallFailed):
            await gate.guarded(METHODS[CREATE_ACLS], servicer)(None, Context())
        await told.auditor.close()

    asyncio.run(run())
    (event,) = told.events
    assert (event["class_uid"], event["status_id"], event["status_detail"]) == (3002, 2, "no rule takes it")


def test_the_sessions_of_a_server_share_the_memory_of_their_decisions() -> None:
    index = index_of(())
    gate = Gate(StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False), lambda: index)
    held = []
    sessions = [gate.session(ALICE, f"10.0.0.{number}") for number in range(3)]
    for session in sessions:
        session.may(AclOperation.READ, ResourceType.TOPIC, "orders")
        held.append(gate.decisions.held_bytes)
    assert held == [held[0], 2 * held[0], 3 * held[0]]
    assert held[0] > 0
