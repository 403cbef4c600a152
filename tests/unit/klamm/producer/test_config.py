from __future__ import annotations

from typing import Any

import pytest

from klamm.errors import ConfigError
from klamm.partitioner import Partitioner
from klamm.producer import ProducerConfig
from klamm.producer.interceptors import ProducerInterceptor
from klamm.records import CompressionType


def test_defaults_are_kafkas() -> None:
    """The default of batch.size is that of librdkafka, the others are those of the Java client."""
    config = ProducerConfig.parse()

    assert (config.acks, config.batch_size, config.linger_ms, config.buffer_memory) == (-1, 1_000_000, 5, 33_554_432)
    assert (config.max_block_ms, config.max_request_size, config.delivery_timeout_ms) == (60_000, 1_048_576, 120_000)
    assert (config.retries, config.max_in_flight_requests_per_connection) == (2_147_483_647, 5)


@pytest.mark.parametrize(("given", "acks"), [("all", -1), ("-1", -1), (-1, -1), (0, 0), ("0", 0), (1, 1), ("1", 1)])
def test_acks_may_be_all_or_a_number_or_text(given: object, acks: int) -> None:
    assert ProducerConfig.parse(acks=given).acks == acks


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acks": 2}, "acks: 2 .*all"),
        ({"acks": True}, "acks: True"),
        ({"compression.type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"compression.gzip.level": 10}, "-1 to 9"),
        ({"partitioner.class": "best"}, "default, round_robin, random"),
        ({"partitioner.class": Partitioner}, r"a Partitioner object \(not a class\)"),
        ({"interceptor.classes": [object()]}, "ProducerInterceptor"),
        ({"interceptor.classes": "a.b.C"}, "ProducerInterceptor"),
        ({"key.serializer": "avro"}, "a function or one of"),
        ({"partitioner.rack.aware": True}, r"needs client\.rack"),
        ({"delivery.timeout.ms": 30_004}, r"delivery\.timeout\.ms=30004 must be at least linger\.ms=5"),
        ({"enable.auto.commit": True}, "unknown configuration enable.auto.commit"),
        ({"enable.idempotence": True, "acks": 1}, "enable.idempotence=True needs acks=all; it is 1"),
        ({"enable.idempotence": "true", "retries": 0}, "needs retries"),
        ({"max.in.flight.requests.per.connection": 6}, "at most 5; it is 6"),
        ({"enable.idempotence": "yes"}, "expected true or false"),
        ({"transactional.id": ""}, "transactional.id: '' .*not empty"),
        ({"transactional.id": "a", "acks": 1}, "transactional.id='a' needs enable.idempotence"),
    ],
)
def test_an_invalid_producer_config_is_refused_and_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProducerConfig.parse(settings)


@pytest.mark.parametrize(
    ("settings", "idempotent"),
    [
        ({}, True),
        ({"enable.idempotence": "true"}, True),
        ({"enable.idempotence": False}, False),
        ({"enable.idempotence": False, "max.in.flight.requests.per.connection": 6}, False),
        ({"acks": 1}, False),
        ({"acks": 0, "max.in.flight.requests.per.connection": 6}, False),
        ({"retries": 0}, False),
    ],
)
def test_a_producer_is_idempotent_unless_its_configs_exclude_it(settings: dict[str, Any], idempotent: bool) -> None:
    assert ProducerConfig.parse(settings).enable_idempotence is idempotent


def test_a_transactional_id_of_none_is_the_default() -> None:
    assert ProducerConfig.parse({"transactional.id": None}) == ProducerConfig.parse()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (CompressionType.NONE, None)),
        ({"compression.type": "gzip"}, (CompressionType.GZIP, None)),
        ({"compression.type": "gzip", "compression.gzip.level": 1}, (CompressionType.GZIP, 1)),
        ({"compression.type": "lz4", "compression.lz4.level": 3}, (CompressionType.LZ4, 3)),
        ({"compression.type": "zstd", "compression.zstd.level": 7}, (CompressionType.ZSTD, 7)),
        ({"compression.type": "snappy", "compression.zstd.level": 7}, (CompressionType.SNAPPY, None)),
    ],
)
def test_the_compression_level_is_that_of_the_chosen_compression_type(
    settings: dict[str, Any], expected: tuple[CompressionType, int | None]
) -> None:
    config = ProducerConfig.parse(settings)

    assert (config.compression_type, config.compression_level) == expected


def test_interceptors_and_partitioner_are_objects() -> None:
    interceptor = ProducerInterceptor()
    config = ProducerConfig.parse(
        {"interceptor.classes": [interceptor], "partitioner.class": lambda topic, key, value, partitions: 0}
    )

    assert config.interceptor_classes == (interceptor,)
    assert callable(config.partitioner_class)
