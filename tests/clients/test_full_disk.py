"""Klamm and Apache Kafka with a full disk, asked the same."""

from __future__ import annotations

import pathlib

import pytest
from kio.schema.errors import ErrorCode

from tests.clients.scenarios import create_topic
from tests.support.apache_kafka import running_kafka
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import running_cluster
from tests.support.pipelined_producer import PipelinedProducer
from tests.support.small_disk import fill, make_space, small_disk
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

PARTITIONS = 4
SMALL_MIB = 64
LEFT_BYTES = 64 << 10
VALUES = [bytes(500_000), b"fits", b"fits, too"]
"""The value of each batch. Only the first is larger than the space that is left."""
REFUSED = [ErrorCode.kafka_storage_error] * len(VALUES)
ACCEPTED = [ErrorCode.none] * len(VALUES)


def test_kafka_refuses_all_batches_after_one_for_which_its_disk_had_no_space(tmp_path: pathlib.Path) -> None:
    """Its directory is then offline until a restart. It has another directory, because a broker without any stops."""
    with small_disk(tmp_path / "small", SMALL_MIB) as disk:
        small, other = disk / "kafka", tmp_path / "other"
        settings = {"log.dirs": f"{small},{other}", "metadata.log.dir": str(other)}
        with running_kafka(tmp_path, settings=settings) as kafka:
            with KafkaWire(kafka.bootstrap) as wire:
                create_topic(wire, "t", PARTITIONS)
            partitions = range(PARTITIONS)
            partition = wait_until(lambda: [one for one in partitions if (small / f"t-{one}").is_dir()])[0]
            assert answers(kafka.bootstrap, disk, partition) == (REFUSED, REFUSED)


def test_klamm_refuses_all_batches_after_one_for_which_its_disk_had_no_space(tmp_path: pathlib.Path) -> None:
    """It accepts them when there is space again (docs/decisions/026)."""
    with small_disk(tmp_path / "small", SMALL_MIB) as disk, running_cluster(disk) as klamm:
        with KafkaWire(klamm.kafka_bootstrap) as wire:
            create_topic(wire, "t", PARTITIONS)
        assert answers(klamm.kafka_bootstrap, disk, 0) == (REFUSED, ACCEPTED)


def answers(bootstrap: str, disk: pathlib.Path, partition: int) -> tuple[list[ErrorCode], list[ErrorCode]]:
    """Sends an idempotent producer's batches to the partition on a full disk, and sends them again when there is space.
    Returns the error codes of both times."""
    with KafkaWire(bootstrap) as wire:
        producer = PipelinedProducer(wire, "t", partition)
        assert producer.send([b"before"], first_sequence=0) == [ErrorCode.none]
        fill(disk, left_bytes=LEFT_BYTES)
        at_first = producer.send(VALUES, first_sequence=1)
        make_space(disk)
        return at_first, producer.send(VALUES, first_sequence=1)
