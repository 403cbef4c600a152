"""`klamm perf` measures a cluster with records like those of the user, and leaves no topics behind."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from klamm import Admin, Producer
from klamm_cli.perf.own_topic import PREFIX
from klamm_cli.perf.sample_reader import read_sample
from tests.support.cli_runner import KlammCommand
from tests.support.cli_terminal import start
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience, wait_until

FAILED, USAGE = 1, 2
STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143}
ONE = ("--compression", "none", "--batch-size", 16_384)
COMMANDS = {"produce": (*ONE, "--acks", "all", "--fsync", "no"), "consume": ONE, "end-to-end": ("--acks", "all")}


@pytest.fixture(scope="module")
def klamm(tmp_path_factory):
    """Runs commands against a cluster of this file's own, because its tests list all topics."""
    with running_cluster(tmp_path_factory.mktemp("perf")) as cluster:
        yield KlammCommand(cluster.bootstrap)


@pytest.fixture(autouse=True)
def no_topics_stay(klamm):
    yield
    assert own_topics(klamm) == []


def own_topics(klamm):
    listed = klamm.ok("topics", "list", "--json").document
    return [row["topic"] for row in listed if row["topic"].startswith(PREFIX)]


FOR_EVER = ("-n", "1000000000")
WARM_UP_RECORDS = 10_001
"""The most records that a warm-up sends to its topic."""


def begun_topic(klamm, process):
    """Waits until the process has sent more records than a warm-up does. Returns the topic of the measurement."""
    found = []

    def has_begun():
        assert process.poll() is None, process.stderr.read()
        for name in own_topics(klamm):
            described = klamm("topics", "describe", name, "--json")
            # The topic of the warm-up may be gone.
            if described.status == 0 and sum(row["end_offset"] or 0 for row in described.document) > WARM_UP_RECORDS:
                found.append(name)
        return bool(found)

    wait_until(has_begun, lambda: str(own_topics(klamm)), pause_s=0.05)
    return found[0]


def fill(klamm, topic, count=50):
    """Sends records of different sizes with keys, values that may be null, and headers. Returns them."""
    records = [
        (b"key-%d" % (number % 7), None if number % 10 == 3 else bytes([number]) * number, (("n", b"%d" % number),))
        for number in range(count)
    ]
    with Producer(bootstrap_servers=klamm.bootstrap) as producer:
        for key, value, headers in records:
            producer.send(topic, value, key, headers=headers)
    return records


def test_produce_measures_every_combination_and_recommends_a_topic(klamm):
    document = klamm.ok(
        *("perf", "produce", "--size", 200, "-n", 300, "--acks", "all,1,0", "--batch-size", "0,4096"),
        *("--compression", "none,gzip,snappy,lz4,zstd", "--fsync", "no,yes", "--partitions", 2, "--json"),
        *("--target-mb-s", 50, "--consumer-records-s", 25_000),
    ).document
    assert (document["record_bytes"], document["partitions"], document["replication_factor"]) == (200, 2, 1)
    rows = document["measurements"]
    assert len(rows) == 60
    assert len({(row["acks"], row["batch_size"], row["compression"], row["fsync"]) for row in rows}) == 60
    assert all(row["records_s"] > 0 and row["mb_s"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    ratio = {row["compression"]: row["stored_ratio"] for row in rows if row["batch_size"] == 4_096}
    assert ratio["zstd"] < 0.9 < ratio["none"]
    recommended = document["recommendation"]
    assert (recommended["acks"], recommended["fsync"], recommended["records_s"]) == ("all", False, 250_000)
    assert recommended["partitions_for_consumers"] == 10
    assert recommended["partitions"] >= 10


def test_consume_measures_each_codec(klamm):
    document = klamm.ok("perf", "consume", "-n", 500, "--compression", "none,zstd", "--runs", 2, "--json").document
    rows = document["measurements"]
    assert [(row["batch_size"], row["compression"]) for row in rows] == [
        (16_384, "none"),
        (16_384, "zstd"),
        (1_000_000, "none"),
        (1_000_000, "zstd"),
    ]
    assert all(row["records_s"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in rows)


def test_consume_recommends_by_the_rate_of_the_users_consumer(klamm):
    target = ("--target-mb-s", 1, "--consumer-records-s", 2_000)
    ended = klamm.ok("perf", "consume", "-n", 500, *COMMANDS["consume"], *target)
    assert "1 MB/s and consumers of 2,000 records/s: 5 partitions, none, 1 replica" in ended.out


def test_end_to_end_measures_at_a_rate(klamm):
    document = klamm.ok("perf", "end-to-end", "-n", 200, "--rate", 2_000, "--acks", "all,0", "--json").document
    rows = document["measurements"]
    assert [(row["acks"], row["fsync"]) for row in rows] == [("all", False), ("0", False), ("all", True), ("0", True)]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] and row["records_s"] < 4_000 for row in rows)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_has_a_row_for_each_measurement(klamm, command):
    ended = klamm.ok("perf", command, "--seconds", 0.1, *COMMANDS[command])
    header, *rows = ended.out.splitlines()
    assert header.split()[-10:] == ["RECORDS", "S", "MB", "S", "STORED", "RATIO", "P50", "MS", "P99", "MS"]
    assert len(rows) == (2 if command == "end-to-end" else 1)


def test_a_sample_has_the_records_of_a_topic(klamm, topic):
    records = fill(klamm, topic)
    with Admin(bootstrap_servers=klamm.bootstrap) as admin:
        sample = read_sample(admin, {"bootstrap.servers": klamm.bootstrap}, topic)
    assert sample is not None
    assert Counter(sample.records) == Counter(records)


@pytest.mark.parametrize("number", STATUSES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_the_command_and_deletes_its_topic(klamm, topic, command, number):
    fill(klamm, topic)
    rate = ("--rate", "1000000") if command == "end-to-end" else ()
    options = ("--like", topic, *FOR_EVER, *rate, *map(str, COMMANDS[command]))
    with start(klamm, "perf", command, *options) as process:
        begun_topic(klamm, process)
        process.send_signal(number)
        assert process.wait(patience()) == STATUSES[number]
        assert process.stderr.read() == b""
        assert process.stdout.read() == b""


@pytest.mark.parametrize("fsync", ["no", "yes"])
def test_the_topic_of_a_run_has_the_users_records_and_the_wanted_configs(klamm, topic, fsync):
    records = fill(klamm, topic)
    options = ("--like", topic, *FOR_EVER, *map(str, ONE), "--acks", "1", "--fsync", fsync)
    with start(klamm, "perf", "produce", *options, "--topic-config", "retention.ms=3600000") as process:
        own = begun_topic(klamm, process)
        read = klamm.ok("consume", own, "--from", "beginning", "-n", 200, "--json").documents
        configs = klamm.ok("configs", "describe", "--topic", own, "--json").document
        process.send_signal(signal.SIGINT)
        assert process.wait(patience()) == STATUSES[signal.SIGINT]
    sent = Counter((each["key"], each["value"], json.dumps(each["headers"])) for each in read)
    assert {key for key, _, _ in sent} == {key.decode() for key, _, _ in records}
    assert len(sent) == len(records)
    values = {row["name"]: row["value"] for row in configs}
    assert values["retention.ms"] == "3600000"
    assert (values["flush.messages"] == "1") is (fsync == "yes")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_record_that_the_cluster_refuses_ends_the_command(klamm, command):
    options = ("--size", 5_000, "-n", 100, *COMMANDS[command], "--topic-config", "max.message.bytes=1000")
    assert "MESSAGE_TOO_LARGE" in klamm.refused(FAILED, "perf", command, *options)


@pytest.mark.parametrize(
    ("status", "arguments", "text"),
    [
        (USAGE, ("produce", "--acks", "2"), "--acks '2': expected some of all, 1, 0"),
        (USAGE, ("produce", "--config", "acks=1"), "--config acks: use --acks"),
        (USAGE, ("produce", "--config", "value.serializer=json"), "the records are sent and read as they are"),
        (USAGE, ("consume", "--batch-size", "many"), "--batch-size 'many': expected numbers of bytes"),
        (USAGE, ("consume", "--like", "any", "--size", "1"), "--like and --size exclude each other"),
        (FAILED, ("end-to-end", "--like", "missing"), "'missing' does not exist"),
        (FAILED, ("produce", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (FAILED, ("produce", "--topic-config", "frob=1"), "unknown config frob"),
    ],
)
def test_wrong_options_are_errors_of_one_line(klamm, status, arguments, text):
    assert text in klamm.refused(status, "perf", *arguments)


def test_a_topic_without_records_is_no_sample(klamm, topic):
    assert f"topic {topic} has no records to measure with" in klamm.refused(FAILED, "perf", "consume", "--like", topic)


def test_a_small_sample_is_named_because_codecs_look_too_good_with_it(klamm, topic):
    fill(klamm, topic)
    ended = klamm.ok("perf", "produce", "--like", topic, "-n", 100, "--acks", "1", "--fsync", "no")
    assert "less than a batch" in ended.err
    assert "less than a batch" not in klamm.ok("perf", "produce", "-n", 100, "--acks", "1", "--fsync", "no").err
