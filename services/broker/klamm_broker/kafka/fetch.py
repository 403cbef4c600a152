"""Fetch, versions 4 to 16: https://kafka.apache.org/protocol#The_Messages_Fetch.

Every answer has session id 0: no session was made, and clients send whole requests from then on (KIP-227). Such an
answer contains every partition that was asked for, also those without records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Final

from klamm.errors import ErrorCode
from klamm.wire.v1.broker_pb2 import AbortedTransaction, FetchedPartition, FetchPartition, FetchRequest
from klamm_broker.kafka.leader_hints import leader_hint
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds, unknown_id
from klamm_broker.kafka.wire import Writer
from klamm_broker.record_file import RecordFile, close_files
from klamm_broker.rpc.fetch import FetchRpc

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


async def fetch(request: Request, handler: FetchRpc, topic_ids: TopicIds) -> Writer:
    wanted = _read(request, topic_ids)
    found, records = await handler.lend(wanted)
    try:
        return _answer(request, found.answers, records, topic_ids)
    except BaseException:
        close_files(records)
        raise


def _read(request: Request, topic_ids: TopicIds) -> FetchRequest:
    """Raises MalformedRequestError. A topic id that nobody has becomes a topic that does not exist."""
    version = request.version
    reader = request.body()
    wanted = FetchRequest(client_id=request.client_id, replica_id=-1)
    if version < 15:
        wanted.replica_id = reader.int32()
    wanted.max_wait_ms, wanted.min_bytes, wanted.max_bytes, wanted.isolation_level = reader.fields(_LIMITS)
    if version >= 7:
        reader.fields(_SESSION)
    topic = ""
    layout, read_epochs = _partition_layout(version)

    def read_partition() -> FetchPartition:
        leader_epoch = last_epoch = -1
        numbers = reader.fields(layout)
        if read_epochs == 2:
            number, leader_epoch, offset, last_epoch, *_, max_bytes = numbers
        elif read_epochs == 1:
            number, leader_epoch, offset, *_, max_bytes = numbers
        else:
            number, offset, *_, max_bytes = numbers
        reader.skip_tagged_fields()
        return FetchPartition(
            topic=topic,
            partition=number,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=-1,
            max_bytes=max_bytes,
        )

    def read_topic() -> None:
        nonlocal topic
        topic = topic_ids.name_of(reader.uuid()) if version >= _BY_TOPIC_ID else reader.string()
        wanted.partitions.extend(reader.array(read_partition))
        reader.skip_tagged_fields()

    def read_forgotten() -> None:
        if version >= _BY_TOPIC_ID:
            reader.uuid()
        else:
            reader.string()
        reader.array(reader.int32)
        reader.skip_tagged_fields()

    reader.array(read_topic)
    if version >= 7:
        reader.array(read_forgotten)
    if version >= 11:
        wanted.rack_id = reader.string()
    reader.skip_tagged_fields()
    reader.expect_end()
    return wanted


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
    request: Request, partitions: Sequence[FetchedPartition], records: Sequence[bytes | RecordFile], topic_ids: TopicIds
) -> Writer:
    version = request.version
    writer = Writer(flexible=request.flexible)
    with_records: Iterator[bytes | RecordFile] = iter(records)
    topics = [(topic, list(group)) for topic, group in groupby(partitions, key=lambda one: one.topic)]
    writer.int32(0)
    if version >= 7:
        writer.int16(ErrorCode.NONE)
        writer.int32(0)

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
