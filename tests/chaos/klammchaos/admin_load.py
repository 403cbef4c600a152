"""Clients that administer topics, and the history of their answers.

Every topic name has a history of its own. Most topics belong to one client, which creates, changes and reads them and
deletes most of them later. All clients share a few contended names for some seconds, and then leave them as they are.
All names are read again now and then, and at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from tests.chaos.klammchaos.history import History
from tests.chaos.klammchaos.topic_calls import answer_of, request_of, topic_resource
from tests.chaos.klammchaos.topic_model import CONFIG, Call, Create, Delete, Grow, ReadConfig, ReadTopic, SetConfig
from tests.support.loop_time import loop_time_s
from tests.support.quorum_client import NOT_DONE, UNKNOWN, QuorumClient

CALL_TIMEOUT_S: Final = 0.5
"""A client without an answer for this time asks another controller. The outcome of its call is then unknown."""
PAUSE_S: Final = 0.02
"""The pause of each client between operations. It leaves the controllers some CPU on two cores."""
STRAY_PROBABILITY: Final = 0.1
"""The probability that an operation is first sent to any controller. A controller that is not the leader must not
answer it."""
CONTENDED_NAMES: Final = 2
CONTENDED_FOR_S: Final = 3.0
OWN_TOPICS_MAX: Final = 25
PARTITIONS_MAX: Final = 8


class AdminClient:
    """One client of the load. `run` continues until it is cancelled, or until it receives an answer that makes no
    sense."""

    def __init__(
        self,
        name: str,
        addresses: Callable[[], Sequence[str]],
        history: History,
        rng: random.Random,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._name = name
        self._addresses = addresses
        self._client = QuorumClient(addresses, call_timeout_s=CALL_TIMEOUT_S)
        self._history = history
        self._rng = rng
        self._pause_s = pause_s
        self._numbers = itertools.count()
        self._values = itertools.count(rng.randrange(1_000_000) * 1_000 + 1)
        self._own: list[str] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0, 2 * self._pause_s))
            if self._rng.random() < STRAY_PROBABILITY:
                self._client.turn_to(self._rng.choice(self._addresses()))
            await self._act()

    async def close(self) -> None:
        await self._client.close()

    async def perform(self, name: str, call: Call) -> None:
        """Carries out one operation and records it. Retries only as long as the operation certainly had no effect."""
        request = request_of(name, call, round(CALL_TIMEOUT_S * 1000))
        while True:
            invoked_s = loop_time_s()
            try:
                response = await self._client.attempt(*request)
            except asyncio.CancelledError:
                self._history.record(name, self._name, call, None, invoked_s)
                raise
            if response is not NOT_DONE:
                break
            await asyncio.sleep(0.01)
        answer = None if response is UNKNOWN else answer_of(call, response)
        self._history.record(name, self._name, call, answer, invoked_s)

    async def read_everything(self, others: Collection[str] = ()) -> None:
        """Reads the state of every name that any client ever used, as operations of their histories. `others` are the
        topics of other loads."""
        begin_s = loop_time_s()
        listed = await self._read("describe_topics", pb.DescribeTopicsRequest())
        topics = {topic.name: topic for topic in listed.topics if topic.name not in others}
        unasked = topics.keys() - self._history.operations.keys()
        assert not unasked, f"topics that nobody asked for: {sorted(unasked)}"
        request = pb.DescribeConfigsRequest(
            resources=[
                pb.DescribeConfigsResource(resource=topic_resource(name), names=[CONFIG])
                for name in self._history.operations
            ]
        )
        described = await self._read("describe_configs", request)
        configs = {result.resource.name: result for result in described.results}
        for name in list(self._history.operations):
            missing = pb.DescribedTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic = pb.DescribeTopicsResponse(topics=[topics.get(name, missing)])
            self._history.record(name, self._name, ReadTopic(), answer_of(ReadTopic(), topic), begin_s)
            config = pb.DescribeConfigsResponse(results=[configs[name]])
            self._history.record(name, self._name, ReadConfig(), answer_of(ReadConfig(), config), begin_s)

    async def _read(self, method: str, request: Any) -> Any:
        while (response := await self._client.call(method, request)) is UNKNOWN:
            pass
        return response

    async def _act(self) -> None:
        chance = self._rng.random()
        if chance < 0.3:
            await self.perform(self._contended_name(), self._any_call())
        elif chance < 0.4 and self._history.operations:
            name = self._rng.choice(list(self._history.operations))
            await self.perform(name, self._rng.choice((ReadTopic(), ReadConfig())))
        elif chance < 0.6 or not self._own:
            await self._create_own()
        else:
            await self._change_own()

    def _contended_name(self) -> str:
        return f"contended-{int(loop_time_s() / CONTENDED_FOR_S)}-{self._rng.randrange(CONTENDED_NAMES)}"

    async def _create_own(self) -> None:
        name = f"{self._name}-{next(self._numbers)}"
        self._own.append(name)
        await self.perform(name, self._create())
        if len(self._own) > OWN_TOPICS_MAX:
            await self.perform(self._own.pop(self._rng.randrange(len(self._own))), Delete())

    async def _change_own(self) -> None:
        name = self._rng.choice(self._own)
        call = self._change()
        if isinstance(call, Delete):
            # Otherwise most later changes of the topic would find it deleted.
            self._own.remove(name)
        await self.perform(name, call)

    def _any_call(self) -> Call:
        return self._create() if self._rng.random() < 0.2 else self._change()

    def _change(self) -> Call:
        calls = (Delete(), self._grow(), self._set_config(), ReadTopic(), ReadConfig())
        return self._rng.choices(calls, weights=(1, 2, 3, 3, 3))[0]

    def _create(self) -> Create:
        return Create(self._rng.randint(1, PARTITIONS_MAX // 2))

    def _grow(self) -> Grow:
        return Grow(self._rng.randint(2, PARTITIONS_MAX))

    def _set_config(self) -> SetConfig:
        """Returns a change to a value that was never used before, so that a reader of the value knows which operation
        it saw. One in five deletes the value instead."""
        return SetConfig(None if self._rng.random() < 0.2 else str(next(self._values)))
