"""Configuration of a Consumer: Kafka's consumer settings under their own names, with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from klamm.config import ClientConfig
from klamm.consumer.assignors import Assignor, resolve_assignors
from klamm.consumer.offset_policy import parse_offset_reset
from klamm.consumer.position_reset import PositionReset
from klamm.consumer.record import ConsumerRecord
from klamm.errors import ConfigError
from klamm.kafka_names.without_effect import OF_CONSUMERS
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata
from klamm.serializers import Deserializer, parse_deserializer
from klamm.setting import ConfigType, boolean, custom, integer, one_of, text

Records = dict[TopicPartition, list[ConsumerRecord]]
"""What a poll returns; partitions without records are not in it."""


class ConsumerInterceptor(Protocol):
    """Sees what the consumer returns and commits. An exception it raises is logged and otherwise ignored."""

    def on_consume(self, records: Records) -> Records:
        """Called in the caller's thread before a poll returns; returns what the poll is to return."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called on the client's event loop when offsets were committed."""


def _assignors(value: Any) -> tuple[Assignor, ...]:
    strategies = value.split(",") if isinstance(value, str) else list(value)
    return resolve_assignors([each.strip() if isinstance(each, str) else each for each in strategies])


def _callback(value: Any) -> Callable[[PositionReset], object]:
    if not callable(value):
        raise ValueError("a function that takes a PositionReset")
    function: Callable[[PositionReset], object] = value
    return function


def _interceptors(value: Any) -> tuple[ConsumerInterceptor, ...]:
    interceptors = tuple(value)
    if not all(hasattr(each, "on_consume") and hasattr(each, "on_commit") for each in interceptors):
        raise ValueError("objects with on_consume and on_commit")
    return interceptors


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """See Kafka's consumer configuration; only what differs from it or adds to it is said here."""

    WITHOUT_EFFECT: ClassVar[Mapping[str, str]] = {**ClientConfig.WITHOUT_EFFECT, **OF_CONSUMERS}

    group_id: str | None = text(
        None, doc="Without one there are no committed offsets and no subscriptions, only `assign`."
    )
    group_protocol: str = text(
        "classic",
        valid=one_of("classic", "consumer"),
        doc="consumer is the protocol of KIP-848. Then the coordinator assigns (group.remote.assignor) and"
        " decides about heartbeats and sessions: partition.assignment.strategy, heartbeat.interval.ms and"
        " session.timeout.ms have no effect.",
    )
    group_remote_assignor: str | None = text(
        None,
        doc="uniform or range, for the protocol of KIP-848; without it, the group's. The one that most members"
        " ask for is taken.",
    )
    group_instance_id: str | None = text(
        None, doc="Makes this a static member (KIP-345): it keeps its partitions over a restart."
    )
    session_timeout_ms: int = integer(
        45_000,
        at_least=1,
        doc="A member that the coordinator has not heard of for this long is out of the group (classic protocol).",
    )
    heartbeat_interval_ms: int = integer(
        3_000, at_least=1, doc="How often a member tells the coordinator that it is alive (classic protocol)."
    )
    max_poll_interval_ms: int = integer(
        300_000,
        at_least=1,
        doc="Longest time between two polls; then the member leaves the group and can no longer commit.",
    )
    max_poll_records: int = integer(500, at_least=1, doc="The most records that one poll returns.")
    partition_assignment_strategy: tuple[Assignor, ...] = custom(
        resolve_assignors(("range", "cooperative-sticky")),
        _assignors,
        type=ConfigType.LIST,
        shown="range,cooperative-sticky",
        doc="Names (range, roundrobin, sticky, cooperative-sticky) or Assignor objects, the preferred one first.",
    )
    auto_offset_reset: str = custom(
        "latest",
        parse_offset_reset,
        type=ConfigType.STRING,
        doc="Where to begin without a committed offset, or out of range: earliest, latest, none (that is an error) or"
        " by_duration:PT1H (an hour ago). nearest is Klamm's own: the log start if records were deleted or nothing is"
        " committed, the end if the log was cut.",
    )
    on_position_reset: Callable[[PositionReset], object] | None = custom(
        None,
        _callback,
        doc="Klamm's own: a function that poll calls with a PositionReset when the log no longer has the consumer's"
        " position, before it returns records of the new one. An AsyncConsumer awaits it. The poll raises what it"
        " raises.",
    )
    enable_auto_commit: bool = boolean(
        True, doc="Commits, from within poll and close, what earlier polls returned. Needs a group.id to have effect."
    )
    auto_commit_interval_ms: int = integer(5_000, at_least=0, doc="How often enable.auto.commit commits.")
    fetch_min_bytes: int = integer(
        1, at_least=0, doc="The least that a broker answers a fetch with before fetch.max.wait.ms is over."
    )
    fetch_max_wait_ms: int = integer(
        500, at_least=0, doc="How long a broker may keep a fetch waiting for fetch.min.bytes."
    )
    fetch_max_bytes: int = integer(
        50 * 1024 * 1024,
        at_least=1,
        doc="The most that one fetch returns of all partitions; a first batch that is larger comes whole.",
    )
    max_partition_fetch_bytes: int = integer(
        1024 * 1024,
        at_least=1,
        doc="The most that one fetch returns of one partition; a first batch that is larger comes whole.",
    )
    fetch_buffer_max_bytes: int = integer(
        64 * 1024 * 1024,
        at_least=1,
        doc="Klamm's own: fetching stops while this much is fetched and not returned yet. Exceeded by one fetch.",
    )
    check_crcs: bool = boolean(True, doc="Whether the checksums of fetched batches are checked.")
    isolation_level: str = text(
        "read_uncommitted",
        valid=one_of("read_uncommitted", "read_committed"),
        doc="read_committed: records of transactions that are open or were aborted are not returned.",
    )
    allow_auto_create_topics: bool = boolean(
        True, doc="Subscribing to or assigning a missing topic creates it, if the cluster allows that."
    )
    exclude_internal_topics: bool = boolean(True, doc="A pattern does not match internal topics.")
    key_deserializer: Deserializer | None = custom(
        None,
        parse_deserializer,
        doc="A function, or a name of klamm.serializers; null keys are not passed to it. Without one keys are bytes.",
    )
    value_deserializer: Deserializer | None = custom(None, parse_deserializer, doc="As key.deserializer, for values.")
    interceptor_classes: tuple[ConsumerInterceptor, ...] = custom(
        (), _interceptors, type=ConfigType.LIST, doc="ConsumerInterceptor objects, called in order."
    )
    consumer_timeout_ms: int | None = integer(
        None, doc="Iteration ends when no record came for this long; without it, never."
    )

    def validate(self) -> None:
        """The relations between settings; raises ConfigError."""
        # The dataclass decorator makes a new class for slots, so super() without arguments has none to look up.
        ClientConfig.validate(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below"
                f" session.timeout.ms={self.session_timeout_ms}"
            )
        if self.group_remote_assignor is not None and self.group_protocol != "consumer":
            raise ConfigError("group.remote.assignor needs group.protocol=consumer")
        if self.group_id == "":
            raise ConfigError("group.id='' is not valid; expected a name, or no group.id at all")
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group.instance.id needs a group.id")
