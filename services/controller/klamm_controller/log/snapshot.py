"""An image as a sequence of batches: what is stored as a snapshot and what a new watcher is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_server.metadata.image import MetadataImage, replay, snapshot_records

RECORDS_PER_BATCH = 2_000
"""Some 100 KiB: far below the size of a message, and quick enough to make between two turns of the loop."""


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


def image_of_snapshot(batches: Sequence[MetadataBatch]) -> MetadataImage:
    """The image that `snapshot_batches` was given."""
    assert batches[0].snapshot_begin, batches[0].base_index
    assert batches[-1].snapshot_end, batches[-1].base_index
    records = [record for batch in batches for record in batch.records]
    return replay(MetadataImage.empty(), records, batches[-1].end_index)
