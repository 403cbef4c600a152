"""Answers requests by API key: the APIs of the hot path here, the others in `cold_apis`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm_broker.handlers.handlers import Handlers
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.forwarding import ActiveController, Coordinators
from klamm_broker.kafka.hot.api_versions import api_versions
from klamm_broker.kafka.hot.fetch import Fetch
from klamm_broker.kafka.hot.fetch_sessions import FetchSessions
from klamm_broker.kafka.hot.framed_fetch import FramedFetch
from klamm_broker.kafka.hot.framed_produce import FramedProduce
from klamm_broker.kafka.hot.framed_replica_fetch import FramedReplicaFetch
from klamm_broker.kafka.hot.metadata import metadata
from klamm_broker.kafka.hot.produce import produce
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.login.sasl_messages import authenticate_out_of_place, handshake_out_of_place
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.served_apis import SPOKEN
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.sliced_work import SlicedWork
from klamm_server.runtime.waiting import Waiting

if TYPE_CHECKING:
    from klamm_broker.kafka.cold_apis import ColdApis


class KafkaApis:
    """Answers all requests of a `KafkaListener`, which calls `handle`."""

    def __init__(
        self,
        handlers: Handlers,
        controller: ActiveController,
        to_coordinators: Coordinators,
        cluster: ListenerMetadata,
        sessions: FetchSessions,
        clock: Clock,
        framed_produce: FramedProduce,
        framed_fetch: FramedFetch,
        framed_replica_fetch: FramedReplicaFetch,
    ) -> None:
        self._handlers = handlers
        self._controller = controller
        self._to_coordinators = to_coordinators
        self._cluster = cluster
        self._clock = clock
        self._framed_produce = framed_produce
        self._framed_fetch = framed_fetch
        self._framed_replica_fetch = framed_replica_fetch
        self._topic_ids = TopicIds(lambda: cluster.image)
        self._fetch = Fetch(handlers.fetch, cluster, self._topic_ids, sessions, clock)
        self._slices = SlicedWork()
        self._cold: ColdApis | None = None

    def handle(self, request: Request) -> Answer | Waiting[Answer]:
        """Returns the body of the answer, or `Waiting` if the request must wait. Raises MalformedRequestError, or
        another KlammError that ends the connection."""
        match request.api_key:
            case ApiKey.PRODUCE:
                return produce(request, self._handlers.produce, self._cluster, self._topic_ids)
            case ApiKey.KLAMM_PRODUCE:
                return self._framed_produce.produce(request)
            case ApiKey.KLAMM_FETCH:
                return self._framed_fetch.fetch(request)
            case ApiKey.KLAMM_REPLICA_FETCH:
                return self._framed_replica_fetch.fetch(request)
            case ApiKey.FETCH:
                return self._fetch.fetch(request)
            case ApiKey.METADATA:
                return metadata(request, self._handlers.missing_topics, self._cluster, self._topic_ids, self._slices)
            case ApiKey.API_VERSIONS:
                image = self._cluster.image
                return api_versions(request, SPOKEN, image.end_index, image.cluster_id, self._cluster.broker_id).parts()
            case ApiKey.SASL_HANDSHAKE:
                return handshake_out_of_place()
            case ApiKey.SASL_AUTHENTICATE:
                return authenticate_out_of_place(request)
            case ApiKey.LIST_OFFSETS if self._cold is not None:
                # A task would look up the position in a later turn of the event loop, after each Produce that
                # arrived in this turn. A consumer that starts at the latest offset would miss these records.
                return self._cold.list_offsets(request)
        return Waiting(self._answer_cold(request))

    async def _answer_cold(self, request: Request) -> Answer:
        cold = self._cold or await self._load_cold()
        return await cold.handle(request)

    async def _load_cold(self) -> ColdApis:
        """Loads the cold APIs at their first request, in a thread, so that other requests need not wait. kio takes 20
        ms to load. If hypothesis is installed, kio loads it too, which takes 170 ms and 9 MB."""
        cold_apis = await asyncio.to_thread(_cold_apis)
        if self._cold is None:
            self._cold = cold_apis(
                self._handlers,
                self._controller,
                self._to_coordinators,
                self._cluster,
                self._topic_ids,
                self._clock,
                self._slices,
            )
        return self._cold


def _cold_apis() -> type[ColdApis]:
    from klamm_broker.kafka.cold_apis import ColdApis

    return ColdApis
