"""What members of a consumer group tell each other: Kafka's ConsumerProtocol, to the byte.

    Subscription => version int16 | topics [string] | user_data nullable bytes
                    v1+ owned_partitions [topic string, partitions [int32]]
                    v2+ generation_id int32    v3+ rack_id nullable string
    Assignment   => version int16 | assigned_partitions [topic string, partitions [int32]]
                    user_data nullable bytes

Strings have an int16 length, arrays and bytes an int32 one; -1 is null. A reader takes what it knows of a
newer version and leaves the rest (KIP-429, KIP-792, KIP-881; ConsumerProtocolSubscription.json).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from klamm.errors import KlammError
from klamm.model import TopicPartition

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3
NO_GENERATION = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class ConsumerProtocolError(KlammError, ValueError):
    """Bytes of another member do not parse as the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member brings to a rebalance."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """The assignor's own."""
    owned: tuple[TopicPartition, ...] = ()
    """Partitions it holds on to (cooperative)."""
    generation_id: int = NO_GENERATION
    """The generation in which it got them."""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member takes from a rebalance."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """The bytes of `version`; what it has no room for is left out."""
    parts = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    parts += [encode_string(topic) for topic in sorted(subscription.topics)]
    parts.append(_encode_bytes(subscription.user_data))
    if version >= 1:
        parts.append(encode_partitions(subscription.owned))
    if version >= 2:
        parts.append(_INT32.pack(subscription.generation_id))
    if version >= 3:
        parts.append(encode_string(subscription.rack_id))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """Raises ConsumerProtocolError."""
    reader = Reader(data)
    version = reader.version()
    return Subscription(
        topics=tuple(reader.string() for _ in range(reader.count())),
        user_data=reader.nullable_bytes(),
        owned=reader.partitions() if version >= 1 else (),
        generation_id=reader.int32() if version >= 2 else NO_GENERATION,
        rack_id=reader.nullable_string() if version >= 3 else None,
    )


def encode_assignment(assignment: Assignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """The bytes of `version`."""
    return b"".join(
        (_INT16.pack(version), encode_partitions(assignment.partitions), _encode_bytes(assignment.user_data))
    )


def decode_assignment(data: bytes) -> Assignment:
    """Raises ConsumerProtocolError. No bytes at all are an empty assignment."""
    if not data:
        return Assignment(partitions=())
    reader = Reader(data)
    reader.version()
    return Assignment(partitions=reader.partitions(), user_data=reader.nullable_bytes())


def encode_string(text: str | None) -> bytes:
    """A nullable string."""
    if text is None:
        return _INT16.pack(-1)
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Grouped by topic; topics and numbers sorted."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts.append(encode_string(topic))
        parts.append(_encode_int32s(numbers))
    return b"".join(parts)


def _encode_int32s(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


def _encode_bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


class Reader:
    """Reads the fields one after the other; every method raises ConsumerProtocolError when they end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def version(self) -> int:
        version = self._int16()
        if version < 0:
            raise ConsumerProtocolError(f"version {version}; expected 0 or more")
        return version

    def int32(self) -> int:
        (value,) = _INT32.unpack(self._take(_INT32.size))
        return int(value)

    def count(self) -> int:
        """Length of an array; as every element takes a byte at least, it bounds what follows."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._position:
            raise ConsumerProtocolError(f"an array of {count} at byte {self._position} of {len(self._data)}")
        return count

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ConsumerProtocolError(f"a null string at byte {self._position}")
        return text

    def nullable_string(self) -> str | None:
        length = self._int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise ConsumerProtocolError(f"a string before byte {self._position} is not UTF-8") from error

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _int16(self) -> int:
        (value,) = _INT16.unpack(self._take(_INT16.size))
        return int(value)

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ConsumerProtocolError(f"{len(self._data)} bytes end before byte {end}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
