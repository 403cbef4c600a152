"""The options of a source, checked once and by name: all of Spark's Kafka source, with its meanings, and a few more."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.errors import ConfigError
from pyspark_klamm.offset_spec import OffsetSpec, check_order, ending_spec, starting_spec
from pyspark_klamm.option_values import OptionValues
from pyspark_klamm.subscription import STRATEGIES, Subscription, subscription

log = logging.getLogger(__name__)

_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsetsToGroup")
_BATCH_ONLY: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_KNOWN: Final = (
    *STRATEGIES,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    *_BATCH_ONLY,
    *_STREAM_ONLY,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
DEFAULT_MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
DEFAULT_POLL_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """Into how many tasks a batch is cut."""

    max_tasks: int
    """What packing makes at most; the other two may ask for more."""
    min_tasks: int = 1
    """minPartitions: at least about so many, if there are as many records."""
    max_records_per_task: int | None = None
    """maxRecordsPerPartition; counted in offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """How much one batch of a stream takes; counted in offsets."""

    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    """How long fewer than `min_offsets` may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a reader was asked for."""

    client: Mapping[str, str]
    """Settings of the clients, by Kafka's dotted names."""
    subscription: Subscription
    start: OffsetSpec
    end: OffsetSpec
    rate: RateLimits
    tasks: TaskLimits
    fail_on_data_loss: bool
    include_headers: bool
    commit_group: str | None
    """The consumer group that is told how far a stream is."""
    poll_timeout_ms: int
    """How long a task waits for records that should be there."""
    fetch_offset_attempts: int
    fetch_offset_interval_ms: int


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parses a reader's options. Raises ConfigError that names the option, its value and what was expected."""
    given = OptionValues(options, _KNOWN)
    _check_kind(given, streaming=streaming)
    client = given.client_settings()
    start, end = starting_spec(given, streaming=streaming), ending_spec(given)
    check_order(start, end)
    return SourceOptions(
        client={name: value for name, value in client.items() if name != "group.id"},
        subscription=subscription(given),
        start=start,
        end=end,
        rate=_rate(given),
        tasks=_task_limits(given),
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        include_headers=given.boolean("includeHeaders", default=False),
        commit_group=_commit_group(given, client.get("group.id")),
        poll_timeout_ms=given.integer("kafkaConsumer.pollTimeoutMs", at_least=1) or DEFAULT_POLL_TIMEOUT_MS,
        fetch_offset_attempts=given.integer("fetchOffset.numRetries", at_least=1) or 3,
        fetch_offset_interval_ms=_or(given.integer("fetchOffset.retryIntervalMs", at_least=0), 1_000),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _check_kind(given: OptionValues, *, streaming: bool) -> None:
    """Refuses what would change a stream's result; a batch passes over a stream's limits, as with Spark's source."""
    if streaming:
        for name in _BATCH_ONLY:
            if name in given:
                raise ConfigError(f"{name} is for batch queries; a stream has no end")
        return
    for name in _STREAM_ONLY:
        if name in given:
            log.warning("%s has no effect in a batch query", name)


def _rate(given: OptionValues) -> RateLimits:
    most = given.integer("maxOffsetsPerTrigger", at_least=1)
    least = given.integer("minOffsetsPerTrigger", at_least=1)
    if most is not None and least is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    delay_ms = given.duration_ms("maxTriggerDelay")
    if delay_ms is not None and least is None:
        log.warning("maxTriggerDelay has no effect without minOffsetsPerTrigger")
    return RateLimits(max_offsets=most, min_offsets=least, max_delay_ms=_or(delay_ms, DEFAULT_MAX_TRIGGER_DELAY_MS))


def _task_limits(given: OptionValues) -> TaskLimits:
    most = given.integer("maxTasks", at_least=1)
    least = given.integer("minPartitions", at_least=1) or 1
    cap = given.integer("maxRecordsPerPartition", at_least=1)
    if most is not None and least > most:
        raise ConfigError(f"minPartitions={least} is more than maxTasks={most}")
    if most is not None and cap is not None:
        raise ConfigError(
            f"maxRecordsPerPartition={cap} may need more tasks than maxTasks={most} allows: set one of them"
        )
    return TaskLimits(max_tasks=most or os.cpu_count() or 1, min_tasks=least, max_records_per_task=cap)


def _commit_group(given: OptionValues, consumer_group: str | None) -> str | None:
    """kafka.group.id and groupIdPrefix name the group of Spark's consumers, which nobody sees: none is needed."""
    group = given.text("commitOffsetsToGroup")
    if group == "":
        raise ConfigError("commitOffsetsToGroup='': expected the name of a consumer group")
    if consumer_group is not None and group is not None and group != consumer_group:
        raise ConfigError(f"commitOffsetsToGroup={group!r} and kafka.group.id={consumer_group!r} name different groups")
    if group is None and (consumer_group is not None or "groupIdPrefix" in given):
        log.info("the source reads without a consumer group; commitOffsetsToGroup shows a query's progress in one")
    return group
