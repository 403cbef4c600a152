"""Tests how the data of `send_arrow` is cut into portions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from klamm.producer.arrow_table import ArrowTable
from klamm.producer.config import ProducerConfig

CONFIG = ProducerConfig.parse({"bootstrap.servers": "localhost:9094"})
TEXTS = ["x" * 100 + str(number) for number in range(10_000)]


def portion_sizes(data: object, portion_bytes: int) -> list[int]:
    table = ArrowTable(CONFIG, "t", data, None)
    portions = list(table.portions(portion_bytes))
    values = [value for rows in portions for value in rows.values.to_pylist()]
    assert values == [text.encode() for text in TEXTS]
    return [len(rows.partitions) for rows in portions]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array([text.encode() for text in TEXTS], pa.binary_view()),
        pa.chunked_array([[text] for text in TEXTS]),
    ],
    ids=["string", "large_string", "string_view", "dictionary", "binary_view", "many chunks"],
)
def test_portions_are_of_the_wanted_size_for_every_kind_of_array(values: pa.Array) -> None:
    """Slices of a view count the bytes of the whole array. They must not be halved down to single rows."""
    sizes = portion_sizes(pa.table({"value": values}), 100_000)
    assert 8 <= len(sizes) <= 12
    assert 700 <= min(sizes) <= max(sizes) <= 1_250


def test_portions_of_rows_of_uneven_size_are_bounded() -> None:
    values = [b"x"] * 10_000 + [bytes(200_000)] * 20
    table = ArrowTable(CONFIG, "t", pa.table({"value": values}), None)
    sizes = [sum(map(len, rows.values.to_pylist())) for rows in table.portions(100_000)]
    assert sum(sizes) == 10_000 + 20 * 200_000
    assert max(sizes) <= 400_000
