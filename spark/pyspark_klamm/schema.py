"""The columns of a source and a sink: those of Spark's Kafka connector, and their Arrow types.

A user may ask for only some of the source's columns, `.schema("value BINARY, offset LONG")`. Spark cannot prune the
columns of a Python source, so the schema is the only way to leave columns out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def source_schema(*, include_headers: bool) -> str:
    """Returns the whole schema of a source, as DDL."""
    columns = [name for name in _COLUMNS if include_headers or name != "headers"]
    return ", ".join(f"{name} {_COLUMNS[name]}" for name in columns)


def checked_columns(schema: StructType) -> tuple[str, ...]:
    """Returns the columns of the schema, in order. Raises ConfigError for a column that a source does not have, or of
    another type."""
    for field in schema.fields:
        expected = _COLUMNS.get(field.name)
        if expected is None:
            raise ConfigError(f"a klamm source has no column {field.name!r}; the columns are {', '.join(_COLUMNS)}")
        if field.dataType.simpleString() != expected:
            raise ConfigError(f"column {field.name} is {expected}, not {field.dataType.simpleString()}")
    return tuple(field.name for field in schema.fields)


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Returns the exact schema that Spark expects of record batches with these columns."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])
