"""Encodes an image as batches, which a new watcher receives, and as bytes, which are stored as a snapshot.

The bytes are the batches one after the other, each after its length (4 bytes, big-endian). The store and the messages
to other controllers may cut these bytes anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice

from google.protobuf.message import DecodeError

from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_controller.log.entry_codec import CorruptLogError
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.image_records import snapshot_records
from klamm_server.metadata.replay import ImageBuilder

RECORDS_PER_BATCH = 500
"""The number of records in a batch. Such a batch has about 20 KiB and takes two milliseconds to build, so it does not
block the event loop."""

_LENGTH = struct.Struct(">I")


def snapshot_batches(image: MetadataImage, term: int) -> Iterator[MetadataBatch]:
    """Yields the whole image as batches, built lazily. The first batch has `snapshot_begin` set, and the last one
    `snapshot_end`."""
    records = snapshot_records(image)
    chunk = list(islice(records, RECORDS_PER_BATCH))
    begin = True
    while True:
        following = list(islice(records, RECORDS_PER_BATCH))
        yield MetadataBatch(
            term=term,
            base_index=image.end_index,
            end_index=image.end_index,
            records=chunk,
            snapshot_begin=begin,
            snapshot_end=not following,
        )
        if not following:
            return
        chunk, begin = following, False


def snapshot_bytes(image: MetadataImage, term: int) -> Iterator[bytes]:
    """Yields the bytes of a snapshot, built lazily, one part per batch."""
    for batch in snapshot_batches(image, term):
        data = batch.SerializeToString(deterministic=True)
        yield _LENGTH.pack(len(data)) + data


class SnapshotReader:
    """Builds the image of a snapshot while its bytes arrive."""

    def __init__(self) -> None:
        self._builder = ImageBuilder(MetadataImage.empty())
        self._buffer = bytearray()
        self._end_index = 0
        self._is_whole = False

    def feed(self, part: bytes) -> None:
        """Reads the next bytes of the snapshot. Raises CorruptLogError if they do not parse."""
        self._buffer += part
        begin = 0
        while (body := begin + _LENGTH.size) <= len(self._buffer):
            end = body + _LENGTH.unpack_from(self._buffer, begin)[0]
            if end > len(self._buffer):
                break
            self._apply(bytes(self._buffer[body:end]))
            begin = end
        del self._buffer[:begin]

    def finish(self) -> MetadataImage:
        """Returns the image after all bytes were read. Raises CorruptLogError if the snapshot is incomplete or has
        extra bytes."""
        if self._buffer:
            raise CorruptLogError(f"a snapshot has {len(self._buffer)} extra bytes at its end")
        if not self._is_whole:
            raise CorruptLogError(f"the snapshot of index {self._end_index} is incomplete: its end is missing")
        return self._builder.finish(self._end_index)

    def _apply(self, data: bytes) -> None:
        try:
            batch = MetadataBatch.FromString(data)
        except DecodeError as error:
            raise CorruptLogError(f"a snapshot does not parse: {error}") from error
        self._is_whole, self._end_index = batch.snapshot_end, batch.end_index
        self._builder.apply(batch.records)


def image_of_snapshot(parts: Iterable[bytes]) -> MetadataImage:
    """Returns the image from the bytes that `snapshot_bytes` made. Raises CorruptLogError."""
    reader = SnapshotReader()
    for part in parts:
        reader.feed(part)
    return reader.finish()
