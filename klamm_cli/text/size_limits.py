"""Describes all limits of a record's size at once. Otherwise users would raise one limit, and only then see the next
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import ConfigResource

TOO_LARGE: Final = (EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE], EXCEPTIONS[ErrorCode.RECORD_LIST_TOO_LARGE])
_TOPIC: Final = ("max.message.bytes", "segment.bytes")
_BROKER: Final = ("message.max.bytes", "socket.request.max.bytes", "queued.max.request.bytes")


def describe_limits(admin: Admin, topic: str, settings: Mapping[str, object]) -> str:
    """Returns a text with the size limits of a producer with `settings`, of the topic and of its brokers.

    Limits that the cluster does not return are left out."""
    from klamm.admin import ConfigResource, ConfigResourceType
    from klamm.producer import ProducerConfig

    config = ProducerConfig.parse(settings)
    of_producer = {"max.request.size": config.max_request_size, "buffer.memory": config.buffer_memory}
    parts = [f"of the producer {_join(of_producer)} (--config)"]
    of_topic = _values(admin, ConfigResource(ConfigResourceType.TOPIC, topic), _TOPIC)
    if of_topic:
        parts.append(f"of the topic {_join(of_topic)} (klamm configs alter --topic {topic} --set)")
    brokers = _broker_ids(admin)
    of_brokers = _values(admin, ConfigResource(ConfigResourceType.BROKER, str(brokers[0])), _BROKER) if brokers else {}
    if of_brokers:
        parts.append(f"of the brokers {_join(of_brokers)} (message.max.bytes is for topics without max.message.bytes)")
    return f"the limits of a record, in bytes, are {'; '.join(parts)}"


def _broker_ids(admin: Admin) -> list[int]:
    try:
        return [broker.node_id for broker in admin.describe_cluster().brokers if not broker.fenced]
    except KlammError:
        return []


def _values(admin: Admin, resource: ConfigResource, names: tuple[str, ...]) -> dict[str, object]:
    try:
        (entries,) = admin.describe_configs([resource], names=names).values()
    except KlammError:
        return {}
    return {name: entries[name].value for name in names if name in entries}


def _join(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
