"""Lets the broker read all batches in pieces, as if they were too large to be read at once."""

from __future__ import annotations

import pytest

from klamm import decompression_pipe
from klamm.records import compression, pieces
from klamm_broker.log.cleaning import log_cleaning
from klamm_broker.log.segment import record_set, time_search


def read_in_pieces(patch: pytest.MonkeyPatch, *, long_record_bytes: int = pieces.LONG_RECORD_BYTES) -> None:
    """Makes the limits of this process so small that each batch is above them."""
    for module in (log_cleaning, record_set, time_search):
        patch.setattr(module, "WHOLE_BYTES_MAX", 0)
    patch.setattr(pieces, "LONG_RECORD_BYTES", long_record_bytes)
    patch.setattr(pieces, "_GROWTH_BYTES_MIN", 10)
    for module in (compression, decompression_pipe):
        patch.setattr(module, "PIECE_BYTES", 30)
