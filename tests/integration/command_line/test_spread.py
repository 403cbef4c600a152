"""`klamm topics spread` copies a topic exactly once and in order, and moves its groups."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from klamm import Admin, Consumer, Producer, TopicPartition
from klamm.model import LATEST_TIMESTAMP
from klamm.offsets import ConsumerGroupMetadata
from klamm_cli.spread.facts import Names, partitions_of
from tests.support import seeds
from tests.support.spreading import (
    Writing,
    check_topic,
    check_values,
    copied_offsets,
    fill,
    has_boundary,
    read_as_group,
    spreading,
)
from tests.support.topic_reading import read_topics
from tests.support.waiting import wait_until

FAILED, USAGE, INTERRUPTED = 1, 2, 130
SOME = 3_000


@pytest.fixture
def source(klamm, topic):
    """Returns a topic with records in three partitions."""
    fill(klamm.bootstrap, topic, 0, SOME)
    return topic


@pytest.fixture
def admin(klamm):
    with Admin(bootstrap_servers=klamm.bootstrap) as admin:
        yield admin


def test_a_topic_that_is_written_to_is_copied_once_and_in_order(klamm, source):
    target = f"{source}-copy"
    with Writing(klamm.bootstrap, source, SOME) as writing:
        first = klamm.ok("topics", "spread", source, target, "--partitions", 7, "--json").document
        assert (first["phase"], first["boundary"]) == ("copy", [])
        assert first["copied"] >= SOME
        growing = klamm.refused(FAILED, "topics", "spread", source, target, "--partitions", 7, "--cut")
        assert f"{source} still grows" in growing
    last = klamm.ok("topics", "spread", source, target, "--partitions", 7, "--cut", "--json").document
    assert (last["phase"], last["left"], last["late"], last["groups"]) == ("groups", 0, 0, [])
    assert len(last["boundary"]) == 7
    check_topic(klamm.bootstrap, target, writing.end)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_every_record_once_and_in_order_over_both_topics(klamm, source, protocol):
    target = f"{source}-copy"
    settings = {
        "bootstrap_servers": klamm.bootstrap,
        "group_id": source,
        "group_protocol": protocol,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    by_key = defaultdict(list)
    command = (source, target, "--partitions", 5, "--cut", "--json")
    with spreading(klamm.bootstrap, *command) as process:
        with Admin(bootstrap_servers=klamm.bootstrap) as admin, Consumer(**settings) as consumer:
            consumer.subscribe([source])
            read_as_group(consumer, by_key, SOME // 2)
            wait_until(lambda: has_boundary(admin, source, target))
            assert not process.has_ended
            fill(klamm.bootstrap, target, SOME, 2 * SOME)
            read_as_group(consumer, by_key, SOME // 2)
        status, out = process.finish()
    assert status == 0, out
    assert f"group {source} is moved: start its members on {target}" in out
    with Consumer(**settings) as consumer:
        consumer.subscribe([target])
        read_as_group(consumer, by_key, SOME)
        assert consumer.poll(timeout_ms=500) == {}
    check_values(by_key, 2 * SOME, story=f"group {source}")


def test_a_killed_command_continues_without_loss_or_double(klamm, source, admin):
    """The command is killed at random places of the copy, before the cut, and while it waits for a group."""
    rng, target, count = random.Random(seeds.run_seed()), f"{source}-copy", 10 * SOME
    print(f"seed {seeds.run_seed()}")
    fill(klamm.bootstrap, source, SOME, count)
    klamm.ok("consume", source, "--group", source, "--from", "beginning", "--count", 10)
    command, own = (source, target, "--partitions", 8, "--cut"), f"klamm-spread-{source}-{target}"
    moments = [
        lambda: target in admin.list_topics(),
        *(
            lambda least=least: copied_offsets(admin, target) >= least
            for least in sorted(rng.randrange(1, count) for _ in range(5))
        ),
        lambda: admin.describe_group_lag([own])[own].lag == 0,
        lambda: has_boundary(admin, source, target),
    ]
    kills = 0
    for has_come in moments:
        with spreading(klamm.bootstrap, *command) as process:
            wait_until(lambda has_come=has_come, process=process: has_come() or process.has_ended)
            if process.has_ended:
                # The command was faster than the look-up of its offsets. The next run ends at once, too.
                assert has_boundary(admin, source, target), process.finish()
                break
            process.kill()
            kills += 1
    assert kills >= 3
    klamm.ok("consume", source, "--group", source, "--exit")
    last = klamm.ok("topics", "spread", *command, "--json").document
    assert [(each["group"], each["step"]) for each in last["groups"]] == [(source, "moved")]
    check_topic(klamm.bootstrap, target, count)
    assert klamm.ok("consume", target, "--group", source, "--exit").out == ""


def test_ctrl_c_ends_the_copy_in_good_order(klamm, source, admin):
    target, count = f"{source}-copy", 10 * SOME
    fill(klamm.bootstrap, source, SOME, count)
    with spreading(klamm.bootstrap, source, target, "--partitions", 8) as process:
        wait_until(lambda: copied_offsets(admin, target) > 0 or process.has_ended)
        process.interrupt()
        status, out = process.finish()
    assert (status, "Traceback" in out) == (INTERRUPTED, False), out
    klamm.ok("topics", "spread", source, target, "--partitions", 8, "--cut")
    check_topic(klamm.bootstrap, target, count)


def test_groups_that_are_not_ready_are_listed_with_what_to_do(klamm, source):
    target, read = f"{source}-copy", f"{source}-read"
    klamm.ok("consume", source, "--group", read, "--from", "beginning", "--exit")
    klamm.ok("consume", source, "--group", source, "--from", "beginning", "--count", 1000)
    command = ("topics", "spread", source, target, "--partitions", 4, "--no-wait")
    planned = klamm.ok(*command, "--dry-run").out.splitlines()
    assert planned[:2] == [f"would create {target} with 4 partitions", f"would copy {SOME:,} records of {source}"]
    assert target not in klamm.ok("topics", "list").out
    said = klamm.ok(*command, "--cut").out
    assert f"group {read} is moved: start its members on {target}" in said
    assert f"group {source} has 2,000 records of {source} to read and no members: start it on {source}" in said
    klamm.ok("consume", source, "--group", source, "--exit")
    document = klamm.ok(*command, "--json").document
    assert {each["step"] for each in document["groups"]} == {"moved"}
    assert f"`klamm topics delete {source}`" in klamm.ok(*command).out


def test_records_that_come_after_the_cut_are_reported(klamm, source):
    command = ("topics", "spread", source, f"{source}-copy", "--partitions", 4)
    klamm.ok(*command, "--cut")
    fill(klamm.bootstrap, source, SOME, SOME + 3)
    assert f"producers wrote 3 records to {source} after the cut" in klamm.refused(FAILED, *command)


def test_a_target_that_others_wrote_to_is_refused(klamm, source):
    target = f"{source}-copy"
    command = ("topics", "spread", source, target, "--partitions", 4)
    klamm.ok("topics", "create", target, "--partitions", 4)
    klamm.ok(*command)
    klamm.ok("produce", target, stdin="early\n")
    assert f"other producers have written to {target}-" in klamm.refused(FAILED, *command, "--cut")
    klamm.ok("groups", "delete", f"klamm-spread-{source}-{target}")
    assert f"topic {target} has records that this command did not copy" in klamm.refused(FAILED, *command)


def test_an_open_transaction_in_the_source_is_waited_out(klamm, source):
    command = ("topics", "spread", source, f"{source}-copy", "--partitions", 4, "--cut")
    with Producer(bootstrap_servers=klamm.bootstrap, transactional_id=source) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(source, b"aborted", b"key").result()
        assert f"{source} has an open transaction" in klamm.refused(FAILED, *command)
        producer.abort_transaction()
    klamm.ok(*command)
    check_topic(klamm.bootstrap, f"{source}-copy", SOME)


def test_the_target_has_the_configs_of_the_source(klamm, topic):
    klamm.ok("configs", "alter", "--topic", topic, "--set", "cleanup.policy=compact", "--set", "retention.ms=-1")
    klamm.ok("topics", "spread", topic, f"{topic}-copy", "--partitions", 4)
    entries = klamm.ok("configs", "describe", "--topic", f"{topic}-copy", "--json").document
    found = {entry["name"]: entry["value"] for entry in entries}
    assert (found["cleanup.policy"], found["retention.ms"]) == ("compact", "-1")


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("missing", "copy", "--partitions", 4), FAILED, "'missing' does not exist"),
        (("{topic}", "{topic}", "--partitions", 4), USAGE, "expected another topic than SOURCE"),
        (("{topic}", "copy", "--partitions", 3), FAILED, "expected more than the 3 partitions"),
        (("__consumer_offsets", "copy", "--partitions", 400), FAILED, "is internal and cannot be spread"),
        (("{topic}", "a/b", "--partitions", 4), FAILED, "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_wrong_topics_and_numbers_are_refused(klamm, topic, arguments, status, text):
    klamm.ok("consume", topic, "--group", topic, "--exit")  # makes __consumer_offsets
    words = [argument.format(topic=topic) if isinstance(argument, str) else argument for argument in arguments]
    assert text in klamm.refused(status, "topics", "spread", *words)


def test_records_that_retention_deletes_before_they_are_copied_are_skipped(klamm, topic, admin):
    command = (topic, f"{topic}-copy", "--partitions", 4)
    klamm.ok("topics", "spread", *command)
    fill(klamm.bootstrap, topic, 0, SOME)
    tps = partitions_of(topic, 3)
    ends = [offset.offset for _, offset in sorted(admin.list_offsets(dict.fromkeys(tps, LATEST_TIMESTAMP)).items())]
    # Deletes all records of the first partition, and a half of those of the second one.
    admin.delete_records({tps[0]: ends[0], tps[1]: ends[1] // 2})
    last = klamm.ok("topics", "spread", *command, "--cut", "--json").document
    assert (last["phase"], last["copied"]) == ("groups", SOME - ends[0] - ends[1] // 2)
    copied = read_topics(klamm.bootstrap, f"{topic}-copy")
    assert len(copied) == last["copied"]


def test_a_run_ends_the_transaction_of_a_killed_copier_and_a_dry_run_does_not(klamm, source, admin):
    names = Names(source, f"{source}-copy")
    command = ("topics", "spread", source, names.target, "--partitions", 4)
    klamm.ok(*command)
    fill(klamm.bootstrap, source, SOME, SOME + 100)
    (stored,) = admin.list_group_offsets(names.group_id, [TopicPartition(source, 0)]).values()
    killed = Producer(bootstrap_servers=klamm.bootstrap, transactional_id=names.transactional_id(0))
    killed.init_transactions()
    killed.begin_transaction()
    killed.send(names.target, b"-1", b"copied twice", partition=0).result()
    offsets = {TopicPartition(source, 0): stored._replace(offset=stored.offset + 1)}
    killed.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(names.group_id))
    said = klamm.refused(FAILED, *command, "--dry-run")
    assert f"a transaction of {names.group_id} is open" in said
    klamm.ok(*command, "--cut")
    killed.close(0)
    check_topic(klamm.bootstrap, names.target, SOME + 100)
