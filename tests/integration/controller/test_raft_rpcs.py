"""Tests the messages between controllers over a real connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

from klamm.rpc.grpc_transport import GrpcTransport
from klamm.wire.v1.raft_pb2 import IntroduceRequest, IntroduceResponse, RaftEnvelope, RaftExchangeResponse
from klamm.wire.v1.raft_rpc import RAFT
from klamm_controller.io.peer_link import PeerLink
from klamm_controller.io.raft_codec import encode
from klamm_controller.raft.messages import Message, ReplicaKey, TimeoutNowRequest
from klamm_controller.rpc.raft import RaftRpcs
from klamm_server.rpc.server import RpcServer
from tests.support.waiting import patience

ME = ReplicaKey(1, "")
OTHER = ReplicaKey(2, "")


def make_envelope(messages: Sequence[Message]) -> RaftEnvelope:
    return RaftEnvelope(cluster_id="c", messages=[encode(message) for message in messages])


def test_a_stopping_controller_does_not_wait_for_open_streams_of_its_peers() -> None:
    async def run() -> None:
        received = asyncio.Event()
        rpcs = RaftRpcs(
            ME, "c", voter_ids=(1, 2), receive=lambda message: received.set(), learn=lambda key, address: None
        )
        server = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=10)
        server.add_service(RAFT, rpcs)
        port = await server.start("127.0.0.1", 0)
        link = PeerLink(GrpcTransport(), f"127.0.0.1:{port}", make_envelope=make_envelope, rng=random.Random(1))
        sending = asyncio.create_task(link.run())
        try:
            async with asyncio.timeout(patience()):
                link.send(TimeoutNowRequest(sender=OTHER, receiver=ME, term=1))
                await received.wait()
                rpcs.stop()
                await server.stop(grace_s=10 * patience())
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    asyncio.run(run())


class Streams:
    """A Raft service that counts the streams that reach it."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def exchange(self, envelopes: AsyncIterator[RaftEnvelope], context: Any) -> RaftExchangeResponse:
        self.opened.set()
        async for _ in envelopes:
            pass
        return RaftExchangeResponse()

    async def introduce(self, request: IntroduceRequest, context: Any) -> IntroduceResponse:
        raise NotImplementedError


def test_an_idle_peer_link_reconnects_to_a_restarted_controller() -> None:
    """Otherwise the next message would be lost. A follower sends only one: the vote request."""

    async def serve(port: int) -> tuple[RpcServer, Streams, int]:
        server, streams = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=10), Streams()
        server.add_service(RAFT, streams)
        return server, streams, await server.start("127.0.0.1", port)

    async def run() -> None:
        server, streams, port = await serve(0)
        link = PeerLink(GrpcTransport(), f"127.0.0.1:{port}", make_envelope=make_envelope, rng=random.Random(1))
        sending = asyncio.create_task(link.run())
        try:
            async with asyncio.timeout(patience()):
                await streams.opened.wait()
                await server.stop(grace_s=0)
                server, streams, _ = await serve(port)
                await streams.opened.wait()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await server.stop(grace_s=0)

    asyncio.run(run())
