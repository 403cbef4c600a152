"""Tests compression of pieces: it must give what compression at once gives, for every reader."""

from __future__ import annotations

import random

import pytest

from klamm.records import CompressionType
from klamm.records.compression import compress, decompress
from klamm.records.piece_compressor import PieceCompressor


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("count", [0, 1, 5, 400])
def test_pieces_become_the_data_again(compression: CompressionType, count: int) -> None:
    rng = random.Random(count)
    pieces = [rng.randbytes(100) * rng.choice([0, 1, 200, 1_000]) for _ in range(count)]
    compressor = PieceCompressor(compression)
    for piece in pieces:
        compressor.write(piece)
    found = compressor.finish()
    data = b"".join(pieces)
    assert decompress(compression, found, max_bytes=len(data)) == data
    assert len(found) == compressor.size_bytes
    assert len(found) <= 1.1 * len(compress(compression, data)) + 100


@pytest.mark.parametrize("compression", CompressionType)
def test_the_size_is_known_before_the_end(compression: CompressionType) -> None:
    compressor = PieceCompressor(compression)
    for number in range(8):
        compressor.write(random.Random(number).randbytes(500_000))
    assert compressor.size_bytes >= 3_000_000
