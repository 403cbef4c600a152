"""What `from_klamm` refuses before Spark is asked."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from pyspark_klamm.from_klamm import from_klamm


class Frame:
    """As much of a DataFrame as is looked at before anything is refused."""

    columns = ("key", "value")

    def __getitem__(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"format": "xml"}, "format='xml': expected json, avro or protobuf"),
        ({"column": "payload", "schema": "a INT"}, "column='payload': the frame has key, value"),
        ({}, "format='json' takes a schema"),
        ({"schema": "a INT", "message_name": "A"}, "neither message_name nor descriptor"),
        ({"format": "avro", "schema": 5}, "format='avro' takes the schema as Avro's JSON, not int"),
        ({"format": "protobuf", "message_name": "A"}, "takes message_name and descriptor, and no schema"),
        ({"format": "protobuf", "message_name": "A", "descriptor": b"", "schema": "a INT"}, "and no schema"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments, named):
    with pytest.raises(ConfigError, match=named):
        from_klamm(Frame(), **arguments)
