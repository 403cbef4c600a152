"""The five compression types of the record format, with a limit on the decompressed size.

    number  name    what Kafka's Java clients write
         0  none
         1  gzip    one gzip member
         2  snappy  xerial framing: 16 byte header, then blocks of 32 KiB, each behind its int32 size
         3  lz4     LZ4 frame, independent blocks (KIP-57; Kafka refuses linked ones)
         4  zstd    one zstd frame (KIP-110)

Raw snappy without framing is read too, since librdkafka writes it. A few hundred bytes can claim to become
gigabytes. This module allocates the output buffer itself, and never makes it larger than the caller's bound. Larger
output raises DecompressedTooLargeError. `open_decompressed` returns pieces instead of the whole output. Levels and
their defaults are those of KIP-390."""

from __future__ import annotations

import contextlib
import enum
import io
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import cramjam

from klamm.decompression_pipe import PIECE_BYTES, BrokenInputError, DecompressionPipe
from klamm.records.errors import DecompressedTooLargeError, InvalidCompressionError

Buffer = bytes | bytearray | memoryview


class CompressionType(enum.IntEnum):
    """A compression type. Its number is that of the batch attributes, and its lower-case name that of
    `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The name in a configuration: `none`, `gzip`, `snappy`, `lz4` or `zstd`."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """Returns the type with that name in a configuration. Raises ValueError, which lists the valid names."""
        for member in cls:
            if member.config_name == name:
                return member
        known = ", ".join(member.config_name for member in cls)
        raise ValueError(f"compression.type {name!r} is unknown; expected one of {known}")


_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")

_DEFAULT_LEVELS: Final = {CompressionType.GZIP: -1, CompressionType.LZ4: 9, CompressionType.ZSTD: 3}
"""The level that each setting has by default."""
_MEANT_LEVELS: Final = {CompressionType.GZIP: 6, CompressionType.LZ4: 0, CompressionType.ZSTD: 3}
"""The level that the default stands for. In zlib, -1 stands for 6. Kafka's lz4 is the fast one at its default level
only (`Lz4BlockOutputStream`)."""

_FIRST_GUESS_BYTES: Final = 64 * 1024
_GUESSED_RATIO: Final = 8
_ONE_BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
"""The largest output buffer whose size is guessed. A larger output is collected in pieces, so that a guess that is too
large wastes no gigabytes."""
_SNAPPY_RATIO_MAX: Final = 64
"""No snappy block becomes more than 22 times as large. A block that announces more is broken."""
_OUTPUT_FULL: Final = "failed to write whole buffer"
"""cramjam's message if the output buffer is too small. Every other message means broken input."""

_DECOMPRESS_INTO: Final[dict[CompressionType, Callable[[Any, Any], int]]] = {
    CompressionType.GZIP: cramjam.gzip.decompress_into,
    CompressionType.LZ4: cramjam.lz4.decompress_into,
    CompressionType.ZSTD: cramjam.zstd.decompress_into,
}


def compress(compression: CompressionType, data: bytes, level: int | None = None) -> bytes:
    """Returns the compressed data. `level` None means Kafka's default; snappy has no levels."""
    if level is None or level == _DEFAULT_LEVELS.get(compression):
        level = meant_level(compression)
    match compression:
        case CompressionType.NONE:
            return data
        case CompressionType.GZIP:
            return bytes(cramjam.gzip.compress(data, level=level))
        case CompressionType.SNAPPY:
            return XERIAL_HEADER + compress_xerial_blocks(data)
        case CompressionType.LZ4:
            return _compress_lz4(data, level)
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(compression: CompressionType, data: Buffer, *, max_bytes: int) -> bytes:
    """Returns the decompressed data.

    Raises InvalidCompressionError. Raises DecompressedTooLargeError if the result is larger than `max_bytes`, also for
    `none`. Allocates at most twice `max_bytes`."""
    match compression:
        case CompressionType.NONE:
            if len(data) > max_bytes:
                raise _too_large(compression, max_bytes)
            return bytes(data)
        case CompressionType.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        case CompressionType.GZIP | CompressionType.LZ4 | CompressionType.ZSTD:
            return _decompress_stream(compression, data, max_bytes)


@contextlib.contextmanager
def open_decompressed(compression: CompressionType, data: Buffer, *, max_bytes: int) -> Iterator[Iterator[bytes]]:
    """Returns a context with the decompressed data in pieces. A piece has at most `PIECE_BYTES`, or is one block of
    snappy. The memory in use is that of some pieces.

    The iterator raises the exceptions of `decompress` when it comes to the damage."""
    match compression:
        case CompressionType.NONE:
            view = memoryview(data)
            pieces = (bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES))
            yield _bounded(compression, pieces, max_bytes)
        case CompressionType.SNAPPY:
            yield _bounded(compression, _snappy_pieces(memoryview(data)), max_bytes)
        case CompressionType.GZIP | CompressionType.LZ4 | CompressionType.ZSTD:
            pipe = DecompressionPipe(_DECOMPRESS_INTO[compression], memoryview(data))
            with contextlib.closing(pipe):
                yield _bounded(compression, _piped(compression, pipe), max_bytes)


def _compress_lz4(data: bytes, level: int | None) -> bytes:
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def meant_level(compression: CompressionType) -> int | None:
    """Returns the level for which the default stands, or None if the type has no levels."""
    return _MEANT_LEVELS.get(compression)


def compress_xerial_blocks(data: bytes) -> bytes:
    """Returns the data as blocks of snappy, without the header of the framing."""
    view = memoryview(data)
    pieces: list[bytes] = []
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        pieces += _INT32.pack(len(block)), block
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    """Decompresses snappy blocks. Blocks state their sizes, so the sum is checked first and the output allocated
    once."""
    try:
        size = sum(cramjam.snappy.decompress_raw_len(block) for block in _snappy_blocks(data))
        if size > max_bytes:
            raise _too_large(CompressionType.SNAPPY, max_bytes)
        output = memoryview(bytearray(size))
        position = 0
        for block in _snappy_blocks(data):
            position += cramjam.snappy.decompress_raw_into(block, output[position:])
    except cramjam.DecompressionError as error:
        raise InvalidCompressionError(f"snappy: {error}") from None
    return bytes(output[:position])


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield data
        return
    position = len(XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise InvalidCompressionError(f"snappy: a block size is cut off at byte {position} of {len(data)}")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < size <= len(data) - position:
            raise InvalidCompressionError(
                f"snappy: block of {size} bytes at byte {position}; {len(data) - position} are left"
            )
        yield data[position : position + size]
        position += size


def _decompress_stream(compression: CompressionType, data: Buffer, max_bytes: int) -> bytes:
    """Decompresses a stream. Streams do not reliably state their size, so it guesses the size and increases the guess
    up to the limit."""
    decompress_into = _DECOMPRESS_INTO[compression]
    capacity = min(max_bytes, max(_FIRST_GUESS_BYTES, _GUESSED_RATIO * len(data)))
    while capacity <= _ONE_BUFFER_BYTES_MAX:
        output = bytearray(capacity)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise InvalidCompressionError(f"{compression.config_name}: {error}") from None
        else:
            return bytes(memoryview(output)[:size])
        if capacity >= max_bytes:
            raise _too_large(compression, max_bytes)
        capacity = min(max_bytes, capacity * _GUESSED_RATIO)
    return _collected(compression, data, max_bytes)


def _collected(compression: CompressionType, data: Buffer, max_bytes: int) -> bytes:
    whole = io.BytesIO()
    with open_decompressed(compression, data, max_bytes=max_bytes) as pieces:
        for piece in pieces:
            whole.write(piece)
    # Unlike bytes(), this copies nothing.
    return whole.getvalue()


def _piped(compression: CompressionType, pipe: DecompressionPipe) -> Iterator[bytes]:
    try:
        while piece := pipe.read():
            yield piece
    except BrokenInputError as error:
        raise InvalidCompressionError(f"{compression.config_name}: {error}") from None


def _snappy_pieces(data: memoryview) -> Iterator[bytes]:
    try:
        for block in _snappy_blocks(data):
            size = cramjam.snappy.decompress_raw_len(block)
            if size > _SNAPPY_RATIO_MAX * len(block):
                raise InvalidCompressionError(f"snappy: a block of {len(block)} bytes announces {size} bytes")
            output = bytearray(size)
            yield bytes(memoryview(output)[: cramjam.snappy.decompress_raw_into(block, output)])
    except cramjam.DecompressionError as error:
        raise InvalidCompressionError(f"snappy: {error}") from None


def _bounded(compression: CompressionType, pieces: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yields the pieces. Raises DecompressedTooLargeError when they exceed `max_bytes`."""
    size_bytes = 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            raise _too_large(compression, max_bytes)
        yield piece


def _too_large(compression: CompressionType, max_bytes: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(
        f"the {compression.config_name} records exceed {max_bytes} bytes when decompressed"
    )
