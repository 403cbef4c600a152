"""Fetch, versions 4 to 16: https://kafka.apache.org/protocol#The_Messages_Fetch.

Every answer has session id 0: no session was made, and clients send whole requests from then on (KIP-227). Such an
answer contains every partition that was asked for, also those without records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
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
    wanted.max_wait_ms = reader.int32()
    wanted.min_bytes = reader.int32()
    wanted.max_bytes = reader.int32()
    wanted.isolation_level = reader.int8()
    if version >= 7:
        reader.int32()
        reader.int32()
    topic = ""

    def read_partition() -> FetchPartition:
        partition = FetchPartition(
            topic=topic, partition=reader.int32(), current_leader_epoch=-1, last_fetched_epoch=-1, log_start_offset=-1
        )
        if version >= 9:
            partition.current_leader_epoch = reader.int32()
        partition.fetch_offset = reader.int64()
        if version >= 12:
            partition.last_fetched_epoch = reader.int32()
        if version >= 5:
            reader.int64()  # the log start offset of a follower
        partition.max_bytes = reader.int32()
        reader.skip_tagged_fields()
        return partition

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
        writer.int32(partition.partition)
        writer.int16(partition.error_code)
        writer.int64(partition.high_watermark)
        writer.int64(partition.last_stable_offset)
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
