"""Answers requests by API key, for all APIs whose messages kio decodes and encodes.

A thread decodes a large request and encodes its answer, because each item takes some microseconds. Until the thread is
done, the event loop gets its share of the interpreter every few milliseconds. Only one large request at a time uses a
thread, so that clients cannot take all threads from the broker. The items of a large request are handled in parts
(`request_parts.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from klamm.process import PROCESS
from klamm_broker.handlers.handlers import Handlers
from klamm_broker.handlers.list_offsets import LateLookup, ListedOffset
from klamm_broker.kafka.api import APIS, ApiKey, handlers_of
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold import coordinators, log_dirs, partitions
from klamm_broker.kafka.cold.acls import AclApis
from klamm_broker.kafka.cold.cluster import ClusterApis
from klamm_broker.kafka.cold.configs import ConfigApis
from klamm_broker.kafka.cold.consumer_groups import ConsumerGroupApis
from klamm_broker.kafka.cold.forwarding import ActiveController, Coordinators
from klamm_broker.kafka.cold.groups import GroupApis
from klamm_broker.kafka.cold.quotas import QuotaApis
from klamm_broker.kafka.cold.replicas import ReplicaApis
from klamm_broker.kafka.cold.request_parts import joined_answer, parts_of
from klamm_broker.kafka.cold.topic_pages import describe_topic_partitions
from klamm_broker.kafka.cold.topics import TopicApis
from klamm_broker.kafka.cold.transactions import TransactionApis
from klamm_broker.kafka.cold.txn_markers import write_txn_markers
from klamm_broker.kafka.cold.users import UserApis
from klamm_broker.kafka.cold.voters import VoterApis
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.net.connection import Parts
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.sliced_work import SlicedWork
from klamm_server.runtime.waiting import Waiting

ResultT = TypeVar("ResultT")

LARGE_BYTES: Final = 16 * 1024
"""The size from which a request is decoded in a thread, and its answer encoded."""

OffsetLookups = Generator[None, None, Sequence[ListedOffset | LateLookup]]
"""The lookups of a ListOffsets, step by step."""
ColdHandler = Callable[[Request, Any], Awaitable[Fields]]
"""A handler of a request. It gets the request and its body as decoded by kio."""


class ColdApis:
    """Answers the requests that `KafkaApis` does not decode by hand, with `handle` and `list_offsets`."""

    def __init__(
        self,
        handlers: Handlers,
        controller: ActiveController,
        to_coordinators: Coordinators,
        cluster: ListenerMetadata,
        topic_ids: TopicIds,
        clock: Clock,
        slices: SlicedWork | None = None,
    ) -> None:
        self._list_offsets = handlers.list_offsets
        self._slices = slices or SlicedWork()
        self._thread = asyncio.Lock()
        """Held by the large request that uses a thread."""
        epochs, producers = handlers.offset_for_leader_epoch, handlers.describe_producers
        markers = handlers.write_txn_markers

        def image() -> MetadataImage:
            return cluster.image

        handlers_by_key = handlers_of(
            partial(partitions.offset_for_leader_epoch, handler=epochs),
            partial(partitions.delete_records, handler=handlers.delete_records),
            partial(partitions.describe_producers, handler=producers),
            partial(log_dirs.describe_log_dirs, handler=handlers.log_dirs),
            partial(log_dirs.alter_replica_log_dirs, handler=handlers.log_dirs),
            partial(write_txn_markers, handler=markers, coordinators=to_coordinators),
            partial(coordinators.find_coordinator, finder=handlers.coordinator_finder, cluster=cluster),
            partial(describe_topic_partitions, cluster=cluster),
            GroupApis(to_coordinators, topic_ids, cluster),
            ConsumerGroupApis(to_coordinators, cluster),
            TransactionApis(to_coordinators, cluster, topic_ids, handlers.init_producer_id),
            VoterApis(controller, image),
            TopicApis(controller, topic_ids),
            ConfigApis(controller, image),
            ReplicaApis(controller),
            ClusterApis(controller, cluster, clock),
            AclApis(controller),
            UserApis(controller, image),
            QuotaApis(controller, image),
        )
        self._handlers: Mapping[ApiKey, ColdHandler] = {**handlers_by_key, ApiKey.LIST_OFFSETS: self._list_offsets_of}

    async def handle(self, request: Request) -> Parts:
        """Returns the body of the answer. Raises MalformedRequestError, or another KlammError that ends the
        connection."""
        if request.api_key is ApiKey.LIST_OFFSETS:
            parts = self.list_offsets(request)
            return await parts if isinstance(parts, Waiting) else parts
        if len(request.frame) >= LARGE_BYTES:
            body = await self._in_thread(request, partial(messages.decode, request))
            answer = await self._handle_parts(request, body)
            return [await self._in_thread(request, partial(messages.encode, request, answer))]
        answer = await self._answer(request, messages.decode(request))
        return [messages.encode(request, answer)]

    async def _answer(self, request: Request, body: Any) -> Fields:
        return await APIS[request.api_key].answer(self._handlers[request.api_key], request, body)

    async def _handle_parts(self, request: Request, body: Any) -> Fields:
        """Handles the items of a large request in parts, one after another. Other work runs in between."""
        answers = []
        for part in parts_of(request.api_key, body):
            answers.append(await self._answer(request, part))
            if answers[-1].get("error_code"):
                break
            await asyncio.sleep(0)
        return joined_answer(request.api_key, body, answers)

    async def _in_thread(self, request: Request, work: Callable[[], ResultT]) -> ResultT:
        """Returns the result of `work`, and charges the client for the time that it took."""
        async with self._thread:
            result, took_s = await asyncio.to_thread(_timed, work)
        if request.throttle is not None:
            request.throttle.charge_time(took_s)
        return result

    def list_offsets(self, request: Request) -> Parts | Waiting[Parts]:
        """Returns the body of the answer to a ListOffsets, or `Waiting` if there are many partitions, or many records
        to read. Raises MalformedRequestError."""
        if len(request.frame) >= LARGE_BYTES:
            return Waiting(self._list_very_many_offsets(request))
        lookups = partitions.list_offsets(request, messages.decode(request), self._list_offsets)
        found = self._slices.begin(lookups)
        listed = [offset for offset in found or () if isinstance(offset, ListedOffset)]
        if found is None or len(listed) < len(found):
            return Waiting(self._list_many_offsets(request, lookups, found))
        fields = partitions.listed_fields(listed, request.version)
        answer = self._slices.begin(fields)
        if answer is None:
            return Waiting(self._list_fields(request, fields))
        return [messages.encode(request, answer)]

    async def _list_many_offsets(
        self, request: Request, lookups: OffsetLookups, found: Sequence[ListedOffset | LateLookup] | None
    ) -> Parts:
        """Returns the body of the answer. `found` is None if more lookups must be made."""
        if found is None:
            found = await self._slices.finish(lookups)
        answers = await self._list_offsets.finish(found)
        return await self._list_fields(request, partitions.listed_fields(answers, request.version))

    async def _list_fields(self, request: Request, fields: Generator[None, None, Fields]) -> Parts:
        return [messages.encode(request, await self._slices.finish(fields))]

    async def _list_very_many_offsets(self, request: Request) -> Parts:
        body = await self._in_thread(request, partial(messages.decode, request))
        answer = await self._handle_parts(request, body)
        return [await self._in_thread(request, partial(messages.encode, request, answer))]

    async def _list_offsets_of(self, request: Request, body: Any) -> Fields:
        found = await self._slices.finish(partitions.list_offsets(request, body, self._list_offsets))
        answers = await self._list_offsets.finish(found)
        return await self._slices.finish(partitions.listed_fields(answers, request.version))


def _timed(work: Callable[[], ResultT]) -> tuple[ResultT, float]:
    """Returns the result of `work`, and the processor time that it took in seconds."""
    thread_s = PROCESS.get().thread_s
    began_s = thread_s()
    return work(), thread_s() - began_s
