"""Decodes a partition's fetched batches into records. The consumer's thread spends most of its time here.

Each batch is decompressed and decoded when its records are needed. The reader skips records before the fetch offset,
because the first batch may begin earlier, and batches that the isolation level hides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm.consumer.errors import BatchTooLargeError, CorruptRecordError, RecordDeserializationError
from klamm.consumer.fetch.fetch_buffer import FetchedData
from klamm.consumer.fetch.row_decoder import decode_rows
from klamm.consumer.record import ConsumerRecord, with_contents
from klamm.isolation import VisibleBatches
from klamm.records import (
    MAX_DECOMPRESSED_BYTES,
    CorruptBatchError,
    DecompressedTooLargeError,
    RecordSection,
    read_header,
    read_section,
)

Deserializer = Callable[[bytes], Any]
"""A function from bytes to a value. Null keys and values are not passed to it and stay None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    """The settings for decoding records, which are the same for all partitions."""

    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    check_crcs: bool = True
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    read_committed: bool = False


class FetchedDataReader:
    """Reads one FetchedData, from its `fetch_offset` or from `start_offset`. `next_offset` is the position after the
    records returned so far."""

    def __init__(self, data: FetchedData, config: ReaderConfig, start_offset: int | None = None) -> None:
        self.data = data
        self.next_offset = data.fetch_offset if start_offset is None else start_offset
        self.leader_epoch = -1
        """The leader epoch of the last batch that was read from, including batches without visible records."""
        self._config = config
        self._position = 0
        self._records: list[ConsumerRecord] = []
        self._index = 0
        self._start_offset = self.next_offset
        self._batch_end = self.next_offset
        self._visible = VisibleBatches(data.aborted_transactions if config.read_committed else None)
        self._failure: Exception | None = None

    @property
    def exhausted(self) -> bool:
        """True after all records were returned and no error is left to raise."""
        return self._index >= len(self._records) and not self._failure and self._position >= len(self.data.batches)

    def read(self, max_records: int) -> list[ConsumerRecord]:
        """Returns the next records, from at most one batch. The list is empty only if the reader is exhausted.

        Raises CorruptRecordError, BatchTooLargeError or RecordDeserializationError, after the records before the one at
        fault were returned. Raises it again until the consumer seeks past it."""
        while self._index >= len(self._records):
            if self._failure is not None:
                raise self._failure
            if self._position >= len(self.data.batches):
                self.next_offset = max(self.next_offset, self.data.next_offset)
                return []
            self._next_batch()
        start, end = self._index, self._index + max_records
        taken = self._records if start == 0 and end >= len(self._records) else self._records[start:end]
        self._index = start + len(taken)
        self.leader_epoch = taken[-1].leader_epoch
        if self._index >= len(self._records) and self._failure is None:
            self.next_offset = self._batch_end
            self._records = []
            self._index = 0
        else:
            self.next_offset = taken[-1].offset + 1
        return taken

    def _next_batch(self) -> None:
        offset = self.next_offset
        try:
            header = read_header(self.data.batches, self._position)
            offset = max(offset, header.base_offset)
            if self._visible.hides(header, self.data.batches, self._position) or self.data.was_read(
                header, self._start_offset
            ):
                records: list[ConsumerRecord] = []
            else:
                records = decode_rows(self._section(), self.data.tp, self._start_offset)
        except DecompressedTooLargeError:
            self._failure = BatchTooLargeError(
                self.data.tp, offset, header.next_offset, self._config.max_decompressed_bytes
            )
            return
        except CorruptBatchError as error:
            self._failure = CorruptRecordError(self.data.tp, offset)
            self._failure.__cause__ = error
            return
        self._position += header.size_bytes
        self._batch_end = header.next_offset
        self._index = 0
        self._records = self._deserialize(records)
        if not self._records and self._failure is None:
            self.next_offset = max(self.next_offset, self._batch_end)
            self.leader_epoch = header.partition_leader_epoch

    def _section(self) -> RecordSection:
        return read_section(
            self.data.batches,
            self._position,
            check_crc=self._config.check_crcs,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
        )

    def _deserialize(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        key_of, value_of = self._config.key_deserializer, self._config.value_deserializer
        if key_of is None and value_of is None:
            return records
        done: list[ConsumerRecord] = []
        part = "key"
        for record in records:
            key, value = record.key, record.value
            try:
                part = "key"
                if key_of is not None and key is not None:
                    key = key_of(key)
                part = "value"
                if value_of is not None and value is not None:
                    value = value_of(value)
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything; it is the cause
                self._failure = RecordDeserializationError(self.data.tp, record.offset, part)
                self._failure.__cause__ = error
                break
            done.append(with_contents(record, key, value))
        return done
