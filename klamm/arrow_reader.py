"""Reads a part of a topic as Arrow columns, once and without a consumer group: `klamm.read_arrow`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Unpack

from klamm.arrow.extra import require_packages
from klamm.cluster.client import KlammClient
from klamm.consumer.async_consumer import AsyncConsumer
from klamm.consumer.fetch.column_request import ColumnRequest, column_request
from klamm.consumer.sync_consumer import Consumer
from klamm.errors import ConfigError, UnknownTopicOrPartitionError, raise_for
from klamm.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.consumer.setting_types import ConsumerSettings

Bound = Literal["earliest", "latest"] | int | datetime.datetime | Mapping[int, int]
"""Where reading begins or ends."""

_DEFAULTS: Final = {
    "allow.auto.create.topics": False,
    "auto.offset.reset": "none",
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
}
"""The settings that differ from those of a Consumer. A missing topic is not made, and lost records are an error."""
_TOPIC_WAIT_MS: Final = 5_000
"""A topic that stays unknown for this long does not exist. The time lets brokers learn about a new topic."""
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def read_arrow(
    topic: str,
    config: Mapping[str, Any] | None = None,
    /,
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Iterable[str] | None = None,
    **settings: Unpack[ConsumerSettings[bytes, bytes]],
) -> pa.RecordBatchReader:
    """Returns the records of a topic as a pyarrow.RecordBatchReader, which pandas, Polars and DuckDB read. It ends.

    start, end: "earliest", "latest", an offset for all partitions, or a datetime with a time zone; or offsets by
    partition number, where a partition that is not named is read from its beginning or to its end. `end` is not part of
    the result. A datetime stands for the first record at that time or later. "latest" is the end at the time of the
    call. Offsets outside the log are moved to its beginning or end.

    columns: those wanted of topic, partition, offset, timestamp, timestamp_type, key, value, headers and leader_epoch.
    By default all of them.

    `config` and keyword arguments are the settings of a Consumer, such as bootstrap_servers, security settings and
    isolation_level. A group.id is refused. Fetches of all partitions run at the same time. The rows of a partition are
    in the order of their offsets.

    Raises UnknownTopicOrPartitionError, ConfigError, the errors of `Consumer.poll_arrow`, and ImportError without
    pyarrow (`pip install 'klamm[arrow]'`). The reader raises OffsetOutOfRangeError if records are deleted before it has
    read them, and TimeoutError if a partition sends nothing for default.api.timeout.ms."""
    require_packages("read_arrow")
    import pyarrow as pa

    from klamm.arrow.schema import checked_columns, schema_of

    names = checked_columns(columns)
    given = {name.replace("_", ".") for name in (*(config or {}), *settings)}
    if "group.id" in given:
        raise ConfigError("read_arrow: group.id has no use here; it reads without a group, from start to end")
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in given}
    consumer: Consumer[Any, Any] = Consumer({**(config or {}), **defaults}, **settings)
    batches = _batches(consumer, topic, start, end, names)
    next(batches)  # So that errors of the arguments are raised here, and the consumer is closed in any case.
    return pa.RecordBatchReader.from_batches(schema_of(names), batches)


class _Span(NamedTuple):
    start: int
    end: int


def _batches(
    consumer: Consumer[Any, Any], topic: str, start: Bound, end: Bound, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch | None]:
    """Yields None when all is checked, and then the rows. Closes the consumer at the end."""
    with consumer:
        config = consumer._core.config
        spans = _spans(consumer, topic, start, end)
        ends = {tp: span.end for tp, span in spans.items() if span.start < span.end}
        request = column_request(config, columns, None, ends)
        consumer.assign(ends)
        consumer._call(lambda: _begin(consumer._async, {tp: spans[tp] for tp in ends}))
        yield None
        yield from _rows(consumer, request, config.default_api_timeout_ms)


def _begin(consumer: AsyncConsumer[Any, Any], spans: Mapping[TopicPartition, _Span]) -> None:
    """Moves to the beginning of all partitions in one turn of the loop. Otherwise the consumer would cancel the fetch
    of the first ones, and send another for all of them."""
    for tp, span in spans.items():
        consumer.core.subscription.require(tp).end_offset = span.end
        consumer.seek(tp, span.start)


def _rows(consumer: Consumer[Any, Any], request: ColumnRequest, timeout_ms: int) -> Iterator[pa.RecordBatch]:
    core = consumer._core
    unread = dict(request.end_offsets)

    def reached() -> list[TopicPartition]:
        return [tp for tp, end in unread.items() if core.subscription.require(tp).position >= end]

    def read() -> tuple[pa.RecordBatch | None, list[TopicPartition]] | None:
        rows = core.read_columns(request)
        done = reached()
        return (rows, done) if rows is not None or done else None

    while unread:
        before = [core.subscription.require(tp).position for tp in unread]
        found = consumer._first_with_access(read, timeout_ms)
        if found is None:
            if before == [core.subscription.require(tp).position for tp in unread]:
                waiting = ", ".join(map(str, sorted(unread)))
                raise TimeoutError(f"{waiting} sent no records for default.api.timeout.ms={timeout_ms}")
            continue
        rows, done = found
        for tp in done:
            del unread[tp]
        if rows is not None:
            yield rows


def _spans(consumer: Consumer[Any, Any], topic: str, start: Bound, end: Bound) -> dict[TopicPartition, _Span]:
    count = consumer._run(_partition_count, consumer._core.client, topic)
    partitions = [TopicPartition(topic, number) for number in range(count)]
    first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)

    def resolved(name: str, bound: Bound, default: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        match bound:
            case "earliest":
                return first
            case "latest":
                return last
            case datetime.datetime():
                found = consumer.offsets_for_times(dict.fromkeys(partitions, _milliseconds(name, bound)))
                return {tp: last[tp] if (at := found[tp]) is None else at.offset for tp in partitions}
            case Mapping():
                return {**default, **_by_partition(name, bound, partitions)}
        return dict.fromkeys(partitions, _offset(name, bound))

    starts, ends = resolved("start", start, first), resolved("end", end, last)
    return {tp: _Span(max(starts[tp], first[tp]), min(ends[tp], last[tp])) for tp in partitions}


async def _partition_count(client: KlammClient, topic: str) -> int:
    """Returns the number of the topic's partitions. Raises UnknownTopicOrPartitionError if it stays unknown."""

    async def look_up() -> int:
        view = await client.refresh_metadata([topic])
        raise_for(view.topic_errors.get(topic, 0), f"topic {topic!r}")
        count = view.partition_count(topic)
        if count is None:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
        return count

    return await client.retrying(look_up, timeout_ms=_TOPIC_WAIT_MS)


def _by_partition(name: str, bound: Mapping[int, int], partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    by_number = {tp.partition: tp for tp in partitions}
    if unknown := [number for number in bound if number not in by_number]:
        raise ConfigError(f"{name} names partition {unknown[0]!r}, but the topic has only 0 to {len(partitions) - 1}")
    return {by_number[number]: _offset(name, offset) for number, offset in bound.items()}


def _offset(name: str, bound: object) -> int:
    if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
        raise ConfigError(
            f'{name}={bound!r}: expected "earliest", "latest", an offset of 0 or more, a datetime, or offsets by'
            " partition"
        )
    return bound


def _milliseconds(name: str, time: datetime.datetime) -> int:
    """Returns a time in milliseconds since the epoch, rounded up, because it stands for the first record after it."""
    if time.tzinfo is None:
        raise ConfigError(f"{name}={time}: expected a datetime with a time zone, such as tzinfo=datetime.UTC")
    return max(0, -((_EPOCH - time) // _MILLISECOND))
