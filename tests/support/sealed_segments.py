"""Sealed segments for tests of scrubbing: random batches, the files that they make, and the check of damaged bytes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from klamm.records.compression import CompressionType
from klamm.records.encoder import encode_batch
from klamm.records.header import iter_headers, read_header
from klamm_broker.log.files.leader_epochs import EpochEntry
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.scrub.segment_check import IndexFiles, SegmentBounds, SegmentVerdict, check_segment
from klamm_broker.log.segment.record_set import AppendedBatch
from klamm_broker.log.segment.segment import Segment
from klamm_server.runtime.disk import Disk

CONFIG = LogConfig(index_interval_bytes=150, segment_bytes=100_000)
BASE_OFFSET = 1_000


@dataclass
class SealedSegment:
    """The log's data about a segment, and the segment's original bytes."""

    data: bytes
    end_offset: int
    epochs: list[EpochEntry]
    is_gapless: bool
    positions: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.positions = [position for position, _ in iter_headers(self.data)]

    @property
    def bounds(self) -> SegmentBounds:
        return SegmentBounds(
            base_offset=BASE_OFFSET,
            end_offset=self.end_offset,
            size_bytes=len(self.data),
            log_start_offset=0,
            is_gapless=self.is_gapless,
        )

    def check(self, data: bytes) -> SegmentVerdict:
        """Checks these bytes in the place of the segment's own, with the segment's indexes."""
        view = memoryview(data)
        return check_segment(
            lambda position, size: view[position : position + size], self.bounds, self.epochs, self.index_files()
        )

    def index_files(self) -> IndexFiles:
        """Returns the index files that appending makes, except that the offset index has an entry for every batch but
        the first."""
        offsets, times, latest = b"", b"", -1
        for position, header in iter_headers(self.data):
            last = (header.last_offset - BASE_OFFSET).to_bytes(4, "big")
            if position:
                offsets += last + position.to_bytes(4, "big")
            if header.max_timestamp_ms > latest:
                latest = header.max_timestamp_ms
                times += latest.to_bytes(8, "big") + last
        return IndexFiles(offsets, times, None)

    def records(self, first_offset: int) -> memoryview:
        """Returns the records that a fetch from that offset gets."""
        start = next((at for at in self.positions if read_header(self.data, at).last_offset >= first_offset), None)
        return memoryview(b"" if start is None else self.data[start:])


def random_segment(rng: random.Random, *, batch_count: int = 12, is_gapless: bool = True) -> SealedSegment:
    """Returns batches of a few leader epochs, with one to four records. Some are compressed, and some are full of
    zeros."""
    parts, epochs = [], [EpochEntry(3, 0)]
    offset, epoch, time_ms = BASE_OFFSET, 3, 1_000
    for _ in range(batch_count):
        if rng.random() < 0.2:
            epoch += rng.randrange(1, 3)
            epochs.append(EpochEntry(epoch, offset))
        if not is_gapless and rng.random() < 0.3:
            offset += rng.randrange(1, 5)
        time_ms += rng.randrange(-5, 20)
        value = rng.choice([rng.randbytes(rng.randrange(60)), bytes(rng.randrange(60)), b"\x02" * rng.randrange(60)])
        count = rng.randrange(1, 5)
        parts.append(
            encode_batch(
                [(time_ms + number, b"k%d" % number, value, ()) for number in range(count)],
                base_offset=offset,
                partition_leader_epoch=epoch,
                compression=rng.choice([CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4]),
            )
        )
        offset += count
    return SealedSegment(b"".join(parts), offset, epochs, is_gapless)


def write_segment(directory: Path, sealed: SealedSegment, data: bytes | None = None) -> Path:
    """Writes the `.log` file with its indexes. With `data`, these bytes replace the original ones."""
    segment = Segment(Disk(), str(directory), BASE_OFFSET, config=CONFIG, created_ms=0, roll_jitter_ms=0)
    segment.create()
    headers = [header for _, header in iter_headers(sealed.data)]
    batches = [AppendedBatch(header.last_offset, header.max_timestamp_ms, header.size_bytes) for header in headers]
    segment.append([sealed.data], batches, len(sealed.data))
    segment.seal()
    segment.release()
    path = Path(segment.files.path())
    if data is not None:
        path.write_bytes(data)
    return path
