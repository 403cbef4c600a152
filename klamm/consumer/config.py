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
from klamm.records import MAX_DECOMPRESSED_BYTES
from klamm.serializers import Deserializer, parse_deserializer
from klamm.setting import ConfigType, boolean, custom, integer, one_of, text
from klamm.type_variables import KeyT, ValueT

Records = dict[TopicPartition, list[ConsumerRecord[KeyT, ValueT]]]
"""The result of a poll: the records by partition. Partitions without records are left out."""


class ConsumerInterceptor(Protocol):
    """An interceptor of the records that a consumer returns and of its commits. Its exceptions are logged and otherwise
    ignored."""

    def on_consume(self, records: Records) -> Records:
        """Returns the records that a poll returns instead of `records`. The consumer calls this in the caller's
        thread.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called on the client's event loop after offsets were committed."""


def _assignors(value: Any) -> tuple[Assignor, ...]:
    strategies = value.split(",") if isinstance(value, str) else list(value)
    return resolve_assignors([strategy.strip() if isinstance(strategy, str) else strategy for strategy in strategies])


def _callback(value: Any) -> Callable[[PositionReset], object]:
    if not callable(value):
        raise ValueError("a function that takes a PositionReset")
    function: Callable[[PositionReset], object] = value
    return function


def _interceptors(value: Any) -> tuple[ConsumerInterceptor, ...]:
    interceptors = tuple(value)
    if not all(
        hasattr(interceptor, "on_consume") and hasattr(interceptor, "on_commit") for interceptor in interceptors
    ):
        raise ValueError("objects with on_consume and on_commit")
    return interceptors


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The settings of a consumer. Kafka's consumer configuration documents them. The texts here say only where Klamm
    differs."""

    WITHOUT_EFFECT: ClassVar[Mapping[str, str]] = {**ClientConfig.WITHOUT_EFFECT, **OF_CONSUMERS}

    group_id: str | None = text(
        None,
        doc="The name of the consumer group. Without it there are no committed offsets and no"
        " subscriptions, only `assign`.",
    )
    group_protocol: str = text(
        "classic",
        valid=one_of("classic", "consumer"),
        doc="The group protocol: classic, or consumer (KIP-848). With consumer, the coordinator assigns"
        " partitions (group.remote.assignor) and sets heartbeats and sessions."
        " partition.assignment.strategy, heartbeat.interval.ms and session.timeout.ms then have no"
        " effect.",
    )
    group_remote_assignor: str | None = text(
        None,
        doc="The assignor that the member prefers with the protocol of KIP-848: uniform or range. The"
        " group uses the one that most members prefer. Without it, the member accepts the group's"
        " assignor.",
    )
    group_instance_id: str | None = text(
        None, doc="Makes this consumer a static member (KIP-345), which keeps its partitions when it restarts."
    )
    session_timeout_ms: int = integer(
        45_000,
        at_least=1,
        doc="The coordinator removes a member from the group if it sends no heartbeat for this long"
        " (classic protocol).",
    )
    heartbeat_interval_ms: int = integer(
        3_000, at_least=1, doc="How often a member sends a heartbeat to the coordinator (classic protocol)."
    )
    max_poll_interval_ms: int = integer(
        300_000,
        at_least=1,
        doc="The longest time between two polls. After that, the member leaves the group and can no longer commit.",
    )
    max_poll_records: int = integer(500, at_least=1, doc="The most records that one poll returns.")
    partition_assignment_strategy: tuple[Assignor, ...] = custom(
        resolve_assignors(("range", "cooperative-sticky")),
        _assignors,
        type=ConfigType.LIST,
        shown="range,cooperative-sticky",
        accepts="str | Sequence[str | Assignor]",
        doc="Names (range, roundrobin, sticky, cooperative-sticky) or Assignor objects, the preferred one first.",
    )
    auto_offset_reset: str = custom(
        "latest",
        parse_offset_reset,
        type=ConfigType.STRING,
        accepts="str",
        doc="Where the consumer begins if there is no committed offset, or if its offset is out of"
        " range. earliest, latest, none (raises an error) or by_duration:PT1H (an hour ago)."
        " nearest is Klamm's own: the start of the log if records were deleted or nothing is"
        " committed, the end if the log was truncated.",
    )
    on_position_reset: Callable[[PositionReset], object] | None = custom(
        None,
        _callback,
        accepts="Callable[[PositionReset], object]",
        doc="A function that poll calls with a PositionReset when the log no longer has the consumer's"
        " position. poll calls it before it returns records of the new position. An AsyncConsumer"
        " awaits it. If it raises an exception, poll raises the same. Klamm's own setting; Kafka"
        " has none.",
    )
    enable_auto_commit: bool = boolean(
        True,
        doc="Whether poll and close commit the offsets of the records that earlier polls returned. It"
        " needs a group.id.",
    )
    auto_commit_interval_ms: int = integer(
        5_000, at_least=0, doc="How often the consumer commits if enable.auto.commit is true."
    )
    fetch_min_bytes: int = integer(
        1,
        at_least=0,
        doc="A broker waits until it has this many bytes for a fetch, or until fetch.max.wait.ms is over.",
    )
    fetch_max_wait_ms: int = integer(
        500, at_least=0, doc="How long a broker may wait until it has fetch.min.bytes for a fetch."
    )
    fetch_max_bytes: int = integer(
        50 * 1024 * 1024,
        at_least=1,
        doc="The most bytes of all partitions that one fetch returns. A first batch that is larger is returned whole.",
    )
    max_partition_fetch_bytes: int = integer(
        1024 * 1024,
        at_least=1,
        doc="The most bytes of one partition that one fetch returns. A first batch that is larger is returned whole.",
    )
    fetch_buffer_max_bytes: int = integer(
        64 * 1024 * 1024,
        at_least=1,
        doc="The consumer pauses fetching while it holds this many fetched bytes that poll has not"
        " returned. One fetch can exceed the limit. Klamm's own setting; Kafka has none.",
    )
    max_decompressed_batch_bytes: int = integer(
        MAX_DECOMPRESSED_BYTES,
        at_least=1,
        at_most=MAX_DECOMPRESSED_BYTES,
        doc="The largest size of a batch's records after decompression, because poll holds them all in memory. For"
        " a larger batch, poll raises BatchTooLargeError. The default is that of max.decompressed.message.bytes,"
        " so that a consumer reads all that a topic accepts. Klamm's own setting; Kafka has none.",
    )
    check_crcs: bool = boolean(True, doc="Whether the consumer checks the checksums of fetched batches.")
    isolation_level: str = text(
        "read_uncommitted",
        valid=one_of("read_uncommitted", "read_committed"),
        doc="A consumer with read_committed does not return records of transactions that are open or were aborted.",
    )
    allow_auto_create_topics: bool = boolean(
        True,
        doc="Whether subscribing to a missing topic, or assigning one, creates it. The cluster must allow this, too.",
    )
    exclude_internal_topics: bool = boolean(True, doc="Whether a subscription by pattern excludes internal topics.")
    key_deserializer: Deserializer | None = custom(
        None,
        parse_deserializer,
        accepts="Callable[[bytes], KeyT] | SerdeName",
        doc="A function, or a name from klamm.serializers. It is not called for null keys. Without one,"
        " keys are bytes.",
    )
    value_deserializer: Deserializer | None = custom(
        None,
        parse_deserializer,
        accepts="Callable[[bytes], ValueT] | SerdeName",
        doc="The same as key.deserializer, for values.",
    )
    interceptor_classes: tuple[ConsumerInterceptor, ...] = custom(
        (),
        _interceptors,
        type=ConfigType.LIST,
        accepts="Iterable[ConsumerInterceptor]",
        doc="ConsumerInterceptor objects, called in order.",
    )
    consumer_timeout_ms: int | None = integer(
        None, doc="Iteration ends if no record arrives for this long. Without it, iteration never ends."
    )

    def validate(self) -> None:
        """Checks the relations between settings. Raises ConfigError."""
        # super() fails here: the dataclass decorator creates a new class for slots.
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
