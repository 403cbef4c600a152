"""The arguments of one `poll_arrow`, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.arrow.extra import require_packages
from klamm.consumer.config import ConsumerConfig
from klamm.errors import ConfigError, IllegalStateError
from klamm.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRequest:
    """What a poll for columns returns."""

    columns: tuple[str, ...]
    max_records: int
    end_offsets: Mapping[TopicPartition, int]
    """The offsets at which to stop, for partitions that are not read to their end."""


def column_request(
    config: ConsumerConfig,
    columns: Iterable[str] | None,
    max_records: int | None,
    end_offsets: Mapping[TopicPartition, int] | None = None,
) -> ColumnRequest:
    """Returns the checked request. Raises ConfigError, ImportError without pyarrow, and IllegalStateError if
    deserializers or interceptors would not see the records."""
    require_packages("poll_arrow")
    from klamm.arrow.schema import checked_columns

    for name, setting in (
        ("key.deserializer", config.key_deserializer),
        ("value.deserializer", config.value_deserializer),
        ("interceptor.classes", config.interceptor_classes or None),
    ):
        if setting is not None:
            raise IllegalStateError(f"poll_arrow: {name} would not see these records; use a consumer without it")
    if max_records is not None and max_records < 1:
        raise ConfigError(f"max_records={max_records}: expected at least 1")
    return ColumnRequest(
        columns=checked_columns(columns),
        max_records=NO_LIMIT if max_records is None else max_records,
        end_offsets=end_offsets or {},
    )


def empty_batch(request: ColumnRequest) -> pa.RecordBatch:
    """Returns a batch without rows that has the columns of the request."""
    import pyarrow as pa

    from klamm.arrow.schema import schema_of

    schema = schema_of(request.columns)
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
