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
from klamm_server.metadata.image import MetadataImage, replay, snapshot_records

RECORDS_PER_BATCH = 2_000
"""Some 100 KiB: far below the size of a message, and quick enough to make between two turns of the loop."""

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
        data = batch.SerializeToString()
        yield _LENGTH.pack(len(data)) + data


def image_of_snapshot(parts: Iterable[bytes]) -> MetadataImage:
    """The image that `snapshot_bytes` was given. Raises CorruptLogError."""
    image, end_index, is_whole = MetadataImage.empty(), 0, False
    for batch in _batches(parts):
        is_whole, end_index = batch.snapshot_end, batch.end_index
        image = replay(image, batch.records, end_index if is_whole else 0)
    if not is_whole:
        raise CorruptLogError(f"the snapshot of record {end_index} has no end")
    return image


def _batches(parts: Iterable[bytes]) -> Iterator[MetadataBatch]:
    buffer = bytearray()
    for part in parts:
        buffer += part
        while len(buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
            if len(buffer) < end:
                break
            try:
                yield MetadataBatch.FromString(bytes(buffer[_LENGTH.size : end]))
            except DecodeError as error:
                raise CorruptLogError(f"a snapshot does not parse: {error}") from error
            del buffer[:end]
    if buffer:
        raise CorruptLogError(f"a snapshot ends with {len(buffer)} bytes too many")
