"""The first batch that an idempotent producer's partition may have (KAFKA-15591)."""

from __future__ import annotations

import pathlib

from kio.schema.errors import ErrorCode

from klamm import Admin, TopicPartition
from tests.clients.scenarios import create_topic
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import running_cluster
from tests.support.pipelined_producer import PipelinedProducer

OK, OUT_OF_ORDER = ErrorCode.none, ErrorCode.out_of_order_sequence_number


def test_no_record_is_lost_if_the_second_request_reaches_a_new_partition_first(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path) as klamm, KafkaWire(klamm.kafka_bootstrap) as wire:
        create_topic(wire, "t")
        producer = PipelinedProducer(wire, "t")
        assert producer.send([b"second"], first_sequence=1) == [OUT_OF_ORDER]
        assert producer.send([b"first", b"second"], first_sequence=0) == [OK, OK]


def test_a_partition_whose_records_were_all_deleted_accepts_any_sequence_of_a_new_producer(
    tmp_path: pathlib.Path,
) -> None:
    with running_cluster(tmp_path) as klamm, KafkaWire(klamm.kafka_bootstrap) as wire:
        create_topic(wire, "t")
        assert PipelinedProducer(wire, "t").send([b"deleted"], first_sequence=0) == [OK]
        with Admin(bootstrap_servers=klamm.bootstrap) as admin:
            assert admin.delete_records({TopicPartition("t", 0): -1}) == {TopicPartition("t", 0): 1}
        assert PipelinedProducer(wire, "t").send([b"later"], first_sequence=17) == [OK]
