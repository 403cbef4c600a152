"""Waiting for another process's server: gRPC's own health service says when it serves."""

from __future__ import annotations

import logging

from grpc import RpcError, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from klamm.rpc.cancellation import raise_if_cancelled
from klamm.rpc.grpc_transport import channel_credentials
from klamm.security.material import TlsMaterial

log = logging.getLogger(__name__)


def _channel(address: str, material: TlsMaterial | None) -> aio.Channel:
    if material is None:
        return aio.insecure_channel(address)
    return aio.secure_channel(address, channel_credentials(material))


async def wait_health(address: str, material: TlsMaterial | None = None, *, serving: bool = True) -> None:
    """Waits for ever until the health of the server at host:port is SERVING. If not `serving`, waits until it is
    anything else, or until the server does not answer. `material` is for the connection's TLS; None means no TLS."""
    async with _channel(address, material) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                async for answer in stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=serving):
                    if (answer.status == health_pb2.HealthCheckResponse.SERVING) is serving:
                        return
            except RpcError as error:
                raise_if_cancelled()
                log.debug("could not read the health of %s: %s", address, error)
            if not serving:
                return
