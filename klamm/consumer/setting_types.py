"""The settings of a consumer, as keyword arguments. Written by `python -m tools.setting_types`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal

from klamm.consumer.assignors import Assignor
from klamm.consumer.config import ConsumerInterceptor
from klamm.consumer.position_reset import PositionReset
from klamm.serializers import SerdeName
from klamm.setting_types import ClientSettings
from klamm.type_variables import KeyT, ValueT


class ConsumerSettings(ClientSettings, Generic[KeyT, ValueT], total=False):
    """The settings of a consumer, by names with underscores. Each may be left out."""

    group_id: str | None
    """The name of the consumer group. Without it there are no committed offsets and no subscriptions, only `assign`.
    Not set by default. Name in a mapping: `group.id`."""
    group_protocol: Literal["classic", "consumer"]
    """The group protocol: classic, or consumer (KIP-848). With consumer, the coordinator assigns partitions
    (group.remote.assignor) and sets heartbeats and sessions. partition.assignment.strategy, heartbeat.interval.ms and
    session.timeout.ms then have no effect. Default: classic. Name in a mapping: `group.protocol`."""
    group_remote_assignor: str | None
    """The assignor that the member prefers with the protocol of KIP-848: uniform or range. The group uses the one that
    most members prefer. Without it, the member accepts the group's assignor. Not set by default. Name in a mapping:
    `group.remote.assignor`."""
    group_instance_id: str | None
    """Makes this consumer a static member (KIP-345), which keeps its partitions when it restarts. Not set by default.
    Name in a mapping: `group.instance.id`."""
    session_timeout_ms: int
    """The coordinator removes a member from the group if it sends no heartbeat for this long (classic protocol). In
    milliseconds. Default: 45000. Name in a mapping: `session.timeout.ms`."""
    heartbeat_interval_ms: int
    """How often a member sends a heartbeat to the coordinator (classic protocol). In milliseconds. Default: 3000. Name
    in a mapping: `heartbeat.interval.ms`."""
    max_poll_interval_ms: int
    """The longest time between two polls. After that, the member leaves the group and can no longer commit. In
    milliseconds. Default: 300000. Name in a mapping: `max.poll.interval.ms`."""
    max_poll_records: int
    """The most records that one poll returns. Default: 500. Name in a mapping: `max.poll.records`."""
    partition_assignment_strategy: str | Sequence[str | Assignor]
    """Names (range, roundrobin, sticky, cooperative-sticky) or Assignor objects, the preferred one first. Default:
    range,cooperative-sticky. Name in a mapping: `partition.assignment.strategy`."""
    auto_offset_reset: str
    """Where the consumer begins if there is no committed offset, or if its offset is out of range. earliest, latest,
    none (raises an error) or by_duration:PT1H (an hour ago). nearest is Klamm's own: the start of the log if records
    were deleted or nothing is committed, the end if the log was truncated. Default: latest. Name in a mapping:
    `auto.offset.reset`."""
    on_position_reset: Callable[[PositionReset], object] | None
    """A function that poll calls with a PositionReset when the log no longer has the consumer's position. poll calls it
    before it returns records of the new position. An AsyncConsumer awaits it. If it raises an exception, poll raises
    the same. Klamm's own setting; Kafka has none. Not set by default. Name in a mapping: `on.position.reset`."""
    enable_auto_commit: bool
    """Whether poll and close commit the offsets of the records that earlier polls returned. It needs a group.id.
    Default: true. Name in a mapping: `enable.auto.commit`."""
    auto_commit_interval_ms: int
    """How often the consumer commits if enable.auto.commit is true. In milliseconds. Default: 5000. Name in a mapping:
    `auto.commit.interval.ms`."""
    fetch_min_bytes: int
    """A broker waits until it has this many bytes for a fetch, or until fetch.max.wait.ms is over. Default: 1. Name in
    a mapping: `fetch.min.bytes`."""
    fetch_max_wait_ms: int
    """How long a broker may wait until it has fetch.min.bytes for a fetch. In milliseconds. Default: 500. Name in a
    mapping: `fetch.max.wait.ms`."""
    fetch_max_bytes: int
    """The most bytes of all partitions that one fetch returns. A first batch that is larger is returned whole. Default:
    52428800. Name in a mapping: `fetch.max.bytes`."""
    max_partition_fetch_bytes: int
    """The most bytes of one partition that one fetch returns. A first batch that is larger is returned whole. Default:
    1048576. Name in a mapping: `max.partition.fetch.bytes`."""
    fetch_buffer_max_bytes: int
    """The consumer pauses fetching while it holds this many fetched bytes that poll has not returned. One fetch can
    exceed the limit. Klamm's own setting; Kafka has none. Default: 67108864. Name in a mapping:
    `fetch.buffer.max.bytes`."""
    max_decompressed_batch_bytes: int
    """The largest size of a batch's records after decompression, because poll holds them all in memory. For a larger
    batch, poll raises BatchTooLargeError. The default is that of max.decompressed.message.bytes, so that a consumer
    reads all that a topic accepts. Klamm's own setting; Kafka has none. Default: 2147483639. Name in a mapping:
    `max.decompressed.batch.bytes`."""
    check_crcs: bool
    """Whether the consumer checks the checksums of fetched batches. Default: true. Name in a mapping: `check.crcs`."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """A consumer with read_committed does not return records of transactions that are open or were aborted. Default:
    read_uncommitted. Name in a mapping: `isolation.level`."""
    allow_auto_create_topics: bool
    """Whether subscribing to a missing topic, or assigning one, creates it. The cluster must allow this, too. Default:
    true. Name in a mapping: `allow.auto.create.topics`."""
    exclude_internal_topics: bool
    """Whether a subscription by pattern excludes internal topics. Default: true. Name in a mapping:
    `exclude.internal.topics`."""
    key_deserializer: Callable[[bytes], KeyT] | SerdeName | None
    """A function, or a name from klamm.serializers. It is not called for null keys. Without one, keys are bytes. Not
    set by default. Name in a mapping: `key.deserializer`."""
    value_deserializer: Callable[[bytes], ValueT] | SerdeName | None
    """The same as key.deserializer, for values. Not set by default. Name in a mapping: `value.deserializer`."""
    interceptor_classes: Iterable[ConsumerInterceptor]
    """ConsumerInterceptor objects, called in order. Not set by default. Name in a mapping: `interceptor.classes`."""
    consumer_timeout_ms: int | None
    """Iteration ends if no record arrives for this long. Without it, iteration never ends. In milliseconds. Not set by
    default. Name in a mapping: `consumer.timeout.ms`."""
