"""The calls that a process answers, with its health.

Every server tells its version and clock as well (`self_description.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from klamm.setting import INT_MAX
from klamm.wire.stubs import Service
from klamm.wire.v1.common_rpc import SERVER
from klamm_server.net.listeners import DEFAULT_NAME
from klamm_server.rpc.call_limit import CallLimit
from klamm_server.rpc.call_throttle import CallThrottle
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.item_limits import with_item_limit
from klamm_server.rpc.node_guard import NodeGuard
from klamm_server.rpc.other_services import KnownServers, OtherServices, Role
from klamm_server.rpc.transport import Handler, ServerLimits, ServerTransport
from klamm_server.runtime.faults import watch
from klamm_server.runtime.self_description import ServerServicer
from klamm_server.security.gate import Gate
from klamm_server.security.logins.logins import ListenerLogins
from klamm_server.security.operations import check_of_rpc, is_between_servers
from klamm_server.security.server_tls import ServerTls

log = logging.getLogger(__name__)

ApiT = TypeVar("ApiT")


class RpcServer:
    """The gRPC services of a process. Each listener has them all. Only one may have the calls between servers.

    `max_message_bytes` limits received messages (`socket.request.max.bytes`). `max_concurrent_rpcs` limits the calls of
    clients in progress, with a share for each user. `max_connections` limits the connections at each address of a
    listener, with a share for each address of clients."""

    def __init__(
        self,
        *,
        max_message_bytes: int,
        max_concurrent_rpcs: int,
        max_connections: int = INT_MAX,
        transport: ServerTransport | None = None,
        guard: NodeGuard | None = None,
        servers_listener: str | None = None,
        is_migrating: bool = False,
    ) -> None:
        """Makes a server without services. `guard` checks which node a caller may speak for. The calls between servers
        are served at `servers_listener` only, or at every listener if it is None. `is_migrating` is True during a
        security migration."""
        limits = ServerLimits(
            receive_max_bytes=max_message_bytes,
            concurrent_calls_max=min(2 * max_concurrent_rpcs, INT_MAX),
            connections_max=max_connections,
        )
        self._server = (transport or GrpcServerTransport()).server(limits)
        self._guard = guard
        self._servers_listener = servers_listener
        self._other_services = OtherServices(servers_listener)
        self._room = CallLimit(max_concurrent_rpcs)
        self._handlers: list[Handler] = []
        self._running: list[asyncio.Task[None]] = []
        self._self_description = ServerServicer(is_migrating=is_migrating)
        self.add_service(SERVER, self._self_description)

    def add_service(
        self,
        service: Service[Any, ApiT],
        servicer: ApiT,
        gate: Gate | None = None,
        throttle: CallThrottle | None = None,
    ) -> None:
        """Registers every RPC of `service`, before the start. With an authorizer, the calls pass the `gate`. The
        `throttle` limits the time of clients' calls. Clients' requests may have few items (`item_limits.py`). Raises
        AttributeError if the servicer lacks a method, UncheckedCallError if `operations` has no check for one."""
        if gate is not None:
            self._self_description.has_authorizer = True
        for method in service.methods:
            check_of_rpc(method.path)
            answer = getattr(servicer, method.name)
            if not is_between_servers(method.path):
                answer = with_item_limit(method, answer)
            if throttle is not None:
                answer = throttle.limited(answer)
            answer = self._room.limited(method, answer, knows_servers=gate is not None)
            if gate is not None:
                answer = gate.guarded(method, answer)
            guarded = answer if self._guard is None else self._guard.guarded(method, answer)
            self._handlers.append(Handler(method, guarded))

    def add_role(self, role: Role, known: KnownServers) -> None:
        """Notes that this process has a server of that kind, which knows these servers. If a client calls a service
        of another kind, the error names them."""
        self._other_services.add(role, known)

    async def start(
        self,
        bind: str,
        port: int,
        listener: str = DEFAULT_NAME,
        tls: ServerTls | None = None,
        logins: ListenerLogins | None = None,
    ) -> int:
        """Listens at every address of `bind`, which may be empty. With `tls`, connections are encrypted. With `logins`,
        only clients that log in are served. Returns the port, which the system selects if `port` is 0. Call this once
        for each listener.

        Raises KlammError if an address cannot be bound, and ConfigError for settings that gRPC does not support."""
        handlers = self._handlers
        if self._servers_listener not in (None, listener):
            # Without an authorizer, any client could read the users' credentials by these calls.
            handlers = [handler for handler in handlers if not is_between_servers(handler.method.path)]
        if logins is None:
            return await self._server.listen(bind, port, listener, handlers, tls, refusal=self._other_services.refusal)
        # Import here, because few listeners have logins.
        from klamm_server.rpc.call_logins import CallLogins

        callers = CallLogins(logins)
        self._running.append(watch(asyncio.create_task(callers.run(), name=f"logins-{listener}")))
        return await self._server.listen(
            bind, port, listener, callers.handlers(handlers), tls, callers, self._other_services.refusal
        )

    async def report_health(self, wait_serving: Callable[[bool], Awaitable[None]]) -> None:
        """Reports health until it is cancelled. It is SERVING after `wait_serving(True)` returns, until
        `wait_serving(False)` returns. Calls are always accepted, but the services may not be ready for them."""
        while True:
            await wait_serving(True)
            await self._server.report_health(True)
            await wait_serving(False)
            log.warning("stopped serving, because this server is currently not an active member of the cluster")
            await self.become_unhealthy()

    async def become_unhealthy(self) -> None:
        """Sets health to NOT_SERVING, which it also is at the start."""
        await self._server.report_health(False)

    async def stop(self, grace_s: float) -> None:
        """Stops accepting calls. Calls under way have `grace_s` seconds to end."""
        await self._server.stop(grace_s)
        for task in self._running:
            task.cancel()
