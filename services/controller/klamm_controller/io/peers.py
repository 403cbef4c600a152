"""The links to the other controllers, one per address. The first message to an address opens its link, and an idle link
ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from klamm.rpc.transport import Transport
from klamm.wire.v1 import raft_pb2 as pb
from klamm_controller.io.address_book import AddressBook
from klamm_controller.io.peer_link import PeerLink
from klamm_controller.io.raft_codec import encode, encode_address
from klamm_controller.raft.messages import AttachResponse, Message, ReplicaKey, VoteResponse
from klamm_server.runtime.faults import watch


class Peers:
    """Sends messages to other controllers. Messages to an unknown address are lost, which Raft allows."""

    def __init__(
        self, transport: Transport, me: ReplicaKey, book: AddressBook, *, cluster_id: str, rng: random.Random
    ) -> None:
        self._transport = transport
        self._me = me
        self._book = book
        self._cluster_id = cluster_id
        self._rng = rng
        self._links: dict[str, tuple[PeerLink, asyncio.Task[None]]] = {}
        self._stopped = False

    def send(self, message: Message) -> None:
        """Queues the message for its receiver. Drops it if the receiver's address is unknown."""
        address = self._book.dialled(message.receiver)
        if address and not self._stopped:
            self._link(address).send(message)

    async def stop(self) -> None:
        """Ends all links. Messages that are sent later are dropped."""
        self._stopped = True
        tasks = [task for _, task in self._links.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _link(self, address: str) -> PeerLink:
        known = self._links.get(address)
        if known is not None and not known[1].done():
            return known[0]
        link = PeerLink(self._transport, address, make_envelope=self._envelope, rng=self._rng)
        task = watch(asyncio.create_task(link.run(), name=f"controller-link-{address}"))
        task.add_done_callback(lambda done: self._forget(address, done))
        self._links[address] = (link, task)
        return link

    def _forget(self, address: str, done: asyncio.Task[None]) -> None:
        known = self._links.get(address)
        if known is not None and known[1] is done:
            del self._links[address]

    def _envelope(self, messages: Sequence[Message]) -> pb.RaftEnvelope:
        leaders = {message.leader for message in messages if isinstance(message, AttachResponse | VoteResponse)}
        keys = {self._me, *filter(None, leaders)}
        known = [(key, address) for key in sorted(keys) if (address := self._book.address(key))]
        return pb.RaftEnvelope(
            cluster_id=self._cluster_id,
            messages=[encode(message) for message in messages],
            addresses=[encode_address(key, address, self._book.announced_listeners(address)) for key, address in known],
        )
