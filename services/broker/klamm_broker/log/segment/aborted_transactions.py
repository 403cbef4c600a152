"""The aborted transactions whose markers one segment holds: its transaction index, in memory and in its file.

Unlike the other indexes it cannot be made again from the segment alone: if it is found damaged it `is_lacking` until
the recovery of the log's producers brings all its entries (`producer_recovery.py`).
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
    """See the module's docstring."""

    __slots__ = ("_files", "_index", "count", "is_lacking")

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._index = TransactionIndex(files.base_offset)
        self.count = 0
        """The number of entries; known while the index is not in memory, too."""
        self.is_lacking = False
        """The index is to be made again (`begin`)."""

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
        """Gives the entries back that the file has. The others stay: the segment alone does not tell them again."""
        if not self.has_unwritten:
            self._index = TransactionIndex(self._files.base_offset)

    @property
    def has_unwritten(self) -> bool:
        """Whether the file lacks entries, for want of space."""
        return self._index.written_count < len(self._index)

    def write(self) -> None:
        """Brings the file up to memory; not synced. Safe to repeat after it raised OSError."""
        if self.has_unwritten:
            write_entries(
                self._files, TRANSACTION_INDEX_SUFFIX, self._index, entry_size_bytes=transaction_index.ENTRY_SIZE_BYTES
            )
            self._files.has_transaction_index = True

    def trim(self) -> None:
        """Cuts off what the file has beyond the entries in memory."""
        if not self.is_lacking:  # else it must still be seen at the next start that it is damaged
            trim_entries(
                self._files, TRANSACTION_INDEX_SUFFIX, self._index, entry_size_bytes=transaction_index.ENTRY_SIZE_BYTES
            )

    # Entries

    def begin(self) -> None:
        """A missing index becomes an empty one; the caller appends all its entries."""
        if self.is_lacking:
            self.is_lacking = False
            self._index = TransactionIndex(self._files.base_offset)
            self.count = 0
            self.trim()

    def append(self, entry: AbortedTransaction) -> None:
        """The transaction's marker is in the segment, after those of all entries before."""
        self._index.append(entry)
        self.count += 1

    def between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the aborted transactions between two offsets (`TransactionIndex.between`). Raises OSError if the
        index was lost since the log was opened."""
        if self.is_lacking:
            raise OSError(errno.EIO, "the transaction index is damaged", self._files.path(TRANSACTION_INDEX_SUFFIX))
        return self._index.between(start_offset, end_offset)

    def truncate_to(self, offset: int) -> None:
        """The log was cut: it has the batches below `offset` only."""
        if not self.is_lacking:
            self._index.truncate_to(offset)
            self.count = len(self._index)
            self.trim()

    def check_invariants(self, end_offset: int) -> None:
        for entry in self._index.entries():
            assert entry.last_offset < end_offset, (self._files.base_offset, entry, end_offset)
