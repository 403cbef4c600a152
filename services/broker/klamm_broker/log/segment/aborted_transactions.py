"""The aborted transactions whose markers are in one segment: its transaction index, in memory and in its file.

Unlike the other indexes, it cannot be rebuilt from the segment alone. If it is damaged, `is_lacking` is True until the
recovery of the log's producers adds all its entries (`producer_recovery.py`).
"""

from __future__ import annotations

import errno
import logging

from klamm_broker.log.segment import transaction_index
from klamm_broker.log.segment.index_file import trim_entries, write_entries
from klamm_broker.log.segment.offset_index import CorruptIndexError
from klamm_broker.log.segment.segment_files import TRANSACTION_INDEX_SUFFIX, SegmentFiles
from klamm_broker.log.segment.transaction_index import AbortedTransaction, TransactionIndex

logger = logging.getLogger(__name__)


class AbortedTransactions:
    """The transaction index of one segment, in memory and in its file."""

    __slots__ = ("_files", "_index", "count", "is_lacking")

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._index = TransactionIndex(files.base_offset)
        self.count = 0
        """The number of entries, also known while the index is not in memory."""
        self.is_lacking = False
        """True if the index must be rebuilt (`begin`)."""

    # The file

    def load(self) -> None:
        """Loads the index from its file, unless memory already has more entries."""
        files = self._files
        path = files.path(TRANSACTION_INDEX_SUFFIX)
        files.has_transaction_index = files.disk.exists(path)
        if self.is_lacking or len(self._index):
            return
        data = files.disk.read_file(path) if files.has_transaction_index else b""
        try:
            self._index = TransactionIndex.decode(files.base_offset, data)
            if len(self._index) < self.count:
                raise CorruptIndexError(f"the index has {len(self._index)} entries; expected {self.count}")
            self.count = len(self._index)
        except CorruptIndexError as error:
            logger.warning("could not read the transaction index, segment=%s reason=%s", files.path(), error)
            self.is_lacking = True

    def drop(self) -> None:
        """Frees the entries that are in the file. Unwritten entries stay, because the segment alone cannot restore
        them."""
        if not self.has_unwritten:
            self._index = TransactionIndex(self._files.base_offset)

    @property
    def has_unwritten(self) -> bool:
        """True if the file lacks entries, because the disk was full."""
        return self._index.written_count < len(self._index)

    def write(self) -> None:
        """Writes the missing entries to the file, without a sync. It may be repeated after an OSError."""
        if self.has_unwritten:
            write_entries(
                self._files, TRANSACTION_INDEX_SUFFIX, self._index, entry_size_bytes=transaction_index.ENTRY_SIZE_BYTES
            )
            self._files.has_transaction_index = True

    def trim(self) -> None:
        """Truncates the file after the entries in memory."""
        if not self.is_lacking:  # otherwise the next start must still see the damage
            trim_entries(
                self._files, TRANSACTION_INDEX_SUFFIX, self._index, entry_size_bytes=transaction_index.ENTRY_SIZE_BYTES
            )

    # Entries

    def begin(self) -> None:
        """Makes a missing index empty. The caller appends all its entries."""
        if self.is_lacking:
            self.is_lacking = False
            self._index = TransactionIndex(self._files.base_offset)
            self.count = 0
            self.trim()

    def append(self, entry: AbortedTransaction) -> None:
        """Adds an entry. The transaction's marker must be in the segment, after the markers of all earlier entries."""
        self._index.append(entry)
        self.count += 1

    def between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the aborted transactions between two offsets (`TransactionIndex.between`). Raises OSError if the
        index was lost since the log was opened."""
        if self.is_lacking:
            raise OSError(errno.EIO, "the transaction index is damaged", self._files.path(TRANSACTION_INDEX_SUFFIX))
        return self._index.between(start_offset, end_offset)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`, after the log was truncated there."""
        if not self.is_lacking:
            self._index.truncate_to(offset)
            self.count = len(self._index)
            self.trim()

    def check_invariants(self, end_offset: int) -> None:
        for entry in self._index.entries():
            assert entry.last_offset < end_offset, (self._files.base_offset, entry, end_offset)
