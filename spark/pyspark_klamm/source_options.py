"""The options of a source, checked once and by name: all options of Spark's Kafka source, with the same meaning, and a
few more."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.errors import ConfigError
from klamm.setting import ConfigType, boolean, custom, integer, long, text
from pyspark_klamm.client_file import CLIENT_FILE
from pyspark_klamm.client_file import DOC as CLIENT_FILE_DOC
from pyspark_klamm.offset_spec import OffsetSpec, check_order, ending_spec, starting_spec
from pyspark_klamm.option_values import OptionValues, choice, duration_ms
from pyspark_klamm.topic_selection import TopicSelection, subscription

log = logging.getLogger(__name__)

_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsetsToGroup")
BATCH_ONLY: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The options of a source as they are given. `kafka.*` are the client's."""

    client_config_file: str | None = text(None, name=CLIENT_FILE, doc=CLIENT_FILE_DOC)
    assign: str | None = text(None, doc='The partitions to read, as JSON: {"topic": [0, 1]}.')
    subscribe: str | None = text(None, doc="The topics to read, separated by commas.")
    subscribe_pattern: str | None = text(
        None, name="subscribePattern", doc="The topics to read, as a regular expression in Python's syntax."
    )
    starting_timestamp: str | None = text(
        None,
        name="startingTimestamp",
        doc="A query begins at the first record of each partition with this timestamp or a later one,"
        " in milliseconds since 1970.",
    )
    starting_offsets_by_timestamp: str | None = text(
        None,
        name="startingOffsetsByTimestamp",
        doc='Where a query begins, as a startingTimestamp for each partition, in JSON: {"topic": {"0":'
        " 1767225600000}}.",
    )
    starting_offsets: str | None = text(
        None,
        name="startingOffsets",
        shown="latest (stream), earliest (batch)",
        doc='Where a query begins: earliest, latest, or offsets as JSON: {"topic": {"0": 23, "1": -2}}.'
        " -2 is earliest and -1 is latest. A stream with a checkpoint continues from its"
        " checkpoint.",
    )
    starting_offsets_by_timestamp_strategy: str = custom(
        "error",
        choice("error", "latest"),
        type=ConfigType.STRING,
        name="startingOffsetsByTimestampStrategy",
        doc="What happens if a partition has no record with the starting timestamp or a later one."
        " error: the query fails. latest: the query begins at the end.",
    )
    ending_timestamp: str | None = text(
        None, name="endingTimestamp", doc="Where a batch query ends, in the form of startingTimestamp."
    )
    ending_offsets_by_timestamp: str | None = text(
        None,
        name="endingOffsetsByTimestamp",
        doc="Where a batch query ends, in the form of startingOffsetsByTimestamp.",
    )
    ending_offsets: str | None = text(
        None, name="endingOffsets", shown="latest", doc="Where a batch query ends, in the form of startingOffsets."
    )
    max_offsets_per_trigger: int | None = long(
        None, at_least=1, name="maxOffsetsPerTrigger", doc="The most offsets that one batch of a stream contains."
    )
    min_offsets_per_trigger: int | None = long(
        None,
        at_least=1,
        name="minOffsetsPerTrigger",
        doc="A stream waits until this many offsets are available, or until maxTriggerDelay is over.",
    )
    max_trigger_delay_ms: int = custom(
        15 * 60 * 1000,
        duration_ms,
        type=ConfigType.STRING,
        shown="15m",
        name="maxTriggerDelay",
        doc="How long a stream waits for minOffsetsPerTrigger before it starts a smaller batch, such as"
        " 200ms, 30s, 15m or 1h.",
    )
    commit_offsets_to_group: str | None = text(
        None,
        name="commitOffsetsToGroup",
        doc="The consumer group to which a stream commits its offsets, so that tools can show its progress.",
    )
    fail_on_data_loss: bool = boolean(
        True, name="failOnDataLoss", doc="Whether a query fails if records that it should read were deleted."
    )
    min_partitions: int = integer(
        1, at_least=1, name="minPartitions", doc="The approximate least number of tasks, if there are as many records."
    )
    max_records_per_partition: int | None = long(
        None, at_least=1, name="maxRecordsPerPartition", doc="The most offsets that one task reads."
    )
    max_tasks: int | None = integer(
        None, at_least=1, name="maxTasks", shown="the processors", doc="The largest number of tasks of a batch."
    )
    include_headers: bool = boolean(
        False, name="includeHeaders", doc="Whether the rows have a column with the headers."
    )
    group_id_prefix: str | None = text(
        None,
        name="groupIdPrefix",
        doc="Accepted because configurations of Spark's Kafka source contain it; it has no effect.",
    )
    poll_timeout_ms: int = integer(
        120_000,
        at_least=1,
        name="kafkaConsumer.pollTimeoutMs",
        doc="How long a task waits for records that exist in the log.",
    )
    fetch_offset_attempts: int = integer(
        3,
        at_least=1,
        name="fetchOffset.numRetries",
        doc="How many times a query asks for offsets before it fails. It asks only once if no retry can help, or if the"
        " cluster has never answered.",
    )
    fetch_offset_interval_ms: int = integer(
        1_000,
        at_least=0,
        name="fetchOffset.retryIntervalMs",
        doc="The wait between two attempts of a query to get offsets.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """The limits for the number of tasks of a batch."""

    max_tasks: int
    """The most tasks that packing makes, unless the other two limits require more."""
    min_tasks: int = 1
    """minPartitions: the approximate least number of tasks, if there are as many records."""
    max_records_per_task: int | None = None
    """maxRecordsPerPartition: the most offsets that one task reads, or None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The limits for one batch of a stream, in offsets."""

    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    """How long fewer than `min_offsets` offsets may wait, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a reader."""

    client: Mapping[str, str]
    """Settings of the clients, by Kafka's dotted names."""
    subscription: TopicSelection
    start: OffsetSpec
    end: OffsetSpec
    rate: RateLimits
    tasks: TaskLimits
    fail_on_data_loss: bool
    include_headers: bool
    commit_group: str | None
    """The consumer group to which a stream commits its offsets, or None."""
    poll_timeout_ms: int
    """How long a task waits for records that exist in the log."""
    fetch_offset_attempts: int
    fetch_offset_interval_ms: int


def warn_of_useless(options: Mapping[str, str], *, streaming: bool) -> None:
    """Logs a warning for each option that has no effect in this kind of query, as in Spark's Kafka source."""
    given = OptionValues(options, SourceSettings)
    if not streaming:
        for name in _STREAM_ONLY:
            if name in given:
                log.warning("%s has no effect in a batch query", name)
    if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
        log.warning("maxTriggerDelay has no effect without minOffsetsPerTrigger")


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parses a reader's options. Raises ConfigError, which names the option, its value and the allowed values."""
    given = OptionValues(options, SourceSettings)
    values = given.values
    _check_kind(given, streaming=streaming)
    client = given.client_settings()
    latest_if_none = values.starting_offsets_by_timestamp_strategy == "latest"
    start = starting_spec(given, streaming=streaming, latest_if_none=latest_if_none)
    end = ending_spec(given)
    check_order(start, end)
    return SourceOptions(
        client={name: value for name, value in client.items() if name != "group.id"},
        subscription=subscription(given),
        start=start,
        end=end,
        rate=_rate(given),
        tasks=_task_limits(values),
        fail_on_data_loss=values.fail_on_data_loss,
        include_headers=values.include_headers,
        commit_group=_commit_group(given, client.get("group.id")),
        poll_timeout_ms=values.poll_timeout_ms,
        fetch_offset_attempts=values.fetch_offset_attempts,
        fetch_offset_interval_ms=values.fetch_offset_interval_ms,
    )


def _check_kind(given: OptionValues[SourceSettings], *, streaming: bool) -> None:
    """Raises ConfigError for an option of batch queries in a stream."""
    for name in BATCH_ONLY:
        if streaming and name in given:
            raise ConfigError(f"{name} is only for batch queries, because a stream has no end")


def _rate(given: OptionValues[SourceSettings]) -> RateLimits:
    values = given.values
    most, least = values.max_offsets_per_trigger, values.min_offsets_per_trigger
    if most is not None and least is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    return RateLimits(max_offsets=most, min_offsets=least, max_delay_ms=values.max_trigger_delay_ms)


def _task_limits(values: SourceSettings) -> TaskLimits:
    most, least, cap = values.max_tasks, values.min_partitions, values.max_records_per_partition
    if most is not None and least > most:
        raise ConfigError(f"minPartitions={least} is more than maxTasks={most}")
    if most is not None and cap is not None:
        raise ConfigError(
            f"maxRecordsPerPartition={cap} may need more tasks than maxTasks={most} allows: set one of them"
        )
    return TaskLimits(max_tasks=most or os.cpu_count() or 1, min_tasks=least, max_records_per_task=cap)


def _commit_group(given: OptionValues[SourceSettings], consumer_group: str | None) -> str | None:
    """Returns the group to which a stream commits its offsets, or None. kafka.group.id and groupIdPrefix have no
    effect, because the source uses no consumer group."""
    group = given.values.commit_offsets_to_group
    if group == "":
        raise ConfigError("commitOffsetsToGroup='': expected the name of a consumer group")
    if consumer_group is not None and group is not None and group != consumer_group:
        raise ConfigError(f"commitOffsetsToGroup={group!r} and kafka.group.id={consumer_group!r} name different groups")
    if group is None and (consumer_group is not None or "groupIdPrefix" in given):
        log.info("the source uses no consumer group: set commitOffsetsToGroup to commit the query's progress to one")
    return group
