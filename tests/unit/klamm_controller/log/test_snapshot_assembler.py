from __future__ import annotations

import pytest

from klamm.wire.v1.metadata_pb2 import ClusterRecord, MetadataRecord
from klamm_controller.log.snapshot import snapshot_bytes
from klamm_controller.log.snapshot_assembler import SnapshotAssembler
from klamm_controller.raft.effects import WriteSnapshotChunk
from klamm_controller.raft.messages import SnapshotId
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay

CHUNK_BYTES = 7


def image(cluster_id: str) -> MetadataImage:
    return replay(MetadataImage.empty(), [MetadataRecord(cluster=ClusterRecord(cluster_id=cluster_id))], 1)


def chunks(snapshot: SnapshotId, cluster_id: str) -> list[WriteSnapshotChunk]:
    data = b"".join(snapshot_bytes(image(cluster_id), snapshot.term))
    return [
        WriteSnapshotChunk(
            snapshot=snapshot,
            voters=b"[]",
            position=position,
            data=data[position : position + CHUNK_BYTES],
            is_last=position + CHUNK_BYTES >= len(data),
        )
        for position in range(0, len(data), CHUNK_BYTES)
    ]


FIRST, SECOND = SnapshotId(end_index=5, term=1), SnapshotId(end_index=9, term=2)


def test_a_received_snapshot_gives_the_image_that_was_sent():
    receiving = SnapshotAssembler()
    for chunk in chunks(FIRST, "one"):
        receiving.feed(chunk)
    assert receiving.take(FIRST) == image("one")


def test_a_second_snapshot_may_start_before_the_first_is_taken():
    receiving = SnapshotAssembler()
    for chunk in chunks(FIRST, "one"):
        receiving.feed(chunk)
    begin, *rest = chunks(SECOND, "two")
    receiving.feed(begin)
    assert receiving.take(FIRST) == image("one")
    for chunk in rest:
        receiving.feed(chunk)
    assert receiving.take(SECOND) == image("two")


def test_an_interrupted_snapshot_starts_again_from_its_first_chunk():
    receiving = SnapshotAssembler()
    receiving.feed(chunks(FIRST, "one")[0])
    for chunk in chunks(FIRST, "uno"):
        receiving.feed(chunk)
    assert receiving.take(FIRST) == image("uno")
    with pytest.raises(AssertionError):
        receiving.take(FIRST)
