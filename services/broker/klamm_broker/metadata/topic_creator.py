"""Asks the active controller to create topics: those a client named, and the internal ones, on first use.

Kafka's `AutoTopicCreationManager`. Requests go out one after the other, at most one for each name, and at most
`PENDING_MAX` are pending. A failure is logged, and the next request that needs the topic makes the broker ask again. A
request may wait a moment for its topic with `created`. In Kafka, requests do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.rpc.transport import Transport
from klamm.wire.v1.controller_pb2 import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from klamm.wire.v1.controller_rpc import ADMIN, AdminStub
from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_server.rpc.controller_channel import ControllerChannel
from klamm_server.rpc.controllers import Controllers

log = logging.getLogger(__name__)

PENDING_MAX = 100
"""The most pending topics. Beyond it, a topic stays LEADER_NOT_AVAILABLE until it is requested again."""


class _Pending(NamedTuple):
    """A topic whose creation was requested."""

    topic: NewTopic
    outcome: asyncio.Future[int]
    """The index up to which metadata must be replayed to contain the topic, or 0 if it was not created."""


class TopicCreator:
    """Creates topics through the controllers' Admin API. `run` sends the requests of `create`."""

    def __init__(
        self, transport: Transport, controllers: Controllers, metadata: MetadataWaiters, *, timeout_ms: int
    ) -> None:
        self._controllers = controllers
        self._metadata = metadata
        self._channel = ControllerChannel(transport, controllers, ADMIN)
        self._timeout_ms = timeout_ms
        self._pending: dict[str, _Pending] = {}
        self._has_pending = asyncio.Event()

    def create(self, name: str, *, partition_count: int = -1, configs: Mapping[str, str] | None = None) -> ErrorCode:
        """Requests a topic's creation unless it is under way. Returns the error to answer until the topic exists.

        If `partition_count` is -1, the controller chooses it. It always chooses the number of replicas."""
        if name not in self._pending and len(self._pending) < PENDING_MAX:
            topic = NewTopic(name=name, partition_count=partition_count, replication_factor=-1, configs=configs or {})
            self._pending[name] = _Pending(topic, asyncio.get_running_loop().create_future())
            self._has_pending.set()
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def created(self, names: Iterable[str], *, timeout_ms: int) -> None:
        """Waits until this broker's metadata have those of the topics that are being created, or their creation was
        refused, or the timeout is over."""
        outcomes = [self._pending[name].outcome for name in names if name in self._pending]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                end_indexes = [await asyncio.shield(outcome) for outcome in outcomes]
                await self._metadata.reach(max(end_indexes, default=0), timeout_ms=timeout_ms)
        except TimeoutError:
            return

    async def run(self) -> None:
        """Sends the requests until it is cancelled."""
        try:
            while True:
                await self._has_pending.wait()
                self._has_pending.clear()
                for name in list(self._pending):
                    end_index = await self._create(self._pending[name].topic)
                    self._pending.pop(name).outcome.set_result(end_index)
        finally:
            await self._channel.close()

    async def _create(self, topic: NewTopic) -> int:
        """Asks the controllers to create a topic. Returns the index up to which metadata must be replayed to contain
        it, or 0 if it was not created."""
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        # Ask each controller once, and once more if the last one names another controller.
        for _ in range(len(self._controllers.to_try) + 1):
            try:
                response = await self._channel.ask(AdminStub.create_topics, request, timeout_ms=self._timeout_ms)
            except BrokerError as error:
                log.warning("could not create topic=%s, retrying: %s", topic.name, error)
                continue
            _log_outcome(topic, response)
            return response.metadata_end_index
        log.warning(
            "could not create topic=%s: none of the controllers %s is active", topic.name, self._controllers.to_try
        )
        return 0


def _log_outcome(topic: NewTopic, response: CreateTopicsResponse) -> None:
    for created in response.topics:
        if created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.info("created topic=%s partitions=%d", topic.name, created.partition_count)
        else:
            code = ErrorCode.of(created.error_code)
            log.warning("could not create topic=%s: %s %s", topic.name, code.name, created.error_message)
