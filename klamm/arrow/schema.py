"""The columns of records as Arrow types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from klamm.errors import ConfigError

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TYPES: Final = {
    "topic": pa.dictionary(pa.int32(), pa.string()),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestamp_type": pa.int8(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "leader_epoch": pa.int32(),
}
"""The type of each column of a record, in the order of ConsumerRecord's fields but for key, value and headers."""


def checked_columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the names of the wanted columns, which are all columns for None. Raises ConfigError for another name or a
    name that is given twice."""
    if columns is None:
        return tuple(TYPES)
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}: expected a list of names, such as [{columns!r}]")
    names = tuple(columns)
    for name in names:
        if name not in TYPES:
            raise ConfigError(f"columns: a record has no column {name!r}; its columns are {', '.join(TYPES)}")
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"columns={list(names)}: expected at least one name, and each name once")
    return names


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Returns the schema of record batches with these columns."""
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])
