"""Record batches, format version 2. Producers send them, segments contain them and consumers read them.

The package converts between bytes and values, without I/O and without a clock. The rest of the project uses only the
names of this module."""

from __future__ import annotations

from klamm.records.compression import CompressionType
from klamm.records.contents import MAX_DECOMPRESSED_BYTES, decode_contents
from klamm.records.control import (
    ControlRecord,
    ControlRecordType,
    decode_control_record,
    encode_control_record,
    end_transaction_marker,
)
from klamm.records.decoder import RecordSection, decode_batch, decode_section, read_section, validate_records
from klamm.records.encoder import encode_batch, encode_headers, estimate_size_bytes, seal_batch
from klamm.records.errors import (
    ChecksumMismatchError,
    CorruptBatchError,
    DecompressedTooLargeError,
    InvalidCompressionError,
    InvalidHeaderError,
    InvalidRecordError,
    TruncatedBatchError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from klamm.records.header import (
    HEADER_SIZE_BYTES,
    PREFIX_SIZE_BYTES,
    BatchHeader,
    Buffer,
    TimestampType,
    assign_offset,
    increment_sequence,
    iter_headers,
    last_header,
    offset_prefix,
    read_header,
    set_log_append_time,
    validate_batch,
)
from klamm.records.keys import RecordKeys, read_keys
from klamm.records.packed import PackedRecords
from klamm.records.parser import parse_headers
from klamm.records.record import Headers, RawRecord, Record
from klamm.records.rewrite import retain_header, retain_records

__all__ = [
    "HEADER_SIZE_BYTES",
    "MAX_DECOMPRESSED_BYTES",
    "PREFIX_SIZE_BYTES",
    "BatchHeader",
    "Buffer",
    "ChecksumMismatchError",
    "CompressionType",
    "ControlRecord",
    "ControlRecordType",
    "CorruptBatchError",
    "DecompressedTooLargeError",
    "Headers",
    "InvalidCompressionError",
    "InvalidHeaderError",
    "InvalidRecordError",
    "PackedRecords",
    "RawRecord",
    "Record",
    "RecordKeys",
    "RecordSection",
    "TimestampType",
    "TruncatedBatchError",
    "UnsupportedCompressionError",
    "UnsupportedMagicError",
    "assign_offset",
    "decode_batch",
    "decode_contents",
    "decode_control_record",
    "decode_section",
    "encode_batch",
    "encode_control_record",
    "encode_headers",
    "end_transaction_marker",
    "estimate_size_bytes",
    "increment_sequence",
    "iter_headers",
    "last_header",
    "offset_prefix",
    "parse_headers",
    "read_header",
    "read_keys",
    "read_section",
    "retain_header",
    "retain_records",
    "seal_batch",
    "set_log_append_time",
    "validate_batch",
    "validate_records",
]
