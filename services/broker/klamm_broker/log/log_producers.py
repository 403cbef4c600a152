"""The producers of one log, in memory and in its snapshots: what the log calls as it grows, rolls, is cut and closed.

The rules are in `producer_state.py`, the files in `producer_snapshot.py`, reading the state from the log in
`producer_recovery.py`. All calls that write may raise OSError; the log says what that means for its directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klamm.records.header import BatchHeader
from klamm_broker.log.disk import Disk
from klamm_broker.log.producer_recovery import reload_producers
from klamm_broker.log.producer_snapshot import ProducerSnapshots
from klamm_broker.log.producer_state import DEFAULT_IDS_MAX, ProducerStates, Run
from klamm_broker.log.segment import Segment


class LogProducers:
    """What all records of a log say of their producers, those deleted since included."""

    def __init__(self, disk: Disk, directory: str, *, ids_max: int = DEFAULT_IDS_MAX) -> None:
        self._disk = disk
        self._states = ProducerStates(ids_max)
        self._snapshots = ProducerSnapshots(disk, directory)

    def __len__(self) -> int:
        return len(self._states)

    def reload(self, segments: Sequence[Segment]) -> None:
        """Finds out from the log, which consists of `segments`."""
        reload_producers(self._states, self._snapshots, segments, self._disk)

    # Appending

    def check(self, headers: Sequence[BatchHeader]) -> Run | None:
        """What `ProducerStates.check` says of a record set; None for one without a producer id."""
        if all(header.producer_id < 0 for header in headers):
            return None
        return self._states.check(headers)

    def note_appended(self, headers: Iterable[BatchHeader], *, base_offset: int, now_ms: int) -> None:
        """The leader wrote the batches, which do not have their offsets yet, from `base_offset` on."""
        for header in headers:
            self._states.note(header, base_offset=base_offset, now_ms=now_ms)
            base_offset += header.last_offset_delta + 1

    def note_replicated(self, header: BatchHeader, *, now_ms: int) -> None:
        """A batch was written as the leader sent it: it has its offset."""
        self._states.note(header, base_offset=header.base_offset, now_ms=now_ms)

    # Segments come and go

    def rolled(self, base_offset: int) -> None:
        """A segment begins at `base_offset`, which is the end of the log."""
        self._snapshots.write(base_offset, self._states)

    def retain_snapshots(self, base_offsets: Sequence[int]) -> None:
        """The log consists of the segments with these base offsets now."""
        self._snapshots.retain(base_offsets)

    def expire(self, *, older_than_ms: int) -> None:
        """Forgets producers that have not written since (`producer.id.expiration.ms`)."""
        self._states.expire(older_than_ms=older_than_ms)

    # Truncating and closing

    def prepare_truncation(self, offset: int) -> None:
        """Before there are other records from `offset` on: no snapshot speaks of those there were."""
        self._snapshots.truncate_to(offset)

    def truncated(self, segments: Sequence[Segment]) -> None:
        """The log was cut, and consists of `segments`."""
        if not self._states.truncate_to(segments[-1].next_offset):
            self.reload(segments)

    def clear(self) -> None:
        """Forgets everything, before all records are dropped."""
        self._snapshots.truncate_to(-1)
        self._states.clear()

    def take_over(self, other: LogProducers, *, end_offset: int) -> None:
        """The log has become equal to another, up to `end_offset`: what that one knows of records gone counts too."""
        self._states.clear()
        self._states.restore(other._states.rows())
        self._snapshots.write(end_offset, self._states)

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._snapshots.directory = directory

    def store(self, *, first_offset: int, end_offset: int) -> None:
        """Makes a snapshot for the end of the log, which begins with the segment of `first_offset`."""
        if end_offset > max(self._snapshots.offsets, default=first_offset):
            self._snapshots.write(end_offset, self._states)

    def check_invariants(self, log_end_offset: int) -> None:
        self._states.check_invariants(log_end_offset)
