"""Tests the size of a topic, with figures that were computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from klamm_cli.sizing import Need, size_of

NEED = Need(
    target_mb_s=50,
    record_bytes=5_000,
    partition_mb_s=30,
    consumer_records_s=900,
    retention_s=7 * 86_400,
    broker_count=3,
    stored_ratio=0.4,
    group_count=2,
)


def test_a_topic_for_50_mb_s_has_the_partitions_of_its_consumers():
    size = size_of(NEED)
    assert (size.records_s, size.partitions_for_producers, size.partitions_for_consumers) == (10_000, 2, 12)
    assert size.partitions == 12


def test_disk_and_network_count_bytes_after_compression_and_each_replica():
    size = size_of(NEED)
    # 20 MB/s for 604,800 s, three times, and 20 % to spare.
    assert size.disk_bytes == pytest.approx(43_545_600_000_000, abs=1)
    assert size.network_in_mb_s == pytest.approx(20)
    assert size.network_replication_mb_s == pytest.approx(40)
    assert size.network_out_mb_s == pytest.approx(40)


@pytest.mark.parametrize(
    ("change", "partitions"),
    [
        ({"consumer_records_s": None}, 3),
        ({"consumer_records_s": None, "broker_count": 1}, 2),
        ({"consumer_records_s": None, "partition_mb_s": None, "broker_count": 1}, 1),
        ({"partition_mb_s": 1}, 51),
        ({"broker_count": 5}, 15),
        ({"consumer_records_s": 10_000, "broker_count": 1}, 2),
        ({"target_mb_s": 0.001}, 3),
    ],
)
def test_the_larger_need_decides_and_each_broker_leads_equally_many(change, partitions):
    assert size_of(replace(NEED, **change)).partitions == partitions


@pytest.mark.parametrize("record_bytes", [0.1, 0.3, 0.7, 1.1, 3.3])
def test_a_rate_that_goes_into_the_target_exactly_needs_no_partition_more(record_bytes):
    need = Need(target_mb_s=3 * record_bytes, record_bytes=record_bytes, consumer_records_s=1_000_000)
    assert size_of(need).partitions == 3


def test_without_a_retention_there_is_no_disk():
    assert size_of(replace(NEED, retention_s=None)).disk_bytes is None


def test_one_replica_sends_nothing_between_brokers():
    assert size_of(replace(NEED, replication_factor=1)).network_replication_mb_s == 0
