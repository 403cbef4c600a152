"""An image as a sequence of batches, which a new watcher is sent, and as bytes, which are stored as a snapshot.

The bytes are batches one after the other, each after its length (4 bytes, big-endian). Where they are cut on the way
to the disk or to another controller does not matter.
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
"""Some 20 KiB, made in two milliseconds: quick enough between two turns of the loop."""

_LENGTH = struct.Struct(">I")


def snapshot_batches(image: MetadataImage, term: int) -> Iterator[MetadataBatch]:
    """The whole image, lazily; the first batch is marked as the beginning, the last one as the end."""
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
    """The bytes to store, lazily, one part per batch."""
    for batch in snapshot_batches(image, term):
        data = batch.SerializeToString(deterministic=True)
        yield _LENGTH.pack(len(data)) + data


class SnapshotReader:
    """The image of a snapshot, built while its bytes come in."""

    def __init__(self) -> None:
        self._builder = ImageBuilder(MetadataImage.empty())
        self._buffer = bytearray()
        self._end_index = 0
        self._is_whole = False

    def feed(self, part: bytes) -> None:
        """The bytes that follow. Raises CorruptLogError."""
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
        """The image, after all of the bytes. Raises CorruptLogError."""
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
    """The image that `snapshot_bytes` was given. Raises CorruptLogError."""
    reader = SnapshotReader()
    for part in parts:
        reader.feed(part)
    return reader.finish()
