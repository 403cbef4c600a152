"""Compresses records that come in pieces, so that only the compressed records are in memory."""

from __future__ import annotations

from typing import Any, Protocol

import cramjam

from klamm.records.compression import (
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    CompressionType,
    compress_xerial_blocks,
    meant_level,
)


class _Codec(Protocol):
    def add(self, data: bytes) -> bytes:
        """Returns the next part of the output. It may be empty."""

    def finish(self) -> bytes:
        """Returns the last part of the output."""


class PieceCompressor:
    """Compresses with the default level of a compression type. The caller writes the pieces, then calls `finish`."""

    def __init__(self, compression: CompressionType) -> None:
        self._codec = _codec(compression)
        self._parts: list[bytes] = []
        self.size_bytes = 0
        """The size of the output so far. The last bytes that were written may not be in it."""

    def write(self, piece: bytes) -> None:
        """Adds a piece of the input."""
        self._add(self._codec.add(piece))

    def finish(self) -> bytes:
        """Returns the whole output."""
        self._add(self._codec.finish())
        return b"".join(self._parts)

    def _add(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self.size_bytes += len(part)


def _codec(compression: CompressionType) -> _Codec:
    level = meant_level(compression)
    match compression:
        case CompressionType.NONE:
            return _Plain()
        case CompressionType.GZIP:
            return _Stream(cramjam.gzip.Compressor(level=level))
        case CompressionType.SNAPPY:
            return _Snappy()
        case CompressionType.LZ4:
            return _Stream(cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False))
        case CompressionType.ZSTD:
            return _Stream(cramjam.zstd.Compressor(level=level))


class _Plain:
    def add(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class _Stream:
    """A compressor of cramjam. It holds its output, so each megabyte of input flushes it."""

    _FLUSH_BYTES = 1024 * 1024

    def __init__(self, compressor: Any) -> None:
        self._compressor = compressor
        self._unflushed_bytes = 0

    def add(self, data: bytes) -> bytes:
        self._compressor.compress(data)
        self._unflushed_bytes += len(data)
        if self._unflushed_bytes < self._FLUSH_BYTES:
            return b""
        self._unflushed_bytes = 0
        return bytes(self._compressor.flush())

    def finish(self) -> bytes:
        return bytes(self._compressor.finish())


class _Snappy:
    def __init__(self) -> None:
        self._header = XERIAL_HEADER
        self._rest = b""

    def add(self, data: bytes) -> bytes:
        self._rest += data
        whole = len(self._rest) // XERIAL_BLOCK_BYTES * XERIAL_BLOCK_BYTES
        blocks, self._rest = self._rest[:whole], self._rest[whole:]
        return self._compressed(blocks)

    def finish(self) -> bytes:
        return self._compressed(self._rest)

    def _compressed(self, blocks: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + compress_xerial_blocks(blocks)
