"""Checks and serializes the arguments of `send` before anything is buffered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from klamm.core import core
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, SerializationError
from klamm.model import topic_name_problem
from klamm.process import PROCESS
from klamm.producer.batch import RECORD_OVERHEAD_BYTES
from klamm.producer.config import ProducerConfig
from klamm.records import PackedRecords, RawRecord, estimate_size_bytes
from klamm.serializers import Serializer

INT64_MAX = (1 << 63) - 1
CONTENT_BYTES_MAX = (1 << 31) - 1
"""The maximum size of a key, a value or a header's content in the record format."""
Header = tuple[str, bytes | None]
_MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]

MANY_AT_ONCE = 1_000
"""`send_many` holds the producer's lock for at most this many records at a time."""


class Many(NamedTuple):
    """The checked records of `send_many`."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: tuple[Header, ...]
    own_bytes: int
    """The size of a record without its key and value, as an upper bound."""
    wall_ms: Callable[[], int]
    """The clock of the records' timestamps."""

    def record(self, at: int) -> tuple[RawRecord, int]:
        """Returns a record, and an upper bound of its size in bytes."""
        value, key = self.values[at], self.keys[at] if self.keys else None
        size_bytes = self.own_bytes + len(value or b"") + len(key or b"")
        return (self.wall_ms(), key, value, self.headers), size_bytes


class Intake:
    """Checks and serializes the records of one producer. `prepare` runs for every record.

    The compiled core reads the attributes, and calls the functions of this module."""

    def __init__(self, config: ProducerConfig) -> None:
        self._wall_ms = PROCESS.get().wall_ms
        self.key_serializer = config.key_serializer
        self.value_serializer = config.value_serializer
        self.size_bytes_max = min(config.max_request_size, config.buffer_memory)
        self._size_setting = "max.request.size" if config.max_request_size <= config.buffer_memory else "buffer.memory"

    def check_packed(self, topic: str, records: PackedRecords) -> int:
        """Returns an upper bound of the records' size in bytes. Raises InvalidTopicError or MessageTooLargeError."""
        check_topic_name(topic)
        size_bytes = len(records.data)
        if size_bytes > self.size_bytes_max:
            raise self._too_large(f"{len(records)} record(s) for topic {topic!r} have {size_bytes} bytes")
        return size_bytes

    def prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        timestamp_ms: int | None,
        headers: Sequence[Header] | None,
    ) -> tuple[RawRecord, int]:
        """Returns the record, and an upper bound of its size in a batch in bytes.

        Raises InvalidTopicError, SerializationError, InvalidTimestampError or MessageTooLargeError."""
        if topic.__class__ is not str:
            check_topic_name(topic)
        if key is not None and (self.key_serializer is not None or key.__class__ is not bytes):
            key = serialize("key", topic, key, self.key_serializer)
        if value is not None and (self.value_serializer is not None or value.__class__ is not bytes):
            value = serialize("value", topic, value, self.value_serializer)
        timestamp_ms = self._wall_ms() if timestamp_ms is None else checked_timestamp_ms(timestamp_ms)
        if headers:
            headers = checked_headers(topic, headers)
            size_bytes = estimate_size_bytes(key, value, headers)
        else:
            headers = ()
            size_bytes = RECORD_OVERHEAD_BYTES
            if key is not None:
                size_bytes += len(key)
            if value is not None:
                size_bytes += len(value)
        if size_bytes > self.size_bytes_max:
            raise self.too_large_record(topic, size_bytes)
        return (timestamp_ms, key, value, headers), size_bytes

    def prepare_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: Sequence[Header] | None,
    ) -> Many:
        """Returns the records of `send_many`. All of them are checked and serialized before the first is buffered.

        Raises ValueError if there are not as many keys as values, and as `prepare`. The error names the position of the
        record."""
        check_topic_name(topic)
        given = list(values)
        given_keys = None if keys is None else list(keys)
        if given_keys is not None and len(given_keys) != len(given):
            raise ValueError(f"{len(given_keys)} keys for {len(given)} values; expected as many")
        checked = checked_headers(topic, headers) if headers else ()
        own_bytes = estimate_size_bytes(None, None, checked)
        done = [self._content("value", topic, at, content, self.value_serializer) for at, content in enumerate(given)]
        done_keys = given_keys and [
            self._content("key", topic, at, content, self.key_serializer) for at, content in enumerate(given_keys)
        ]
        for at, content in enumerate(done):
            size_bytes = own_bytes + len(content or b"") + len((done_keys and done_keys[at]) or b"")
            if size_bytes > self.size_bytes_max:
                raise self._too_large(f"record {at} for topic {topic!r} has {size_bytes} bytes")
        return Many(done, done_keys, checked, own_bytes, self._wall_ms)

    @staticmethod
    def _content(what: str, topic: str, at: int, content: Any, serializer: Serializer | None) -> bytes | None:
        if content is None or (serializer is None and content.__class__ is bytes):
            return content
        try:
            return serialize(what, topic, content, serializer)
        except (SerializationError, _MessageTooLargeError) as error:
            raise type(error)(f"record {at}: {error}") from error

    def too_large_record(self, topic: str, size_bytes: int) -> BrokerError:
        """Returns the error for a record that is larger than `size_bytes_max`."""
        return self._too_large(f"a record for topic {topic!r} has {size_bytes} bytes")

    def _too_large(self, what: str) -> BrokerError:
        return _MessageTooLargeError(f"{what}; {self._size_setting} allows {self.size_bytes_max}")


def check_topic_name(topic: Any) -> None:
    """Raises InvalidTopicError unless `topic` is a legal name."""
    problem = topic_name_problem(topic) if isinstance(topic, str) else f"topic {topic!r} is not a string"
    if problem is not None:
        raise EXCEPTIONS[ErrorCode.INVALID_TOPIC_EXCEPTION](problem)


def check_partition(partition: Any) -> None:
    """Raises InvalidPartitionsError unless `partition` can be a partition number."""
    if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
        raise EXCEPTIONS[ErrorCode.INVALID_PARTITIONS](f"partition={partition!r}; expected 0 or more, or None")


def checked_timestamp_ms(timestamp_ms: Any) -> int:
    """Returns a timestamp that a sender gave. Raises InvalidTimestampError."""
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= INT64_MAX:
        raise EXCEPTIONS[ErrorCode.INVALID_TIMESTAMP](
            f"timestamp_ms={timestamp_ms!r}; expected milliseconds since the epoch"
        )
    return timestamp_ms


def serialize(what: str, topic: str, content: Any, serializer: Serializer | None) -> bytes:
    """Returns the bytes of a key or value (`what`), a copy if they may change. Raises SerializationError or
    MessageTooLargeError."""
    try:
        data = content if serializer is None else serializer(content)
    except Exception as error:
        raise SerializationError(f"the {what} of a record for topic {topic!r}: {error}") from error
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise SerializationError(
            f"the {what} of a record for topic {topic!r} is {type(data).__name__}, not bytes;"
            f" set {what}.serializer, e.g. to 'string' or 'json'"
        )
    try:
        return _exact_bytes(what, topic, data)
    except ValueError as error:
        raise SerializationError(f"the {what} of a record for topic {topic!r}: {error}") from error


def checked_headers(topic: str, headers: Sequence[Header]) -> tuple[Header, ...]:
    """Returns the headers with their contents as bytes. Raises SerializationError or MessageTooLargeError."""
    try:
        return tuple(_checked_header(topic, name, content) for name, content in headers)
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"headers={headers!r} of a record for topic {topic!r}; expected pairs of str and bytes or None"
        ) from error


def _checked_header(topic: str, name: Any, content: Any) -> Header:
    if not isinstance(name, str) or not (content is None or isinstance(content, (bytes, bytearray, memoryview))):
        raise TypeError(name, content)
    name.encode()  # A lone surrogate cannot be encoded as UTF-8.
    # The compiled core takes no subclass, such as a StrEnum.
    return str.__str__(name), None if content is None else _exact_bytes("header", topic, content)


def _exact_bytes(what: str, topic: str, data: bytes | bytearray | memoryview) -> bytes:
    """Returns the data as bytes, and not as an object of a subclass, which `bytes` returns if its `__bytes__` does.

    Raises MessageTooLargeError before it would copy data that no record can hold, and ValueError if a memoryview was
    released."""
    if type(data) is bytes:
        return data
    view = memoryview(data)
    if view.nbytes > CONTENT_BYTES_MAX:
        raise _MessageTooLargeError(
            f"the {what} of a record for topic {topic!r} has {view.nbytes} bytes; expected at most {CONTENT_BYTES_MAX}"
        )
    return bytes(view)


if core is not None:
    core.use_intake(sys.modules[__name__])
