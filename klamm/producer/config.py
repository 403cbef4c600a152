"""The producer's settings: Kafka's names and defaults (`ProducerConfig`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from klamm.config import ClientConfig, parse_acks
from klamm.errors import ConfigError
from klamm.kafka_names.without_effect import OF_PRODUCERS
from klamm.partitioner import Partitioner, PartitionFunction
from klamm.producer.interceptors import ProducerInterceptor
from klamm.records import CompressionType
from klamm.serializers import Serializer, parse_serializer
from klamm.setting import INT_MAX, ConfigType, boolean, custom, integer, long, text

IDEMPOTENT_IN_FLIGHT_MAX = 5
PARTITIONERS = ("default", "round_robin", "random")


def _parse_compression(value: Any) -> CompressionType:
    names = [member.config_name for member in CompressionType]
    if value not in names:
        raise ValueError(f"one of {', '.join(names)}")
    return CompressionType.from_name(value)


def _parse_partitioner(value: Any) -> str | Partitioner | PartitionFunction:
    is_function = callable(value) and not isinstance(value, type)
    if value in PARTITIONERS or is_function or isinstance(value, Partitioner):
        chosen: str | Partitioner | PartitionFunction = value
        return chosen
    names = ", ".join(PARTITIONERS)
    raise ValueError(
        f"one of {names}, a Partitioner object (not a class), or a function (topic, key, value, partitions) ->"
        " partition"
    )


def _parse_interceptors(value: Any) -> tuple[ProducerInterceptor, ...]:
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise ValueError("a list of ProducerInterceptor objects")
    interceptors = tuple(value)
    if not all(isinstance(interceptor, ProducerInterceptor) for interceptor in interceptors):
        raise ValueError("a list of ProducerInterceptor objects")
    return interceptors


def _parse_transactional_id(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError("a string that is not empty, or None")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The settings of a producer. Kafka documents each name; the texts here say where Klamm differs."""

    WITHOUT_EFFECT: ClassVar[Mapping[str, str]] = {**ClientConfig.WITHOUT_EFFECT, **OF_PRODUCERS}

    client_id: str = text("klamm-producer", doc="Names this client in the servers' logs and quotas.")
    acks: int = custom(
        -1,
        parse_acks,
        type=ConfigType.STRING,
        shown="all",
        accepts="Literal['all', '1', '0', -1, 0, 1]",
        doc="How many replicas must have a record before it counts as sent: `all` (or -1) in-sync"
        " replicas, 1 (the leader) or 0. With 0, the broker answers only errors. The producer retries them, too.",
    )
    batch_size: int = integer(
        1_000_000,
        at_least=0,
        doc="The producer sends a batch when the next record would make it larger than this many bytes,"
        " before compression. An open batch reserves `buffer.memory` in steps of 16 KiB, as it grows.",
    )
    linger_ms: int = long(5, at_least=0, doc="The producer sends a batch that is not full after this time.")
    buffer_memory: int = long(
        33_554_432,
        at_least=1,
        doc="The most bytes of records that wait or are being sent. When they are used up, `send` blocks.",
    )
    max_block_ms: int = long(60_000, at_least=0, doc="How long `send` may wait for metadata and memory.")
    max_request_size: int = integer(
        1_048_576, at_least=1, doc="The most bytes of one record before compression, and of all batches in one request."
    )
    compression_type: CompressionType = custom(
        CompressionType.NONE,
        _parse_compression,
        type=ConfigType.STRING,
        shown="none",
        accepts="Literal['none', 'gzip', 'snappy', 'lz4', 'zstd']",
        doc="How batches are compressed: none, gzip, snappy, lz4 or zstd.",
    )
    compression_gzip_level: int = integer(
        -1,
        at_least=-1,
        at_most=9,
        doc="The compression level if compression.type is gzip. -1 is the default of the library.",
    )
    compression_lz4_level: int = integer(
        9, at_least=1, at_most=17, doc="The compression level if compression.type is lz4."
    )
    compression_zstd_level: int = integer(
        3, at_least=-131_072, at_most=22, doc="The compression level if compression.type is zstd."
    )
    delivery_timeout_ms: int = integer(
        120_000, at_least=0, doc="A record fails if it is not acknowledged within this time after `send`."
    )
    retries: int = integer(
        INT_MAX,
        at_least=0,
        at_most=INT_MAX,
        doc="How many times the producer retries a request. Usually `delivery.timeout.ms` ends the retries earlier.",
    )
    max_in_flight_requests_per_connection: int = integer(
        5,
        at_least=1,
        doc="The most requests in flight to one broker. A partition is in at most one of them, so its"
        " order is always kept.",
    )
    enable_idempotence: bool | None = boolean(
        None,
        doc="Whether each record is written once and in order, even if the producer retries. The"
        " default is true, unless `acks` is not all or `retries` is 0. With such values, true"
        " raises a ConfigError.",
    )
    transactional_id: str | None = custom(
        None,
        _parse_transactional_id,
        type=ConfigType.STRING,
        accepts="str",
        doc="The name of the producer, which stays the same over restarts. The latest producer with"
        " this name fences the others, and the coordinator aborts their open transaction. With it,"
        " every record is part of a transaction.",
    )
    transaction_timeout_ms: int = integer(
        60_000,
        at_least=1,
        at_most=INT_MAX,
        doc="The coordinator aborts a transaction that is open for longer than this. The limit is"
        " `transaction.max.timeout.ms`.",
    )
    partitioner_class: str | Partitioner | PartitionFunction = custom(
        "default",
        _parse_partitioner,
        accepts="Literal['default', 'round_robin', 'random'] | Partitioner | PartitionFunction",
        doc="`default` (hash of the key, else sticky), `round_robin`, `random`, a Partitioner object (not a class), or"
        " a function `(topic, key, value, partitions) -> partition`.",
    )
    partitioner_ignore_keys: bool = boolean(False, doc="Whether records with a key are spread like those without one.")
    partitioner_rack_aware: bool = boolean(
        False,
        doc="Whether records without a key go to partitions whose leader is in `client.rack`, if there"
        " are any (KIP-1123). If `client.rack` is a path, they go to the leaders that share most of its levels.",
    )
    key_serializer: Serializer | None = custom(
        None,
        parse_serializer,
        accepts="Callable[[KeyT], bytes] | SerdeName",
        doc="A function, or a name from klamm.serializers. Without one, keys are bytes.",
    )
    value_serializer: Serializer | None = custom(
        None,
        parse_serializer,
        accepts="Callable[[ValueT], bytes] | SerdeName",
        doc="The same as key.serializer, for values.",
    )
    interceptor_classes: tuple[ProducerInterceptor, ...] = custom(
        (),
        _parse_interceptors,
        type=ConfigType.LIST,
        accepts="Iterable[ProducerInterceptor]",
        doc="ProducerInterceptor objects (not classes), called in this order.",
    )

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen compression, or None for its default level."""
        match self.compression_type:
            case CompressionType.GZIP:
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case CompressionType.LZ4:
                return self.compression_lz4_level
            case CompressionType.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

    def __post_init__(self) -> None:
        if self.enable_idempotence is None:
            object.__setattr__(self, "enable_idempotence", self.acks == -1 and self.retries > 0)

    def validate(self) -> None:
        ClientConfig.validate(self)
        if self.enable_idempotence:
            self._validate_idempotence()
        elif self.transactional_id is not None:
            raise ConfigError(
                f"transactional.id={self.transactional_id!r} needs enable.idempotence, and so acks=all and retries"
            )
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery.timeout.ms={self.delivery_timeout_ms} must be at least linger.ms={self.linger_ms}"
                f" + request.timeout.ms={self.request_timeout_ms}"
            )
        if self.partitioner_rack_aware and not self.client_rack:
            raise ConfigError("partitioner.rack.aware=True needs client.rack")

    def _validate_idempotence(self) -> None:
        conflict = "enable.idempotence=True needs"
        if self.acks != -1:
            raise ConfigError(f"{conflict} acks=all; it is {self.acks}")
        if not self.retries:
            raise ConfigError(f"{conflict} retries; there are to be none")
        if self.max_in_flight_requests_per_connection > IDEMPOTENT_IN_FLIGHT_MAX:
            raise ConfigError(
                f"{conflict} max.in.flight.requests.per.connection of at most {IDEMPOTENT_IN_FLIGHT_MAX}; it is"
                f" {self.max_in_flight_requests_per_connection}"
            )
