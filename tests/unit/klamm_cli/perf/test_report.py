"""Tests the rows of `klamm perf`, and what it recommends."""

from __future__ import annotations

import shlex

import pytest

from klamm_cli.perf.matrix import Cell
from klamm_cli.perf.measurement import Measurement, median
from klamm_cli.perf.report import (
    Wish,
    best,
    document_of,
    recommend_from_consume,
    recommend_from_produce,
    row,
    sentences,
)
from tests.support.cli_runner import KlammCommand

klamm = KlammCommand("127.0.0.1:1")
WISH = Wish(target_mb_s=50, consumer_records_s=900, replication_factor=3, broker_count=3)


def measured(mb_s, *, acks="all", compression="none", fsync=False, ratio=1.0):
    """Returns a measurement of one second, with records of 5,000 B."""
    cell = Cell(acks=acks, batch_size=16_384, compression=compression, fsync=fsync)
    return Measurement(
        cell=cell,
        records=round(mb_s * 200),
        size_bytes=round(mb_s * 1e6),
        stored_bytes=round(mb_s * 1e6 * ratio),
        seconds=1.0,
        p50_ms=1.234,
        p99_ms=None,
    )


def test_a_row_has_the_settings_and_rounded_figures():
    assert row(measured(30.126, ratio=0.333), ("compression", "acks")) == ("none", "all", 6025, 30.13, 0.33, 1.23, None)


def test_the_median_of_an_even_number_of_runs_is_the_slower_one():
    runs = [measured(rate) for rate in (4, 1, 3, 2)]
    assert median(runs).mb_s == 2
    assert median(runs[:3]).mb_s == 3


def test_the_fastest_of_the_safest_acks_without_fsync_is_recommended():
    slow, fast = measured(10), measured(20)
    assert best([measured(99, acks="1"), slow, fast, measured(50, fsync=True), measured(98, acks="0")]) is fast


def test_if_all_measurements_have_fsync_one_of_them_is_recommended():
    assert best([measured(10, fsync=True, acks="1")]).cell.fsync


def test_of_nearly_equal_rates_the_one_with_the_fewest_stored_bytes_is_recommended():
    zstd = measured(91, compression="zstd", ratio=0.3)
    assert best([measured(100), measured(95, compression="lz4", ratio=0.5), zstd]) is zstd
    assert best([measured(100), measured(89, compression="zstd", ratio=0.3)]).cell.compression == "none"


def test_a_few_bytes_less_do_not_outweigh_a_higher_rate():
    assert best([measured(100, ratio=1.1), measured(95, compression="lz4", ratio=1.08)]).cell.compression == "none"


def test_the_recommendation_from_a_producer_counts_producers_and_consumers():
    found = recommend_from_produce([measured(30, compression="zstd", ratio=0.4)], 1, WISH)
    assert (found.size.partitions, found.producers) == (12, 2)
    assert sentences(found) == [
        "50 MB/s and consumers of 900 records/s: 12 partitions, zstd, 3 replicas",
        "producers need 2 partitions: one carries 30.0 MB/s with acks=all, batch.size=16384, zstd; the target takes 2"
        " producers like this one",
        "consumers need 12 partitions: the target is 10,000 records/s of 5,000 B",
        "disk and network: klamm topics size --target-mb-s 50 --record-bytes 5000 --partition-mb-s 30"
        " --consumer-records-s 900 --stored-ratio 0.4 --replication-factor 3 --brokers 3 --retention 7d",
    ]


def test_a_producer_of_several_partitions_counts_with_its_share_of_each():
    assert recommend_from_produce([measured(30)], 3, WISH).need.partition_mb_s == 10


def test_the_recommended_command_computes_the_same_topic():
    found = recommend_from_produce([measured(30)], 1, WISH)
    words = shlex.split(sentences(found)[-1].partition(": klamm ")[2])
    assert klamm.ok(*words, "--json").document["partitions"] == found.size.partitions


@pytest.mark.parametrize(("rate", "partitions"), [(None, 3), (900, 12), (1e9, 3)])
def test_a_consumer_counts_as_fast_as_it_was_measured_or_as_the_user_says_if_that_is_less(rate, partitions):
    wish = Wish(target_mb_s=50, consumer_records_s=rate, replication_factor=1, broker_count=1)
    found = recommend_from_consume([measured(20)], wish)
    assert found.size.partitions == partitions
    assert len(sentences(found)) == 3


def test_the_document_has_the_settings_and_the_size():
    document = document_of(recommend_from_produce([measured(30)], 1, WISH))
    assert (document["compression"], document["partitions"], document["producers"]) == ("none", 12, 2)
    assert "retention_s" not in document
