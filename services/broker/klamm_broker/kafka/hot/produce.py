"""Produce, versions 3 to 13: https://kafka.apache.org/protocol#The_Messages_Produce.

A client expects no answer to a produce with acks=0. If it fails, the broker closes the connection, as Kafka does. The
client then asks for new metadata. Otherwise, it would go on sending to a broker that does not lead the partition any
more.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NoReturn

from klamm import tracing
from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_broker.handlers.produce import ACKS_NONE, PartitionRecords, Produce, Produced, ProduceHandler
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX
from klamm_broker.kafka.api import ApiKey, Versions, api, check_count
from klamm_broker.kafka.codec.wire import AnswerWriter, MalformedRequestError
from klamm_broker.kafka.hot.leader_hints import leader_hint, node_endpoints
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.net.connection import Answer, UnansweredError
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds, unknown_id
from klamm_server.runtime.waiting import Waiting

_CURRENT_LEADER_TAG: Final = 0
_HINTED: Final = 10
"""The first version in which an error names the leader."""
_ADDS_PARTITIONS: Final = 12
"""The first version in which a produce adds its partitions to the transaction. In older versions, the client adds them
(KIP-890)."""
_ABORTABLE_SINCE: Final = 11
"""The first version whose clients know TRANSACTION_ABORTABLE. Older ones get INVALID_TXN_STATE instead (KIP-890)."""
_BY_TOPIC_ID: Final = 13
"""The first version that names topics by id (KIP-516)."""
_ACKS: Final = struct.Struct(">hi")
"""The fields acks and timeout_ms."""
_PRODUCED: Final = struct.Struct(">ihqqq")
"""The fields partition, error code, base offset, log append time and log start offset."""
_PRODUCED_BEFORE_5: Final = struct.Struct(">ihqq")
_EMPTY = memoryview(b"")


_Ids = dict[str, bytes]
"""The topic ids by topic name, if the client names topics by id."""


@api(ApiKey.PRODUCE, Versions(3, 13, flexible=9, unsupported_min=0), rights_of="Broker/Produce")
def produce(
    request: Request, handler: ProduceHandler, cluster: ListenerMetadata, topic_ids: TopicIds
) -> Answer | Waiting[Answer]:
    """Returns the answer, or `Waiting` if the produce must wait. With acks=0 there is no answer. Raises
    MalformedRequestError, or UnansweredError if a produce with acks=0 fails."""
    body, ids = _read(request, topic_ids)
    if tracing.is_on():
        return Waiting(_traced(request, body, ids, handler, cluster))
    if len(body.partitions) > TURN_PARTITIONS_MAX:
        return Waiting(_produce_many(request, body, ids, handler, cluster))
    answers = handler.serve(body)
    if isinstance(answers, Waiting):
        return Waiting(_answer_async(request, body, ids, answers, cluster))
    return _answer(request, body, ids, answers, cluster)


async def _produce_many(
    request: Request, body: Produce, ids: _Ids, handler: ProduceHandler, cluster: ListenerMetadata
) -> Answer:
    await asyncio.sleep(0)
    answers = handler.serve(body)
    if isinstance(answers, Waiting):
        answers = await answers
    await asyncio.sleep(0)
    return _answer(request, body, ids, answers, cluster)


async def _answer_async(
    request: Request, body: Produce, ids: _Ids, answers: Waiting[list[Produced]], cluster: ListenerMetadata
) -> Answer:
    return _answer(request, body, ids, await answers, cluster)


async def _traced(
    request: Request, body: Produce, ids: _Ids, handler: ProduceHandler, cluster: ListenerMetadata
) -> Answer:
    with tracing.request_span("Produce", request.client_id):
        answers = handler.serve(body)
        return _answer(request, body, ids, await answers if isinstance(answers, Waiting) else answers, cluster)


def _read(request: Request, topic_ids: TopicIds) -> tuple[Produce, _Ids]:
    """Reads the request. A topic id that is unknown becomes a topic that does not exist. Raises
    MalformedRequestError."""
    reader = request.body()
    by_topic_id = request.version >= _BY_TOPIC_ID
    ids: _Ids = {}
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.fields(_ACKS)
    partitions: list[PartitionRecords] = []
    topic_count = reader.array_size()
    check_count(topic_count, "topics")
    for _ in range(topic_count):
        if by_topic_id:
            topic_id = reader.uuid()
            topic = topic_ids.name_of(topic_id)
            ids[topic] = topic_id
        else:
            topic = reader.string()
        count = reader.array_size()
        check_count(len(partitions) + count, "partitions")
        for _ in range(count):
            number = reader.int32()
            records = reader.nullable_bytes() or _EMPTY
            reader.skip_tagged_fields()
            partitions.append(PartitionRecords(TopicPartition(topic, number), records))
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    reader.expect_end()
    if len(partitions) > 1 and len({partition.topic_partition for partition in partitions}) != len(partitions):
        raise MalformedRequestError("the produce request names a partition twice; expected each partition once")
    verify_only = request.version < _ADDS_PARTITIONS
    return Produce(acks, timeout_ms, transactional_id or "", partitions, verify_only, lambda: request.client_host), ids


def _answer(
    request: Request, body: Produce, ids: _Ids, answers: Sequence[Produced], cluster: ListenerMetadata
) -> Answer:
    if body.acks == ACKS_NONE:
        if answers:
            _raise_unanswered(answers[0], request.client_id)
        return None
    version = request.version
    topics = _by_topic(answers)
    writer = AnswerWriter(flexible=request.flexible)
    writer.array_size(len(topics))
    for topic, partitions in topics:
        if version >= _BY_TOPIC_ID:
            writer.uuid(ids[topic])
        else:
            writer.string(topic)
        writer.array_size(len(partitions))
        for answer in partitions:
            _write_partition(writer, version, answer)
        writer.tagged_fields()
    writer.int32(request.throttle_ms)
    writer.tagged_fields(node_endpoints(cluster, answers) if version >= _HINTED else ())
    return writer.parts()


def _raise_unanswered(failed: Produced, client_id: str) -> NoReturn:
    raise UnansweredError(
        f"a produce with acks=0 failed, client_id={client_id} partition={failed.topic_partition}"
        f" error={failed.error_code.name}: {failed.error_message}"
    )


def _by_topic(answers: Sequence[Produced]) -> list[tuple[str, Sequence[Produced]]]:
    if len(answers) == 1:
        # Most requests have one partition.
        return [(answers[0].topic_partition.topic, answers)]
    return [(topic, list(group)) for topic, group in groupby(answers, key=_topic_of)]


def _topic_of(answer: Produced) -> str:
    return answer.topic_partition.topic


def _write_partition(writer: AnswerWriter, version: int, answer: Produced) -> None:
    (name, partition), code, message, base_offset, append_time_ms, log_start_offset, *_ = answer
    if code:
        code = _known(version, name, code)
    if version >= 5:
        writer.fields(_PRODUCED, partition, code, base_offset, append_time_ms, log_start_offset)
    else:
        writer.fields(_PRODUCED_BEFORE_5, partition, code, base_offset, append_time_ms)
    if version >= 8:
        writer.array_size(len(answer.record_errors))
        for index, text in answer.record_errors:
            writer.int32(index)
            writer.nullable_string(text)
            writer.tagged_fields()
        writer.nullable_string(message or None)
    writer.tagged_fields(leader_hint(_CURRENT_LEADER_TAG, answer) if code and version >= _HINTED else ())


def _known(version: int, topic: str, code: ErrorCode) -> ErrorCode:
    """Returns the error code that a client of that version knows."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and version >= _BY_TOPIC_ID and unknown_id(topic) is not None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return code
