"""The errors of record batches, with one exception for each kind of damage.

For bad bytes, this package raises only subclasses of `CorruptBatchError`. Each class has the code that Kafka's broker
returns for that damage. CORRUPT_MESSAGE means that bytes were lost or altered on the way, so another attempt may help.
INVALID_RECORD means that the sender wrote something that is not a batch (`LogValidator`, `DefaultRecordBatch`).

    CorruptBatchError                 CORRUPT_MESSAGE
    ├── TruncatedBatchError           CORRUPT_MESSAGE
    ├── ChecksumMismatchError         CORRUPT_MESSAGE
    ├── InvalidHeaderError            INVALID_RECORD
    │   └── UnsupportedMagicError     INVALID_RECORD
    ├── InvalidRecordError            INVALID_RECORD
    ├── InvalidCompressionError       CORRUPT_MESSAGE
    ├── DecompressedTooLargeError     MESSAGE_TOO_LARGE
    └── UnsupportedCompressionError   UNSUPPORTED_COMPRESSION_TYPE"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode

if TYPE_CHECKING:
    # The classes of the table are created at run time. For a type checker, each of them is a BrokerError.
    class _CorruptMessage(BrokerError): ...

    class _InvalidRecord(BrokerError): ...

    class _MessageTooLarge(BrokerError): ...

    class _UnsupportedCompressionType(BrokerError): ...
else:
    _CorruptMessage = EXCEPTIONS[ErrorCode.CORRUPT_MESSAGE]
    _InvalidRecord = EXCEPTIONS[ErrorCode.INVALID_RECORD]
    _MessageTooLarge = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]
    _UnsupportedCompressionType = EXCEPTIONS[ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]


class CorruptBatchError(_CorruptMessage):
    """The bytes are not a usable record batch."""


class TruncatedBatchError(CorruptBatchError):
    """The buffer ends inside a batch."""


class ChecksumMismatchError(CorruptBatchError):
    """The CRC-32C of the batch is not the one its header states."""


class InvalidHeaderError(CorruptBatchError, _InvalidRecord):
    """A field of the batch header, or two of them together, make no sense."""

    code = ErrorCode.INVALID_RECORD
    retriable = False


class UnsupportedMagicError(InvalidHeaderError):
    """The batch is of another format than version 2 (magic 0 and 1 are the message sets before KIP-98)."""


class InvalidRecordError(CorruptBatchError, _InvalidRecord):
    """A record inside the batch does not parse, or the records do not match the batch header."""

    code = ErrorCode.INVALID_RECORD
    retriable = False


class InvalidCompressionError(CorruptBatchError):
    """The compressed records do not decompress."""


class DecompressedTooLargeError(CorruptBatchError, _MessageTooLarge):
    """The records would be larger than the caller allows, once decompressed."""

    code = ErrorCode.MESSAGE_TOO_LARGE
    retriable = False


class UnsupportedCompressionError(CorruptBatchError, _UnsupportedCompressionType):
    """The header names a compression this format does not have."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    retriable = False
