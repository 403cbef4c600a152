"""Tests compression: names, framings, and the refusal of data that grows beyond its bound."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable

import cramjam
import pytest
from crc32c import crc32c

from klamm.decompression_pipe import PIECE_BYTES
from klamm.errors import ErrorCode
from klamm.records import (
    HEADER_SIZE_BYTES,
    CompressionType,
    DecompressedTooLargeError,
    InvalidCompressionError,
    RawRecord,
    decode_batch,
    encode_batch,
    read_section,
    validate_records,
)
from klamm.records.compression import compress, decompress, open_decompressed

COMPRESSED = [each for each in CompressionType if each]
RECORDS: list[RawRecord] = [(n, None, b"value %d" % n, ()) for n in range(100)]


def with_section(batch: bytes, section: bytes) -> bytes:
    """Returns the batch with other bytes for its records, and a fitting checksum."""
    covered = batch[21:HEADER_SIZE_BYTES] + section
    length = struct.pack(">i", HEADER_SIZE_BYTES - 12 + len(section))
    return batch[:8] + length + batch[12:17] + struct.pack(">I", crc32c(covered)) + covered


def test_compression_types_have_kafkas_names_and_numbers() -> None:
    names = {each.config_name: each.value for each in CompressionType}
    assert names == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert all(CompressionType.from_name(name) == number for name, number in names.items())
    with pytest.raises(ValueError, match="expected one of none, gzip, snappy, lz4, zstd"):
        CompressionType.from_name("brotli")


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("size", [0, 1, 1000, 32 * 1024, 32 * 1024 + 1, 1_000_000])
def test_compressed_data_round_trips_if_max_bytes_is_its_exact_size(compression: CompressionType, size: int) -> None:
    data = bytes(range(251)) * (size // 251) + b"x" * (size % 251)
    compressed = compress(compression, data)
    assert decompress(compression, compressed, max_bytes=size) == data
    if size:
        with pytest.raises(DecompressedTooLargeError):
            decompress(compression, compressed, max_bytes=size - 1)


def joined(compression: CompressionType, compressed: bytes, *, max_bytes: int) -> bytes:
    """Returns what `open_decompressed` returns in pieces."""
    with open_decompressed(compression, compressed, max_bytes=max_bytes) as pieces:
        return b"".join(pieces)


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("size", [1, 1000, 32 * 1024 + 1, 5_000_000])
def test_data_that_are_decompressed_in_pieces_are_the_same(compression: CompressionType, size: int) -> None:
    data = random.Random(size).randbytes(min(size, 1000)) * (size // 1000 or 1)
    compressed = compress(compression, data)
    assert joined(compression, compressed, max_bytes=len(data)) == data
    with pytest.raises(DecompressedTooLargeError):
        joined(compression, compressed, max_bytes=len(data) - 1)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_pieces_need_not_be_read_to_the_end(compression: CompressionType) -> None:
    data = bytes(20_000_000)
    with open_decompressed(compression, compress(compression, data), max_bytes=len(data)) as pieces:
        first = next(pieces)
    assert 0 < len(first) <= PIECE_BYTES


@pytest.mark.parametrize("compression", COMPRESSED)
def test_data_above_one_buffer_are_collected_in_pieces(compression: CompressionType) -> None:
    data = random.Random(1).randbytes(1000) * 40_000
    compressed = compress(compression, data)
    assert decompress(compression, compressed, max_bytes=len(data)) == data
    with pytest.raises(DecompressedTooLargeError):
        decompress(compression, compressed, max_bytes=len(data) - 1)
    with pytest.raises(InvalidCompressionError, match=compression.config_name):
        decompress(compression, compressed[:-5], max_bytes=len(data))


@pytest.mark.parametrize("compression", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_the_compression_level_is_passed_to_the_codec(compression: CompressionType) -> None:
    rng = random.Random(1)
    words = [rng.randbytes(rng.randint(2, 8)) for _ in range(1000)]
    data = b" ".join(rng.choices(words, k=20_000))
    fast, small = (encode_batch([(0, None, data, ())], compression=compression, compression_level=n) for n in (1, 8))
    assert len(small) < len(fast)
    assert decode_batch(fast) == decode_batch(small)


@pytest.mark.parametrize(
    ("compression", "default"), [(CompressionType.GZIP, -1), (CompressionType.LZ4, 9), (CompressionType.ZSTD, 3)]
)
def test_the_default_level_may_be_spelled_out(compression: CompressionType, default: int) -> None:
    data = random.Random(1).randbytes(1000) * 20
    assert compress(compression, data) == compress(compression, data, default)


def test_raw_snappy_without_framing_is_read() -> None:
    plain = encode_batch(RECORDS)
    raw = bytes(cramjam.snappy.compress_raw(plain[HEADER_SIZE_BYTES:]))
    batch = with_section(encode_batch(RECORDS, compression=CompressionType.SNAPPY), raw)
    assert decode_batch(batch) == decode_batch(plain)


@pytest.mark.parametrize("compression", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "garbage after"])
@pytest.mark.parametrize("read", [decompress, joined])
def test_streams_that_do_not_decompress_are_refused(
    compression: CompressionType, damage: str, read: Callable[..., bytes]
) -> None:
    good = compress(compression, bytes(1000))
    damaged = {"empty": b"", "half": good[: len(good) // 2], "garbage": b"\x01" * 50, "garbage after": good + b"zz"}
    with pytest.raises(InvalidCompressionError, match=compression.config_name):
        read(compression, damaged[damage], max_bytes=10_000)


@pytest.mark.parametrize(
    "framed",
    [
        b"\x00",
        b"\x00\x00\x00\x05ab",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xffab",
        b"\x00\x00\x00\x02\x05\x00",
        b"\x00\x00\x00\x05\xff\xff\xff\xff\xff",
    ],
)
@pytest.mark.parametrize("read", [decompress, joined])
def test_broken_snappy_framing_is_refused(framed: bytes, read: Callable[..., bytes]) -> None:
    with pytest.raises(InvalidCompressionError, match="snappy"):
        read(CompressionType.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + framed, max_bytes=10_000)


def bomb(compression: CompressionType, size: int) -> bytes:
    return compress(compression, bytes(size))


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("read", [decode_batch, read_section, validate_records])
def test_a_decompression_bomb_is_refused_by_each_reader(compression: CompressionType, read: object) -> None:
    assert callable(read)
    batch = encode_batch([(0, None, bytes(20_000_000), ())], compression=compression)
    assert len(batch) < 1_000_000
    with pytest.raises(DecompressedTooLargeError) as refused:
        read(batch, max_decompressed_bytes=1_000_000)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    read(batch, max_decompressed_bytes=20_000_100)


def test_the_sizes_of_many_gzip_members_are_added_for_the_bound() -> None:
    member = gzip.compress(bytes(100_000))
    with pytest.raises(DecompressedTooLargeError):
        decompress(CompressionType.GZIP, member * 20, max_bytes=1_000_000)


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x04"])
def test_a_snappy_block_that_announces_a_large_size_is_refused(claim: bytes) -> None:
    with pytest.raises(DecompressedTooLargeError):
        decompress(CompressionType.SNAPPY, claim + b"ab", max_bytes=1 << 20)
    with pytest.raises(InvalidCompressionError, match="announces"):
        joined(CompressionType.SNAPPY, claim + b"ab", max_bytes=1 << 20)
