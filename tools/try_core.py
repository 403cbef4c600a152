"""Encodes and decodes a batch with the compiled core of an installed wheel.

Run: KLAMM_CORE=compiled python tools/try_core.py. cibuildwheel runs it with each wheel. It needs no broker, because
some platforms have none."""

from __future__ import annotations

import klamm
from klamm.core import core
from klamm.records import RawRecord, encode_batch, read_section

RECORDS: list[RawRecord] = [
    (1_700_000_000_000, b"key", b"value" * 50, (("name", b"content"), ("empty", None))),
    (1_700_000_000_007, None, None, ()),
]


def main() -> None:
    """Raises AssertionError if the core is missing, or if a batch does not stay the same."""
    assert core is not None, "klamm has no compiled core: set KLAMM_CORE=compiled for the reason"
    batch = core.OpenBatch()
    for record in RECORDS:
        batch.append(record)
    batch.close()
    encoded = bytes(encode_batch(batch))
    assert encoded == encode_batch(RECORDS), "both encoders write other bytes"
    rows = core.decode_rows(read_section(encoded), "topic", 0, 0, 0)
    assert [(row.timestamp, row.key, row.value, row.headers) for row in rows] == RECORDS, rows
    assert issubclass(klamm.Producer, core.SendPath), klamm.Producer.__mro__
    print(f"{core.__file__} encodes and decodes")


if __name__ == "__main__":
    main()
