"""Fetch, versions 4 to 16: https://kafka.apache.org/protocol#The_Messages_Fetch.

An answer without a session (`fetch_sessions.py`) contains every partition that was asked for, also those without
records: Java's and kafka-python's clients get nothing at all otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Final

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1.broker_pb2 import AbortedTransaction, FetchedPartition, FetchPartition, FetchRequest
from klamm_broker.kafka.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchSessions, SessionRequest, Topic
from klamm_broker.kafka.leader_hints import leader_hint
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds, unknown_id
from klamm_broker.kafka.wire import Writer
from klamm_broker.record_file import RecordFile, close_files
from klamm_broker.rpc.fetch import FetchRpc
from klamm_server.clock import Clock

_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1
_DIVERGING_EPOCH: Final = struct.Struct(">iqB")
"""Epoch, its end offset, and no tagged fields."""
_BY_TOPIC_ID: Final = 13
"""From this version on topics are named by id."""
_NO_PREFERRED_REPLICA: Final = -1
_LIMITS: Final = struct.Struct(">iiib")
"""max_wait_ms, min_bytes, max_bytes, isolation level."""
_SESSION: Final = struct.Struct(">ii")
_FETCHED: Final = struct.Struct(">ihqq")
"""Partition, error code, high watermark, last stable offset."""


class Fetch:
    """Handles Fetch."""

    def __init__(self, handler: FetchRpc, topic_ids: TopicIds, sessions: FetchSessions, clock: Clock) -> None:
        self._handler = handler
        self._topic_ids = topic_ids
        self._sessions = sessions
        self._clock = clock

    async def fetch(self, request: Request) -> Writer:
        """Raises MalformedRequestError."""
        wanted, of_session = _read(request, self._topic_ids)
        try:
            turn = self._sessions.begin(of_session, self._topic_ids.name_of, self._clock.monotonic_ms())
        except BrokerError as error:
            return _refusal(request, error)
        wanted.partitions.extend(turn.wanted)
        found, records = await self._handler.lend(wanted)
        try:
            return _answer(request, turn.session_id, turn.select(found.answers), records, self._topic_ids)
        except BaseException:
            close_files(records)
            raise


def _read(request: Request, topic_ids: TopicIds) -> tuple[FetchRequest, SessionRequest]:
    """The request without its partitions, and these. Raises MalformedRequestError.

    A topic id that nobody has becomes a topic that does not exist."""
    version = request.version
    reader = request.body()
    wanted = FetchRequest(client_id=request.client_id, replica_id=-1)
    if version < 15:
        wanted.replica_id = reader.int32()
    wanted.max_wait_ms, wanted.min_bytes, wanted.max_bytes, wanted.isolation_level = reader.fields(_LIMITS)
    session_id, epoch = reader.fields(_SESSION) if version >= 7 else (NO_SESSION, FINAL_EPOCH)
    by_topic_id = version >= _BY_TOPIC_ID
    layout, read_epochs = _partition_layout(version)
    changed: list[tuple[Topic, FetchPartition]] = []
    forgotten: list[tuple[Topic, int]] = []
    topic: Topic = ""
    name = ""

    def read_partition() -> None:
        leader_epoch = last_epoch = -1
        numbers = reader.fields(layout)
        if read_epochs == 2:
            number, leader_epoch, offset, last_epoch, *_, max_bytes = numbers
        elif read_epochs == 1:
            number, leader_epoch, offset, *_, max_bytes = numbers
        else:
            number, offset, *_, max_bytes = numbers
        reader.skip_tagged_fields()
        partition = FetchPartition(
            topic=name,
            partition=number,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=-1,
            max_bytes=max_bytes,
        )
        changed.append((topic, partition))

    def read_topic() -> None:
        nonlocal topic, name
        topic = reader.uuid() if by_topic_id else reader.string()
        name = topic_ids.name_of(topic) if isinstance(topic, bytes) else topic
        reader.array(read_partition)
        reader.skip_tagged_fields()

    def read_forgotten() -> None:
        gone = reader.uuid() if by_topic_id else reader.string()
        forgotten.extend((gone, number) for number in reader.array(reader.int32))
        reader.skip_tagged_fields()

    reader.array(read_topic)
    if version >= 7:
        reader.array(read_forgotten)
    if version >= 11:
        wanted.rack_id = reader.string()
    reader.skip_tagged_fields()
    reader.expect_end()
    return wanted, SessionRequest(session_id, epoch, by_topic_id, changed, forgotten)


def _refusal(request: Request, error: BrokerError) -> Writer:
    """Of the session: an error instead of partitions."""
    writer = Writer(flexible=request.flexible)
    writer.int32(0)
    writer.int16(error.code)
    writer.int32(NO_SESSION)
    writer.array_size(0)
    writer.tagged_fields()
    return writer


@cache
def _partition_layout(version: int) -> tuple[struct.Struct, int]:
    """The numbers of a partition, and how many epochs are among them: partition, current leader epoch (from 9 on),
    fetch offset, last fetched epoch (from 12 on), a follower's log start offset (from 5 on), max_bytes."""
    if version >= 12:
        return struct.Struct(">iiqiqi"), 2
    if version >= 9:
        return struct.Struct(">iiqqi"), 1
    return struct.Struct(">iqqi" if version >= 5 else ">iqi"), 0


def _answer(
    request: Request,
    session_id: int,
    partitions: Sequence[FetchedPartition],
    records: Sequence[bytes | RecordFile],
    topic_ids: TopicIds,
) -> Writer:
    version = request.version
    writer = Writer(flexible=request.flexible)
    with_records: Iterator[bytes | RecordFile] = iter(records)
    topics = [(topic, list(group)) for topic, group in groupby(partitions, key=lambda one: one.topic)]
    writer.int32(0)
    if version >= 7:
        writer.int16(ErrorCode.NONE)
        writer.int32(session_id)

    def write_aborted(aborted: AbortedTransaction) -> None:
        writer.int64(aborted.producer_id)
        writer.int64(aborted.first_offset)
        writer.tagged_fields()

    def write_partition(partition: FetchedPartition) -> None:
        writer.fields(
            _FETCHED,
            partition.partition,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
        )
        if version >= 5:
            writer.int64(partition.log_start_offset)
        writer.array(partition.aborted_transactions, write_aborted)
        if version >= 11:
            has_closer = partition.HasField("preferred_read_replica")
            writer.int32(partition.preferred_read_replica if has_closer else _NO_PREFERRED_REPLICA)
        size = partition.records_bytes
        writer.records([next(with_records)] if size else [], size)
        writer.tagged_fields(_tagged(partition) if version >= 12 else ())

    def write_topic(topic: tuple[str, list[FetchedPartition]]) -> None:
        name, answers = topic
        if version >= _BY_TOPIC_ID:
            writer.uuid(topic_ids.id_of(name))
            for answer in answers:
                if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and unknown_id(name) is not None:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            writer.string(name)
        writer.array(answers, write_partition)
        writer.tagged_fields()

    writer.array(topics, write_topic)
    writer.tagged_fields()
    return writer


def _tagged(partition: FetchedPartition) -> list[tuple[int, bytes]]:
    if partition.HasField("diverging"):
        diverging = partition.diverging
        return [(_DIVERGING_EPOCH_TAG, _DIVERGING_EPOCH.pack(diverging.epoch, diverging.end_offset, 0))]
    return leader_hint(_CURRENT_LEADER_TAG, partition)
