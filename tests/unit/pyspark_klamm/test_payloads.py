"""Tests the calls that `from_klamm` refuses before Spark is called."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from pyspark_klamm import from_klamm


class Frame:
    """The part of a DataFrame that the refusals look at."""

    columns = ("key", "value")

    def __getitem__(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"format": "xml"}, "format='xml': expected json, avro or protobuf"),
        ({"column": "payload", "schema": "a INT"}, "column='payload' does not exist; the columns are key, value"),
        ({}, "format='json' needs a schema"),
        ({"schema": "a INT", "message_name": "A"}, "neither message_name nor descriptor"),
        ({"format": "avro", "schema": 5}, "format='avro' needs a schema in Avro's JSON, not int"),
        ({"format": "protobuf", "message_name": "A"}, "needs message_name and descriptor, and no schema"),
        ({"format": "protobuf", "message_name": "A", "descriptor": b"", "schema": "a INT"}, "and no schema"),
    ],
)
def test_invalid_arguments_of_from_klamm_are_named(arguments, named):
    with pytest.raises(ConfigError, match=named):
        from_klamm(Frame(), **arguments)
