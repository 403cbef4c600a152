"""Asking the configured addresses who is there, at every start: while the log has not begun, to learn with which voters
(founding.py); and always, so that controllers that have moved since the voter set was written find each other."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

import grpc
from grpc import aio

from klamm.errors import ErrorCode
from klamm.retry import Backoff
from klamm.wire.service import RAFT, Stub
from klamm.wire.v1.raft_pb2 import IntroduceRequest, IntroduceResponse
from klamm_controller.founding import Introduction
from klamm_controller.io.peer_link import CHANNEL_OPTIONS
from klamm_controller.io.raft_codec import MalformedMessageError, decode_key, encode_key
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 1.0
RETRY = Backoff(initial_ms=50, max_ms=500)


class Introductions:
    """Asks `contacts` (host:port), saying that `me` is at `address`; `voter_ids` are the configured node ids.

    `learn` is told where each was found. `run` asks each contact until it says with which voters its log begins."""

    def __init__(
        self,
        me: ReplicaKey,
        address: str,
        *,
        cluster_id: str,
        contacts: Sequence[str],
        voter_ids: Sequence[int],
        learn: Callable[[ReplicaKey, str], None],
        rng: random.Random,
    ) -> None:
        self.heard: dict[str, Introduction] = {}
        """What each contact said last; only those that answer."""
        self._me = me
        self._request = IntroduceRequest(
            cluster_id=cluster_id, replica=encode_key(me), address=address, voter_ids=voter_ids
        )
        self._contacts = tuple(contacts)
        self._learn = learn
        self._rng = rng
        self._news = asyncio.Event()
        self._stories: dict[str, str] = {}

    async def run(self) -> None:
        """Ends when nothing is left to ask."""
        await asyncio.gather(*(self._ask_until_begun(contact) for contact in self._contacts))

    async def wait_for_news(self) -> None:
        """Until somebody has said something since the last call."""
        await self._news.wait()
        self._news.clear()

    async def _ask_until_begun(self, contact: str) -> None:
        failures = 0
        while (introduction := await self._ask(contact)) is None or introduction.voters is None:
            failures += 1
            await asyncio.sleep(RETRY.delay_ms(failures, self._rng) / 1000)

    async def _ask(self, contact: str) -> Introduction | None:
        """What it said, or None when it did not answer or refused; a former word of it counts no more then."""
        self.heard.pop(contact, None)
        try:
            # A channel to a name that was not there before its server was would ask again late; a new one does at once.
            async with aio.insecure_channel(contact, options=CHANNEL_OPTIONS) as channel:
                response = await Stub(channel, RAFT).introduce(self._request, timeout=ASK_TIMEOUT_S)
            introduction = _introduction(response)
        except grpc.RpcError as error:
            self._tell_once(contact, f"does not answer: {error.code().name}")
            return None
        except MalformedMessageError as error:
            self._tell_once(contact, f"is not introduced: {error}")
            return None
        self._tell_once(contact, f"is {introduction.key}")
        if introduction.key != self._me:
            self._learn(introduction.key, contact)
        self.heard[contact] = introduction
        self._news.set()
        return introduction

    def _tell_once(self, contact: str, story: str) -> None:
        """It is asked again and again."""
        if self._stories.get(contact) != story:
            self._stories[contact] = story
            log.info("controller at %s %s", contact, story)


def _introduction(response: IntroduceResponse) -> Introduction:
    """Raises MalformedMessageError, also for a refusal."""
    if response.error_code:
        raise MalformedMessageError(f"{ErrorCode.of(response.error_code).name}: {response.error_message}")
    try:
        voters = VoterSet.from_bytes(response.voters) if response.voters else None
    except ValueError as error:
        raise MalformedMessageError(str(error)) from error
    return Introduction(key=decode_key(response.replica), voters=voters)
