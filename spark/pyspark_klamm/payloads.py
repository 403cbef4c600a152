"""Parses a column of bytes into typed columns with Spark's own functions, from JSON, Avro or Protobuf.

Records written for Confluent's schema registry begin with a zero byte and the id of their schema (4 bytes), with
Protobuf also the place of the message in its file. `confluent_header=True` skips these bytes. This module calls no
registry: the caller passes a schema with which the records can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_HEADER_BYTES: Final = 5
_MODES: Final = {"json": "PERMISSIVE", "avro": "FAILFAST", "protobuf": "FAILFAST"}
"""The mode in which Spark's function handles values that it cannot read, unless `options["mode"]` is set."""
_PACKAGES: Final = {"avro": "spark-avro_2.13", "protobuf": "spark-protobuf_2.13"}


def from_klamm(
    frame: DataFrame,
    *,
    format: str = "json",
    schema: DataType | str | None = None,
    message_name: str | None = None,
    descriptor: bytes | str | None = None,
    column: str = "value",
    confluent_header: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Returns `frame` with `column` parsed, so that a struct replaces the bytes.

    `format`: `json` with `schema` as a Spark type or DDL; `avro` with `schema` as Avro's JSON; `protobuf` with
    `message_name` and `descriptor`, a descriptor set (protoc --descriptor_set_out --include_imports) or its path.
    `options` are those of Spark's from_json, from_avro or from_protobuf; with mode=PERMISSIVE, a value that cannot be
    read is null, and with FAILFAST, it fails the query. Raises ConfigError for arguments that do not fit, or a package
    that Spark lacks."""
    if format not in _MODES:
        raise ConfigError(f"format={format!r}: expected json, avro or protobuf")
    if column not in frame.columns:
        raise ConfigError(f"column={column!r} does not exist; the columns are {', '.join(frame.columns)}")
    given = dict(options or {})
    _check_schema(format, schema, message_name, descriptor)
    payload = frame[column]
    if confluent_header:
        is_strict = given.get("mode", _MODES[format]).upper() == "FAILFAST"
        payload = _without_header(payload, format == "protobuf", is_strict)

    def parsed() -> Column:
        if format == "json":
            return _from_json(payload, schema, given)
        if format == "avro":
            return _from_avro(payload, schema, given)
        return _from_protobuf(payload, message_name, descriptor, given)

    return _with_package(format, lambda: frame.withColumn(column, parsed()))


def _check_schema(format: str, schema: object, message_name: str | None, descriptor: object) -> None:
    if format == "protobuf":
        if message_name is None or descriptor is None or schema is not None:
            raise ConfigError("format='protobuf' needs message_name and descriptor, and no schema")
    elif schema is None or message_name is not None or descriptor is not None:
        raise ConfigError(f"format={format!r} needs a schema, and neither message_name nor descriptor")
    if format == "avro" and not isinstance(schema, str):
        raise ConfigError(f"format='avro' needs a schema in Avro's JSON, not {type(schema).__name__}")


def _without_header(payload: Column, has_indexes: bool, is_strict: bool) -> Column:
    """Returns the payload after the header. Without a header, it is null or an error."""
    from pyspark.sql import functions as F

    start: Column = F.lit(_HEADER_BYTES + 1)
    length = F.length(payload)
    if has_indexes:
        # The header has a list of zigzag varints: their count, then each. A single 0 stands for the file's first
        # message. A file with more than 63 messages in one scope, or as deep a nesting, is not read.
        count = F.conv(F.hex(F.substring(payload, _HEADER_BYTES + 1, 1)), 16, 10).cast("int")
        start = F.lit(_HEADER_BYTES + 2) + F.floor(count / 2)
    is_framed = (length >= _HEADER_BYTES) & (F.substring(payload, 1, 1) == F.lit(b"\0"))
    said = "a value does not begin with Confluent's header: a zero byte and the id of a schema"
    otherwise = F.raise_error(F.lit(said)).cast("binary") if is_strict else F.lit(None).cast("binary")
    framed = F.when(is_framed, F.substring(payload, start, length)).otherwise(otherwise)
    return F.when(payload.isNull(), F.lit(None).cast("binary")).otherwise(framed)


def _from_json(payload: Column, schema: Any, options: dict[str, str]) -> Column:
    from pyspark.sql import functions as F

    return F.from_json(payload.cast("string"), schema, options)


def _from_avro(payload: Column, schema: Any, options: dict[str, str]) -> Column:
    from pyspark.sql.avro.functions import from_avro

    return from_avro(payload, schema, options)


def _from_protobuf(payload: Column, message_name: Any, descriptor: Any, options: dict[str, str]) -> Column:
    from pyspark.sql.protobuf.functions import from_protobuf

    described: dict[str, Any] = (
        {"binaryDescriptorSet": descriptor} if isinstance(descriptor, bytes) else {"descFilePath": descriptor}
    )
    return from_protobuf(payload, message_name, options=options, **described)


def _with_package(format: str, call: Callable[[], DataFrame]) -> DataFrame:
    """Calls a function of Spark. Raises ConfigError if the function's jar is missing, which Spark reports when it
    resolves the column."""
    from pyspark.errors import AnalysisException
    from pyspark.version import __version__ as version

    try:
        return call()
    except (AnalysisException, TypeError) as error:
        said = str(error)
        if "_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE" not in said and "JavaPackage" not in said:
            raise
        raise ConfigError(
            f"format={format!r} needs a package that is not among Spark's jars: set spark.jars.packages to"
            f" org.apache.spark:{_PACKAGES[format]}:{version}"
        ) from error
