"""The options of `format("klamm")`, checked once and by name. Names and meanings are those of Spark's Kafka source.

Spark hands options over with lower-cased keys. `kafka.` options (and `bootstrap.servers` by itself) configure the
clients; those that would break the source's own bookkeeping are refused, as Spark's Kafka source refuses them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.errors import ConfigError
from klamm.ledger_ids import NAME_LENGTH_MAX, LedgerId, ledger_problem
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition, topic_name_problem

EARLIEST: Final = EARLIEST_TIMESTAMP
LATEST: Final = LATEST_TIMESTAMP

_SPARK_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_SOURCE: Final = frozenset(
    {
        "subscribe",
        "startingoffsets",
        "endingoffsets",
        "maxoffsetspertrigger",
        "failondataloss",
        "includeheaders",
        "maxtasks",
    }
)
_SINK: Final = frozenset({"topic", "includeheaders", "deliveryguarantee", "sinkid"})
_AT_LEAST_ONCE: Final = "at-least-once"
_EXACTLY_ONCE: Final = "exactly-once"
DEFAULT_SINK_ID: Final = "spark"
_GROUP: Final = {"kafka.group.id": "kafka.group.id", "groupidprefix": "groupIdPrefix"}
"""Options about a consumer group that Spark's Kafka source knows, as they are written."""
_FORBIDDEN: Final = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the checkpoint remembers the offsets",
    "interceptor.classes": "interceptors would see records twice",
    "key.deserializer": "keys are binary; use DataFrame operations",
    "value.deserializer": "values are binary; use DataFrame operations",
    "key.serializer": "keys are binary or strings",
    "value.serializer": "values are binary or strings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpec:
    """Where to begin or end: one answer for all partitions, or one each."""

    default: int
    """EARLIEST or LATEST."""
    partitions: Mapping[TopicPartition, int] | None = None
    """Offsets, EARLIEST or LATEST by partition; then every subscribed partition must be named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a reader was asked for."""

    client: Mapping[str, str]
    """Settings of the clients, by Kafka's dotted names."""
    topics: tuple[str, ...]
    starting_offsets: OffsetSpec
    ending_offsets: OffsetSpec
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    include_headers: bool
    max_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a writer was asked for."""

    client: Mapping[str, str]
    """Settings of the producer, by Kafka's dotted names."""
    topic: str | None
    """Overrides the column `topic`."""
    exactly_once: bool = False
    sink_id: str = DEFAULT_SINK_ID
    """Tells outputs of one query apart, such as those of a copied checkpoint: the sink of its batch ledger."""


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parses a reader's options. Raises ConfigError that names the option, its value and what was expected."""
    given = {name.lower(): value for name, value in options.items()}
    for name in _GROUP.keys() & given.keys():
        raise ConfigError(f"{_GROUP[name]} cannot be set: the source reads without a consumer group")
    _refuse_unknown(given, _SOURCE)
    ending = _offsets(given, "endingoffsets", default="latest")
    if ending.default == EARLIEST or EARLIEST in (ending.partitions or {}).values():
        raise ConfigError("endingOffsets cannot be earliest (-2): the result would always be empty")
    if streaming and "endingoffsets" in given:
        raise ConfigError("endingOffsets is for batch queries; a stream has no end")
    limit = given.get("maxoffsetspertrigger")
    return SourceOptions(
        client=_client_settings(given),
        topics=_topics(given),
        starting_offsets=_offsets(given, "startingoffsets", default="latest" if streaming else "earliest"),
        ending_offsets=ending,
        max_offsets_per_trigger=None if limit is None else _positive("maxOffsetsPerTrigger", limit),
        fail_on_data_loss=_boolean(given, "failondataloss", default=True),
        include_headers=_boolean(given, "includeheaders", default=False),
        max_tasks=_positive("maxTasks", given.get("maxtasks", str(os.cpu_count() or 1))),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parses a writer's options. Raises ConfigError as `source_options` does."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given, _SINK)
    _boolean(given, "includeheaders", default=False)
    topic = given.get("topic")
    if topic is not None and (problem := topic_name_problem(topic)):
        raise ConfigError(f"topic={topic!r}: {problem}")
    client = _client_settings(given)
    if "transactional.id" in client:
        raise ConfigError(f"kafka.transactional.id cannot be set: use deliveryGuarantee={_EXACTLY_ONCE}")
    exactly_once = _exactly_once(given)
    return SinkOptions(client=client, topic=topic, exactly_once=exactly_once, sink_id=_sink_id(given, exactly_once))


def _exactly_once(given: Mapping[str, str]) -> bool:
    text = given.get("deliveryguarantee", _AT_LEAST_ONCE).lower()
    if text not in (_AT_LEAST_ONCE, _EXACTLY_ONCE):
        raise ConfigError(
            f"deliveryGuarantee={given['deliveryguarantee']!r}: expected {_AT_LEAST_ONCE} or {_EXACTLY_ONCE}"
        )
    return text == _EXACTLY_ONCE


def _sink_id(given: Mapping[str, str], exactly_once: bool) -> str:
    sink_id = given.get("sinkid", DEFAULT_SINK_ID)
    if "sinkid" in given and not exactly_once:
        raise ConfigError(f"sinkId={sink_id!r} is of no use without deliveryGuarantee={_EXACTLY_ONCE}")
    if ledger_problem(LedgerId(sink_id, "query")):
        raise ConfigError(
            f"sinkId={sink_id!r}: expected 1 to {NAME_LENGTH_MAX} ASCII letters, digits, '.', '_', ':' and '-'"
        )
    return sink_id


def _refuse_unknown(given: Mapping[str, str], known: frozenset[str]) -> None:
    for name in given:
        if name not in known | _SPARK_OWN and not name.startswith("kafka.") and name != "bootstrap.servers":
            raise ConfigError(f"klamm has no option {name!r} here; it knows {', '.join(sorted(known))} and kafka.*")


def _client_settings(given: Mapping[str, str]) -> dict[str, str]:
    settings = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    if "bootstrap.servers" in given:
        settings.setdefault("bootstrap.servers", given["bootstrap.servers"])
    for name in settings:
        if name in _FORBIDDEN:
            raise ConfigError(f"kafka.{name} cannot be set: {_FORBIDDEN[name]}")
    if "bootstrap.servers" not in settings:
        raise ConfigError("option kafka.bootstrap.servers is required: host:port of a broker")
    return settings


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    topics = tuple(name.strip() for name in given.get("subscribe", "").split(",") if name.strip())
    if not topics:
        raise ConfigError("option subscribe is required: topics to read, separated by commas")
    for topic in topics:
        if problem := topic_name_problem(topic):
            raise ConfigError(f"subscribe={given['subscribe']!r}: {problem}")
    return tuple(dict.fromkeys(topics))


def _offsets(given: Mapping[str, str], name: str, *, default: str) -> OffsetSpec:
    text = given.get(name, default).strip()
    if text.lower() in ("earliest", "latest"):
        return OffsetSpec(default=EARLIEST if text.lower() == "earliest" else LATEST)
    try:
        partitions = {
            TopicPartition(topic, int(partition)): _offset(offset)
            for topic, offsets in json.loads(text).items()
            for partition, offset in offsets.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f'{name}={text!r}: expected earliest, latest or JSON such as {{"topic": {{"0": 23, "1": -2}}}} ({error})'
        ) from error
    return OffsetSpec(default=LATEST, partitions=partitions)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{value!r} is no offset; -2 is earliest, -1 is latest")
    return value


def _positive(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ConfigError(f"{name}={text!r}: expected a whole number of at least 1")
    return value


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name}={given[name]!r}: expected true or false")
    return text == "true"
