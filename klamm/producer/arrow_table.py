"""The data of one `send_arrow`: checked, cut into portions, and packed into record batches.

It is imported only by `send_arrow`, because it needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from klamm.arrow.key_partitions import place_by_key
from klamm.arrow.record_packing import NO_PARTITION, Int64s, PackedBatch, Rows, pack
from klamm.arrow.sent_columns import bytes_of, headers_of, measurable, merged, partitions_of, portions
from klamm.errors import SerializationError
from klamm.partitioner import PartitionInfo
from klamm.process import PROCESS
from klamm.producer.config import ProducerConfig
from klamm.producer.user_partitioner import UserPartitioner
from klamm.records.header import NO_TIMESTAMP

_IGNORED: Final = ("topic", "offset", "timestamp_type", "leader_epoch")
"""The columns of `poll_arrow` that a record gets when it is written."""
_PANDAS_INDEX: Final = "__index_level_"
"""How the names of columns begin that pandas makes of an index without a name."""


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
        or _is_text(kind)
        or types.is_null(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind) or pa.types.is_null(kind))


def _are_headers(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return fields.keys() == {"key", "value"} and _is_text(fields["key"]) and _is_bytes(fields["value"])


_COLUMNS: Final[dict[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "key": (_is_bytes, "binary or string"),
    "value": (_is_bytes, "binary or string"),
    "partition": (_is_integer, "an integer"),
    "timestamp": (_is_time, "timestamp, or int64 in milliseconds"),
    "headers": (_are_headers, "list<struct<key: string, value: binary>>"),
}


class ArrowTable:
    """The rows of one `send_arrow`. Raises SerializationError if the columns are not those of records."""

    def __init__(self, config: ProducerConfig, topic: str, data: Any, partition: int | None) -> None:
        reader = _reader_of(data)
        self._topic = topic
        self._partition = partition
        self._names = _checked_names(reader.schema, partition)
        self._batches = reader
        spreads_all = config.partitioner_class in ("round_robin", "random") or config.partitioner_ignore_keys
        self._goes_by_key = not spreads_all
        # A batch may be twice as large.
        self._batch_bytes = max(1, min(config.batch_size, config.max_request_size // 2))

    def portions(self, portion_bytes: int) -> Iterator[Rows]:
        """Yields the rows in portions that are encoded together. Rows without a partition have NO_PARTITION. Raises
        SerializationError for a value that no record can have."""
        names = self._names
        used = (
            pa.RecordBatch.from_arrays([measurable(batch.column(name)) for name in names], names)
            for batch in self._batches
        )
        for batch in merged(used, portion_bytes):
            for portion in portions(batch, portion_bytes):
                yield self._rows(portion)

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        count = batch.num_rows
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        try:
            return Rows(
                topics=(self._topic,),
                topic_numbers=np.zeros(count, np.int64),
                partitions=(
                    partitions_of(columns["partition"])
                    if "partition" in columns
                    else np.full(count, NO_PARTITION if self._partition is None else self._partition, np.int64)
                ),
                keys=bytes_of(columns["key"]) if "key" in columns else pa.nulls(count, pa.binary()),
                values=bytes_of(columns["value"]),
                headers=headers_of(columns["headers"]) if "headers" in columns else None,
                timestamps_ms=_timestamps_ms(columns.get("timestamp"), count),
            )
        except (ValueError, pa.ArrowException) as error:
            raise SerializationError(f"send_arrow to topic {self._topic!r}: {error}") from error

    def pack(
        self, rows: Rows, partition_count: int, partitioner: UserPartitioner | None, infos: Sequence[PartitionInfo]
    ) -> list[PackedBatch]:
        """Returns batches of the rows. Each row without a partition gets the choice of the user's partitioner, or that
        of its key. Batches of the others have no partition."""
        if partitioner is not None:
            for row in np.flatnonzero(rows.partitions == NO_PARTITION).tolist():
                chosen = partitioner.choose(self._topic, rows.keys[row].as_py(), rows.values[row].as_py(), infos)
                rows.partitions[row] = NO_PARTITION if chosen is None else chosen
        if self._goes_by_key and rows.keys.null_count < len(rows.keys):
            place_by_key(rows.partitions, rows.keys, partition_count)
        return list(pack(rows, self._batch_bytes))


def _reader_of(data: Any) -> Any:
    """Returns the data as a RecordBatchReader. Raises TypeError."""
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise TypeError(
        f"send_arrow: data is {type(data).__name__}; expected an Arrow table, for example of pyarrow, pandas, Polars or"
        " DuckDB"
    )


def _checked_names(schema: pa.Schema, partition: int | None) -> list[str]:
    """Returns the columns to use. Raises SerializationError."""
    names = []
    for field in schema:
        if field.name in _IGNORED or field.name.startswith(_PANDAS_INDEX):
            continue
        if field.name == "partition" and partition is not None:
            continue
        if field.name not in _COLUMNS:
            raise SerializationError(
                f"send_arrow: a record has no column {field.name!r} (of the type {field.type}); expected"
                f" {', '.join(_COLUMNS)}"
            )
        is_right, expected = _COLUMNS[field.name]
        if not is_right(field.type):
            raise SerializationError(
                f"send_arrow: column {field.name!r} has the type {field.type}; expected {expected}"
            )
        if field.name in names:
            raise SerializationError(f"send_arrow: the data has two columns {field.name!r}; expected one")
        names.append(field.name)
    if "value" not in names:
        raise SerializationError(
            f"send_arrow: the data has no column 'value', of the type binary or string; its columns are"
            f" {', '.join(schema.names) or 'none'}"
        )
    return names


def _timestamps_ms(column: pa.Array | None, count: int) -> Int64s:
    """Returns the timestamps in milliseconds, with now for a null. Raises ValueError for one before 1970.

    -1 is accepted: `poll_arrow` returns it for a record without a timestamp, and a copy should have none, too."""
    now_ms = PROCESS.get().wall_ms()
    if column is None:
        return np.full(count, now_ms, np.int64)
    if pa.types.is_timestamp(column.type):
        options = pc.CastOptions(pa.timestamp("ms", tz=column.type.tz), allow_time_truncate=True)
        column = column.cast(options=options)
    numbers = column.cast(pa.int64()).fill_null(now_ms)
    timestamps_ms = np.array(numbers.to_numpy(zero_copy_only=False), np.int64)
    earliest_ms = int(timestamps_ms.min(initial=0))
    if earliest_ms < NO_TIMESTAMP:
        raise ValueError(f"a row has the timestamp {earliest_ms} ms; expected 1970 or later, or null")
    return timestamps_ms
