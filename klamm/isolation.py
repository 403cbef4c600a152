"""Decides which batches of a fetch a consumer may see.

Control batches are always hidden. With read_committed, batches of aborted transactions are hidden too. These are a
producer's batches from the first offset that the broker named up to the producer's next abort marker (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.records import BatchHeader, Buffer, ControlRecordType, decode_batch, decode_control_record


class VisibleBatches:
    """Checks the batches of one fetch, in order.

    `aborted` has the (producer id, first offset) pairs of the fetch's aborted transactions. None means
    read_uncommitted."""

    def __init__(self, aborted: Iterable[tuple[int, int]] | None) -> None:
        self._read_committed = aborted is not None
        self._to_come = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def hides(self, header: BatchHeader, buffer: Buffer, position: int) -> bool:
        """Returns whether the batch at `position` is hidden from the reader. Raises CorruptBatchError for a broken
        marker."""
        if not self._read_committed:
            return header.is_control
        while self._to_come and self._to_come[-1][1] <= header.last_offset:
            self._aborting.add(self._to_come.pop()[0])
        if header.is_control:
            if _is_abort_marker(buffer, position):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


def _is_abort_marker(buffer: Buffer, position: int) -> bool:
    markers = decode_batch(buffer, position)
    return bool(markers) and decode_control_record(markers[0].key, markers[0].value).type is ControlRecordType.ABORT
