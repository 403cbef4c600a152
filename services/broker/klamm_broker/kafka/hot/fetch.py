"""Fetch, versions 4 to 18: https://kafka.apache.org/protocol#The_Messages_Fetch.

An answer without a session (`fetch_sessions.py`) contains every requested partition, even without records. Otherwise
Java's and kafka-python's clients would get no records at all.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import Final

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.handlers.fetch import FetchHandler, FetchQuery, reader_terms
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX, end_long_turn
from klamm_broker.io.record_file import RecordFile, close_files
from klamm_broker.io.record_reader import Copy
from klamm_broker.kafka.api import ApiKey, Versions, api, check_count
from klamm_broker.kafka.codec.wire import AnswerWriter, Part
from klamm_broker.kafka.hot.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessions,
    SessionRequest,
)
from klamm_broker.kafka.hot.leader_hints import leader_hint, node_endpoints
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds, unknown_id
from klamm_broker.replica.fetch_reader import FetchCursor, LocatedFetch, PartitionAnswer
from klamm_broker.replica.reader_watch import Topic
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.session import CALLER
from klamm_server.security.users import user_of

_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1
_DIVERGING_EPOCH: Final = struct.Struct(">iqB")
"""The epoch, its end offset, and the number of tagged fields, 0."""
_NO_OFFSET: Final = -1
_BY_TOPIC_ID: Final = 13
"""The first version that names topics by id."""
_WITH_ENDPOINTS: Final = 16
"""The first version whose answers contain the addresses of leaders that errors name."""
_HEAD: Final = struct.Struct(">iiibii")
"""The fields max_wait_ms, min_bytes, max_bytes, isolation level, session id and session epoch."""
_HEAD_BEFORE_15: Final = struct.Struct(">iiiibii")
"""The fields before version 15, which begin with the replica's id."""
_HEAD_BEFORE_7: Final = struct.Struct(">iiiib")
"""The fields before version 7, which have no session."""
_TO_SESSION: Final = struct.Struct(">ihi")
"""The fields throttle time, error code and session id."""
_FETCHED: Final = struct.Struct(">ihqqq")
"""The fields partition, error code, high watermark, last stable offset and log start offset."""
_FETCHED_BEFORE_5: Final = struct.Struct(">ihqq")
_ABORTED: Final = struct.Struct(">qq")
"""The fields producer id and first offset."""


class Fetch:
    """Handles Fetch requests of Kafka clients."""

    def __init__(
        self,
        handler: FetchHandler,
        cluster: ListenerMetadata,
        topic_ids: TopicIds,
        sessions: FetchSessions,
        clock: Clock,
    ) -> None:
        self._handler = handler
        self._cluster = cluster
        self._topic_ids = topic_ids
        self._sessions = sessions
        self._clock = clock

    @api(ApiKey.FETCH, Versions(4, 18, flexible=12), rights_of="Broker/Fetch")
    def fetch(self, request: Request) -> list[Part] | Waiting[list[Part]]:
        """Returns the answer, or `Waiting` if the fetch must wait. Raises MalformedRequestError and
        InvalidRequestError."""
        query, of_session = _read(request, self._topic_ids)
        try:
            names = self._topic_ids
            context = self._sessions.begin(of_session, names.name_of, names.image, self._clock.monotonic_ms())
        except BrokerError as error:
            return _refusal(request, error)
        query.cursors, query.context = context.wanted, context.reads
        if request.throttle is not None:
            query.max_bytes = request.throttle.fetch_max_bytes(query.max_bytes)
        if context.partition_count > TURN_PARTITIONS_MAX:
            return Waiting(self._fetch_many(request, context, query))
        found, records = self._handler.begin(query)
        if records is None:
            return Waiting(self._finish(request, context, query, found))
        return self._answer(request, context, found, records)

    async def _fetch_many(self, request: Request, context: FetchContext, query: FetchQuery) -> list[Part]:
        await asyncio.sleep(0)
        found, records = self._handler.begin(query)
        await asyncio.sleep(0)
        return (
            await self._finish(request, context, query, found)
            if records is None
            else self._answer(request, context, found, records)
        )

    async def _finish(
        self, request: Request, context: FetchContext, query: FetchQuery, begun: LocatedFetch
    ) -> list[Part]:
        found, records = await self._handler.finish(query, begun)
        try:
            await end_long_turn(found.answers)
            return self._answer(request, context, found, records)
        except BaseException:
            close_files(records)
            raise

    def _answer(
        self, request: Request, context: FetchContext, found: LocatedFetch, records: Sequence[Copy | RecordFile]
    ) -> list[Part]:
        if request.throttle is not None and not request.throttle.charge_fetch(found.size_bytes):
            close_files(records)
            return _written(request, self._sessions.withdraw(context), (), (), self._topic_ids, ())
        answers = context.select(found.answers)
        nodes = node_endpoints(self._cluster, answers) if request.version >= _WITH_ENDPOINTS else ()
        return _written(request, context.session_id, answers, records, self._topic_ids, nodes)


def _read(request: Request, topic_ids: TopicIds) -> tuple[FetchQuery, SessionRequest]:
    """Returns the request without its partitions, and its partitions. An unknown topic id becomes the name of a topic
    that does not exist.

    Raises MalformedRequestError and InvalidRequestError."""
    version = request.version
    reader = request.body()
    replica_id, session_id, epoch = -1, NO_SESSION, FINAL_EPOCH
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, epoch = reader.fields(_HEAD)
    elif version >= 7:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, epoch = reader.fields(
            _HEAD_BEFORE_15
        )
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = reader.fields(_HEAD_BEFORE_7)
    by_topic_id = version >= _BY_TOPIC_ID
    layout, read_epochs = _partition_layout(version)
    changed: list[tuple[Topic, FetchCursor]] = []
    forgotten: list[tuple[Topic, int]] = []
    topic_count = reader.array_size()
    check_count(topic_count, "topics")
    for _ in range(topic_count):
        topic: Topic = reader.uuid() if by_topic_id else reader.string()
        name = topic_ids.name_of(topic) if isinstance(topic, bytes) else topic
        count = reader.array_size()
        check_count(len(changed) + count, "partitions")
        for _ in range(count):
            numbers = reader.fields(layout)
            number, max_partition_bytes = TopicPartition(name, numbers[0]), max(0, numbers[-1])
            reader.skip_tagged_fields()
            if read_epochs == 2:
                cursor = FetchCursor(number, numbers[2], max_partition_bytes, numbers[1], numbers[3])
            elif read_epochs == 1:
                cursor = FetchCursor(number, numbers[2], max_partition_bytes, numbers[1])
            else:
                cursor = FetchCursor(number, numbers[1], max_partition_bytes)
            changed.append((topic, cursor))
        reader.skip_tagged_fields()
    topic_count = reader.array_size() if version >= 7 else 0
    check_count(topic_count, "topics")
    for _ in range(topic_count):
        gone: Topic = reader.uuid() if by_topic_id else reader.string()
        numbers = reader.int32_array()
        check_count(len(forgotten) + len(numbers), "partitions")
        forgotten.extend((gone, partition) for partition in numbers)
        reader.skip_tagged_fields()
    rack = reader.string() if version >= 11 else ""
    reader.skip_tagged_fields()
    reader.expect_end()
    terms = reader_terms(replica_id, isolation_level, rack)
    query = FetchQuery((), max_wait_ms, min_bytes, max_bytes, terms, lambda: request.client_host)
    caller = CALLER.get()
    owner = "" if caller is None else caller.principal
    user = user_of(caller, request.client_host) if epoch == INITIAL_EPOCH else ""
    return query, SessionRequest(session_id, epoch, by_topic_id, changed, forgotten, owner, user)


def _refusal(request: Request, error: BrokerError) -> list[Part]:
    """Returns an answer with an error for the session instead of partitions."""
    writer = AnswerWriter(flexible=request.flexible)
    writer.fields(_TO_SESSION, request.throttle_ms, error.code, NO_SESSION)
    writer.array_size(0)
    writer.tagged_fields()
    return writer.parts()


@cache
def _partition_layout(version: int) -> tuple[struct.Struct, int]:
    """Returns the layout of a partition's numbers, and the number of epochs in it.

    The numbers are partition, current leader epoch (from version 9), fetch offset, last fetched epoch (from 12), log
    start offset (from 5) and max_bytes."""
    if version >= 12:
        return struct.Struct(">iiqiqi"), 2
    if version >= 9:
        return struct.Struct(">iiqqi"), 1
    return struct.Struct(">iqqi" if version >= 5 else ">iqi"), 0


def _written(
    request: Request,
    session_id: int,
    answers: Sequence[PartitionAnswer],
    records: Sequence[Copy | RecordFile],
    topic_ids: TopicIds,
    nodes: Sequence[tuple[int, bytes]],
) -> list[Part]:
    version = request.version
    writer = AnswerWriter(flexible=request.flexible)
    with_records = iter(records)
    topics = [
        (topic, list(group)) for topic, group in groupby(answers, key=lambda answer: answer.topic_partition.topic)
    ]
    if version >= 7:
        writer.fields(_TO_SESSION, request.throttle_ms, ErrorCode.NONE, session_id)
    else:
        writer.int32(request.throttle_ms)
    writer.array_size(len(topics))
    for name, partitions in topics:
        if version >= _BY_TOPIC_ID:
            writer.uuid(topic_ids.id_of(name))
        else:
            writer.string(name)
        writer.array_size(len(partitions))
        for answer in partitions:
            _write_partition(writer, version, answer)
            writer.records([next(with_records)] if answer.records_bytes else (), answer.records_bytes)
            writer.tagged_fields(_tagged(answer) if version >= 12 else ())
        writer.tagged_fields()
    writer.tagged_fields(nodes)
    return writer.parts()


def _write_partition(writer: AnswerWriter, version: int, answer: PartitionAnswer) -> None:
    """Writes a partition's answer, without its records."""
    code = answer.error_code
    name, partition = answer.topic_partition
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and version >= _BY_TOPIC_ID and unknown_id(name) is not None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
    # As in Kafka, an answer with an error has no end offsets.
    ends = (_NO_OFFSET, _NO_OFFSET) if code else (answer.high_watermark, answer.last_stable_offset)
    offsets = (*ends, answer.log_start_offset)
    if version >= 5:
        writer.fields(_FETCHED, partition, code, *offsets)
    else:
        writer.fields(_FETCHED_BEFORE_5, partition, code, *offsets[:2])
    writer.array_size(len(answer.aborted_transactions))
    for aborted in answer.aborted_transactions:
        writer.fields(_ABORTED, aborted.producer_id, aborted.first_offset)
        writer.tagged_fields()
    if version >= 11:
        writer.int32(answer.preferred_read_replica)


def _tagged(answer: PartitionAnswer) -> Sequence[tuple[int, bytes]]:
    if answer.diverging is not None:
        return [(_DIVERGING_EPOCH_TAG, _DIVERGING_EPOCH.pack(*answer.diverging, 0))]
    return leader_hint(_CURRENT_LEADER_TAG, answer) if answer.error_code else ()
