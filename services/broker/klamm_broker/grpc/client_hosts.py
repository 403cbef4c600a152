"""The addresses of gRPC clients."""

from __future__ import annotations

from klamm.wire.calls import CallContext
from klamm_broker.handlers.parkers import ClientHost
from klamm_server.security.gate import host_of


def client_host(context: CallContext) -> ClientHost:
    """Returns a function that returns the address of the call's client. Most calls never need it."""
    return lambda: host_of(context.peer())
