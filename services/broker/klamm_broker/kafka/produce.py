"""Produce, versions 3 to 12: https://kafka.apache.org/protocol#The_Messages_Produce."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from klamm.wire.v1.broker_pb2 import ProducedPartition, ProduceHeader, ProducePartition
from klamm_broker.kafka.leader_hints import leader_hint
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.wire import MalformedRequestError, Writer
from klamm_broker.rpc.produce import ACKS_NONE, ProduceRpc

_CURRENT_LEADER_TAG: Final = 0
_ACKS: Final = struct.Struct(">hi")
"""acks, timeout_ms."""
_PRODUCED: Final = struct.Struct(">ihqq")
"""Partition, error code, base offset, log append time."""
_EMPTY = memoryview(b"")


async def produce(request: Request, handler: ProduceRpc) -> Writer | None:
    """None with acks=0."""
    header, parts = _read(request)
    response = await handler.serve(header, parts)
    return None if header.acks == ACKS_NONE else _answer(request, response.partitions)


def _read(request: Request) -> tuple[ProduceHeader, list[memoryview]]:
    """Raises MalformedRequestError."""
    reader = request.body()
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.fields(_ACKS)
    partitions: list[ProducePartition] = []
    parts: list[memoryview] = []
    for _ in range(reader.array_size()):
        topic = reader.string()
        for _ in range(reader.array_size()):
            number = reader.int32()
            records = reader.nullable_bytes() or _EMPTY
            reader.skip_tagged_fields()
            parts.append(records)
            partitions.append(ProducePartition(topic=topic, partition=number, records_bytes=len(records)))
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    reader.expect_end()
    header = ProduceHeader(
        acks=acks,
        timeout_ms=timeout_ms,
        client_id=request.client_id,
        transactional_id=transactional_id or "",
        partitions=partitions,
    )
    if len(partitions) > 1 and len({(one.topic, one.partition) for one in partitions}) != len(partitions):
        raise MalformedRequestError("a produce request names a partition twice")
    return header, parts


def _answer(request: Request, partitions: Iterable[ProducedPartition]) -> Writer:
    version = request.version
    writer = Writer(flexible=request.flexible)
    topics = [(topic, list(group)) for topic, group in groupby(partitions, key=lambda one: one.topic)]

    def write_partition(partition: ProducedPartition) -> None:
        writer.fields(
            _PRODUCED, partition.partition, partition.error_code, partition.base_offset, partition.log_append_time_ms
        )
        if version >= 5:
            writer.int64(partition.log_start_offset)
        if version >= 8:
            writer.array_size(0)  # no record is refused by itself
            writer.nullable_string(partition.error_message or None)
        writer.tagged_fields(leader_hint(_CURRENT_LEADER_TAG, partition) if version >= 10 else ())

    def write_topic(topic: tuple[str, list[ProducedPartition]]) -> None:
        writer.string(topic[0])
        writer.array(topic[1], write_partition)
        writer.tagged_fields()

    writer.array(topics, write_topic)
    writer.int32(0)
    writer.tagged_fields()
    return writer
