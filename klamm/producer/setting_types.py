"""The settings of a producer, as keyword arguments. Written by `python -m tools.setting_types`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Literal

from klamm.partitioner import Partitioner, PartitionFunction
from klamm.producer.interceptors import ProducerInterceptor
from klamm.serializers import SerdeName
from klamm.setting_types import ClientSettings
from klamm.type_variables import KeyT, ValueT


class ProducerSettings(ClientSettings, Generic[KeyT, ValueT], total=False):
    """The settings of a producer, by names with underscores. Each may be left out."""

    acks: Literal["all", "1", "0", -1, 0, 1]
    """How many replicas must have a record before it counts as sent: `all` (or -1) in-sync replicas, 1 (the leader) or
    0. With 0, the broker answers only errors. The producer retries them, too. Default: all. Name in a mapping:
    `acks`."""
    batch_size: int
    """The producer sends a batch when the next record would make it larger than this many bytes, before compression. An
    open batch reserves `buffer.memory` in steps of 16 KiB, as it grows. Default: 1000000. Name in a mapping:
    `batch.size`."""
    linger_ms: int
    """The producer sends a batch that is not full after this time. In milliseconds. Default: 5. Name in a mapping:
    `linger.ms`."""
    buffer_memory: int
    """The most bytes of records that wait or are being sent. When they are used up, `send` blocks. Default: 33554432.
    Name in a mapping: `buffer.memory`."""
    max_block_ms: int
    """How long `send` may wait for metadata and memory. In milliseconds. Default: 60000. Name in a mapping:
    `max.block.ms`."""
    max_request_size: int
    """The most bytes of one record before compression, and of all batches in one request. Default: 1048576. Name in a
    mapping: `max.request.size`."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """How batches are compressed: none, gzip, snappy, lz4 or zstd. Default: none. Name in a mapping:
    `compression.type`."""
    compression_gzip_level: int
    """The compression level if compression.type is gzip. -1 is the default of the library. Default: -1. Name in a
    mapping: `compression.gzip.level`."""
    compression_lz4_level: int
    """The compression level if compression.type is lz4. Default: 9. Name in a mapping: `compression.lz4.level`."""
    compression_zstd_level: int
    """The compression level if compression.type is zstd. Default: 3. Name in a mapping: `compression.zstd.level`."""
    delivery_timeout_ms: int
    """A record fails if it is not acknowledged within this time after `send`. In milliseconds. Default: 120000. Name in
    a mapping: `delivery.timeout.ms`."""
    retries: int
    """How many times the producer retries a request. Usually `delivery.timeout.ms` ends the retries earlier. Default:
    2147483647. Name in a mapping: `retries`."""
    max_in_flight_requests_per_connection: int
    """The most requests in flight to one broker. A partition is in at most one of them, so its order is always kept.
    Default: 5. Name in a mapping: `max.in.flight.requests.per.connection`."""
    enable_idempotence: bool | None
    """Whether each record is written once and in order, even if the producer retries. The default is true, unless
    `acks` is not all or `retries` is 0. With such values, true raises a ConfigError. Not set by default. Name in a
    mapping: `enable.idempotence`."""
    transactional_id: str | None
    """The name of the producer, which stays the same over restarts. The latest producer with this name fences the
    others, and the coordinator aborts their open transaction. With it, every record is part of a transaction. Not set
    by default. Name in a mapping: `transactional.id`."""
    transaction_timeout_ms: int
    """The coordinator aborts a transaction that is open for longer than this. The limit is
    `transaction.max.timeout.ms`. In milliseconds. Default: 60000. Name in a mapping: `transaction.timeout.ms`."""
    partitioner_class: Literal["default", "round_robin", "random"] | Partitioner | PartitionFunction
    """`default` (hash of the key, else sticky), `round_robin`, `random`, a Partitioner object (not a class), or a
    function `(topic, key, value, partitions) -> partition`. Default: default. Name in a mapping:
    `partitioner.class`."""
    partitioner_ignore_keys: bool
    """Whether records with a key are spread like those without one. Default: false. Name in a mapping:
    `partitioner.ignore.keys`."""
    partitioner_rack_aware: bool
    """Whether records without a key go to partitions whose leader is in `client.rack`, if there are any (KIP-1123). If
    `client.rack` is a path, they go to the leaders that share most of its levels. Default: false. Name in a mapping:
    `partitioner.rack.aware`."""
    key_serializer: Callable[[KeyT], bytes] | SerdeName | None
    """A function, or a name from klamm.serializers. Without one, keys are bytes. Not set by default. Name in a mapping:
    `key.serializer`."""
    value_serializer: Callable[[ValueT], bytes] | SerdeName | None
    """The same as key.serializer, for values. Not set by default. Name in a mapping: `value.serializer`."""
    interceptor_classes: Iterable[ProducerInterceptor]
    """ProducerInterceptor objects (not classes), called in this order. Not set by default. Name in a mapping:
    `interceptor.classes`."""
