"""Asks the controllers at the configured addresses for their ids and voters, at every start.

Before the log has begun, the answers tell the voters with which it begins (founding.py). Later, the requests let
controllers find each other after they have moved to another address.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence

from klamm.errors import BrokerError, ErrorCode
from klamm.retry import Backoff
from klamm.rpc.connection import Connection
from klamm.rpc.options import QUORUM
from klamm.rpc.retrying import Retries
from klamm.rpc.transport import Transport
from klamm.wire.v1.raft_pb2 import IntroduceRequest, IntroduceResponse
from klamm.wire.v1.raft_rpc import RAFT
from klamm_controller.io.founding import Introduction
from klamm_controller.io.raft_codec import MalformedMessageError, decode_key, encode_key
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey
from klamm_server.net.listeners import Listener, encode

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 1_000
RETRY = Backoff(initial_ms=50, max_ms=500)


class Introductions:
    """Asks the controllers at `contacts` (host:port) for their ids.

    Each request says that `me` is at `address` and that others dial `listeners`. `voter_ids` are the configured node
    ids. `learn` is called with the key and address of each controller that answers. `run` asks each contact until its
    answer names the voters with which its log begins."""

    def __init__(
        self,
        transport: Transport,
        me: ReplicaKey,
        address: str,
        listeners: Iterable[Listener],
        *,
        cluster_id: str,
        contacts: Sequence[str],
        voter_ids: Sequence[int],
        learn: Callable[[ReplicaKey, str], None],
        rng: random.Random,
    ) -> None:
        self.by_contact: dict[str, Introduction] = {}
        """The last introduction of each contact, by its address. Contacts that do not answer are missing."""
        self._transport = transport
        self._me = me
        self._request = IntroduceRequest(
            cluster_id=cluster_id,
            replica=encode_key(me),
            address=address,
            voter_ids=voter_ids,
            listeners=encode(listeners),
        )
        self._contacts = tuple(contacts)
        self._learn = learn
        self._rng = rng
        self._news = asyncio.Event()
        self._stories: dict[str, str] = {}

    async def run(self) -> None:
        """Asks all contacts until each has answered with the voters with which its log begins."""
        await asyncio.gather(*(self._ask_until_begun(contact) for contact in self._contacts))

    async def wait_for_introduction(self) -> None:
        """Waits until a contact has introduced itself since the last call."""
        await self._news.wait()
        self._news.clear()

    async def _ask_until_begun(self, contact: str) -> None:
        retries = Retries(RETRY, self._rng)
        while (introduction := await self._ask(contact)) is None or introduction.voters is None:
            await retries.pause()

    async def _ask(self, contact: str) -> Introduction | None:
        """Returns the contact's introduction, or None if it did not answer or refused. Drops its last introduction."""
        self.by_contact.pop(contact, None)
        try:
            # A channel that could not resolve a name tries again late. A new channel resolves it immediately.
            async with Connection(self._transport, contact, QUORUM, timeout_ms=ASK_TIMEOUT_MS) as connection:
                response = await connection.stub(RAFT).introduce(self._request)
            introduction = _introduction(response)
        except BrokerError as error:
            self._log_once(contact, f"does not answer: {error.code.name}")
            return None
        except MalformedMessageError as error:
            self._log_once(contact, f"did not introduce itself: {error}")
            return None
        self._log_once(contact, f"is {introduction.key}")
        if introduction.key != self._me:
            self._learn(introduction.key, contact)
        self.by_contact[contact] = introduction
        self._news.set()
        return introduction

    def _log_once(self, contact: str, story: str) -> None:
        """Logs what is known of a contact, but only if it differs from the last log line about this contact."""
        if self._stories.get(contact) != story:
            self._stories[contact] = story
            log.info("controller at %s %s", contact, story)


def _introduction(response: IntroduceResponse) -> Introduction:
    """Decodes the response. Raises MalformedMessageError if it is malformed or a refusal."""
    if response.error_code:
        raise MalformedMessageError(f"{ErrorCode.of(response.error_code).name}: {response.error_message}")
    try:
        voters = VoterSet.from_bytes(response.voters) if response.voters else None
    except ValueError as error:
        raise MalformedMessageError(str(error)) from error
    return Introduction(key=decode_key(response.replica), voters=voters)
