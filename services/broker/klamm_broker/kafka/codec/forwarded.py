"""Copies a request of a Kafka client into the request that the broker forwards, and the other server's answer back.

Both have the same field names, except those in `_KAFKA_NAMES`. The values differ in four ways. Klamm's durations and
times have names that end in `_ms`. Its texts are empty where Kafka's are null. Its topic ids are bytes. And a field
that a version of Kafka's request lacks is not set in Klamm's.
"""

from __future__ import annotations

import datetime
import functools
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from klamm.wire.v1 import coordinator_pb2 as pb
from klamm_broker.kafka.codec.fields import Fields, milliseconds

MessageT = TypeVar("MessageT", bound=Message)

_KAFKA_NAMES: Final[dict[type[Message], dict[str, str]]] = {
    pb.ListedGroup: {"state": "group_state", "type": "group_type"},
    pb.DescribedGroup: {"state": "group_state", "protocol_name": "protocol_data"},
    pb.DescribedMember: {"metadata": "member_metadata", "assignment": "member_assignment"},
    pb.ConsumerGroupHeartbeatRequest: {"group_instance_id": "instance_id"},
    pb.DescribedConsumerGroup: {"state": "group_state", "assignor": "assignor_name"},
    pb.DescribedConsumerMember: {"group_instance_id": "instance_id"},
    pb.ConsumerAssignment: {"topics": "topic_partitions"},
    pb.ConsumerPartitions: {"topic": "topic_name"},
    pb.ListedTransaction: {"state": "transaction_state"},
    pb.DescribedTransaction: {"state": "transaction_state", "start_time_ms": "transaction_start_time"},
}


class _Field(NamedTuple):
    name: str
    kafka_name: str
    item: type[Message] | None
    """The class of the items if the field is a list of messages."""
    read: Callable[[Message], Any]
    """Returns the value for Kafka's answer."""


def forwarded(message: type[MessageT], body: Any, **given: Any) -> MessageT:
    """Returns Klamm's request for the body of Kafka's. The fields in `given` are not copied. None
    leaves a field unset."""
    for name, kafka_name, item, _ in _plan(message.DESCRIPTOR):
        value = None if name in given else getattr(body, kafka_name, None)
        if value is None:
            continue
        if item is not None:
            given[name] = [forwarded(item, part) for part in value]
        else:
            given[name] = milliseconds(value) if isinstance(value, datetime.timedelta) else value
    return message(**given)


def answered(answer: Message) -> Fields:
    """Returns the fields of Kafka's answer from Klamm's."""
    return {field.kafka_name: field.read(answer) for field in _plan(answer.DESCRIPTOR)}


@functools.cache
def _plan(descriptor: Any) -> tuple[_Field, ...]:
    kafka_names = _KAFKA_NAMES.get(GetMessageClass(descriptor), {})
    return tuple(
        _Field(
            field.name,
            kafka_names.get(field.name, field.name.removesuffix("_ms")),
            GetMessageClass(field.message_type) if field.is_repeated and field.message_type is not None else None,
            _reader(field),
        )
        for field in descriptor.fields
    )


def _reader(field: Any) -> Callable[[Message], Any]:
    name = field.name
    if field.message_type is not None and field.is_repeated:
        return lambda answer: list(map(answered, getattr(answer, name)))
    if field.message_type is not None:
        return lambda answer: answered(getattr(answer, name)) if answer.HasField(name) else None
    if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
        return lambda answer: getattr(answer, name) or None
    if name == "topic_id":
        return lambda answer: uuid.UUID(bytes=getattr(answer, name))
    return lambda answer: getattr(answer, name)
