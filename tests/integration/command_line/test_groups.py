"""`klamm groups` describes groups, resets and deletes their offsets, and removes their members."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from klamm import Consumer
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster
from tests.support.waiting import wait_until

FAILED, USAGE = 1, 2


def test_consume_with_a_group_commits_the_printed_records_and_continues_after_them(klamm, topic):
    klamm.ok("produce", topic, "-p", 1, stdin="a\nb\nc\n")
    group = ("--group", topic, "--from", "beginning")
    assert klamm.ok("consume", topic, *group, "-n", 2).out.split() == ["a", "b"]
    described = klamm.ok("groups", "describe", topic, "--json").document
    assert (described["group"], described["state"], described["members"]) == (topic, "Empty", 0)
    by_partition = {row["partition"]: row for row in described["partitions"]}
    assert (by_partition[1]["committed"], by_partition[1]["end_offset"], by_partition[1]["lag"]) == (2, 3, 1)
    assert klamm.ok("consume", topic, *group, "--exit").out.split() == ["c"]
    assert klamm.ok("consume", topic, *group, "--exit").out == ""
    described = klamm.ok("groups", "describe", topic)
    assert [topic, "1", "3", "3", "0", "0", "0", "-"] in described.rows
    assert "has read everything" in described.err
    assert [topic, "classic", "Empty", "consumer"] in klamm.ok("groups", "list").rows
    assert topic in klamm.ok("groups", "list", "--state", "empty").out
    assert topic not in klamm.ok("groups", "list", "--state", "Stable").out


def test_a_new_group_consumes_from_the_end_by_default(klamm, topic):
    klamm.ok("produce", topic, stdin="a\nb\n")
    assert klamm.ok("consume", topic, "--group", topic, "--exit").out == ""


def test_offsets_are_reset(klamm, topic):
    klamm.ok("produce", topic, "-p", 0, stdin="a\nb\nc\n")
    klamm.ok("consume", topic, "--group", topic, "--from", "beginning", "--exit")

    def committed():
        partitions = klamm.ok("groups", "describe", topic, "--json").document["partitions"]
        return {row["partition"]: row["committed"] for row in partitions}

    assert committed()[0] == 3
    (dry,) = klamm.ok("groups", "reset", topic, "--to", "earliest", "-t", f"{topic}:0", "--dry-run", "--json").document
    assert (dry["before"], dry["after"], dry["skipped"]) == (3, 0, 0)
    assert committed()[0] == 3
    for to, expected in [
        ("earliest", 0),
        ("latest", 3),
        ("2", 2),
        ("999", 3),
        ("1d", 0),
        ("2100-01-01", 3),
        ("-2", 1),
        ("now", 3),
        ("@0", 0),
    ]:
        klamm.ok("groups", "reset", topic, "--to", to, "--all-topics")
        assert committed()[0] == expected, to
    assert committed()[0] == 0
    (skipping,) = klamm.ok("groups", "reset", topic, "--to", "end", "-t", f"{topic}:0", "--json").document
    assert (skipping["before"], skipping["after"], skipping["skipped"]) == (0, 3, 3)
    klamm.ok("groups", "reset", topic, "--to", 1, "--topic", topic)
    assert klamm.ok("consume", topic, "--group", topic, "--exit").out.split() == ["b", "c"]


def test_a_reset_of_all_topics_asks_first(klamm, topic):
    klamm.ok("produce", topic, stdin="a\nb\n")
    klamm.ok("consume", topic, "--group", topic, "--from", "beginning", "--exit")
    refused = klamm.refused(USAGE, "groups", "reset", topic, "--to", "beginning")
    assert f"has offsets of {topic}: name some of them with --topic, or add --all-topics" in refused
    assert "exclude each other" in klamm.refused(
        USAGE, "groups", "reset", topic, "--to", 1, "-t", topic, "--all-topics"
    )
    assert answered(klamm, "n", "groups", "reset", topic, "--to", "beginning") == FAILED
    assert klamm.ok("consume", topic, "--group", topic, "--exit").out == ""
    assert answered(klamm, "y", "groups", "reset", topic, "--to", "beginning") == 0
    assert sorted(klamm.ok("consume", topic, "--group", topic, "--exit").out.split()) == ["a", "b"]


def answered(klamm, answer: str, *words: str) -> int:
    """Returns the exit status of the command on a terminal where a user answers its question."""
    master, slave = pty.openpty()
    os.write(master, f"{answer}\n".encode())
    environment = {**os.environ, "KLAMM_BOOTSTRAP": klamm.bootstrap}
    try:
        return subprocess.run(
            [sys.executable, "-m", "klamm", *words], stdin=slave, env=environment, check=False
        ).returncode
    finally:
        os.close(master)
        os.close(slave)


def test_offsets_and_groups_are_deleted(klamm, topic):
    klamm.ok("consume", topic, "--group", topic, "--from", "beginning", "--exit")
    klamm.ok("groups", "delete-offsets", topic, "--topic", f"{topic}:1")
    partitions = klamm.ok("groups", "describe", topic, "--json").document["partitions"]
    assert {row["partition"] for row in partitions if row["committed"] is not None} == {0, 2}
    assert klamm.ok("groups", "delete", topic, "--json").document["deleted"] == [topic]
    assert "GROUP_ID_NOT_FOUND" in klamm.refused(FAILED, "groups", "describe", topic)


def test_a_dry_run_deletes_no_offsets_and_no_group(klamm, topic):
    klamm.ok("consume", topic, "--group", topic, "--from", "beginning", "--exit")
    before = klamm.ok("groups", "describe", topic, "--json").document
    offsets = ("groups", "delete-offsets", topic, "--topic", f"{topic}:1", "--dry-run")
    assert klamm.ok(*offsets).out == f"would delete the offsets of {topic}-1\n"
    document = klamm.ok(*offsets, "--json").document
    assert document == {"group": topic, "deleted": [f"{topic}-1"], "validate_only": True}
    assert (
        klamm.ok("groups", "delete", topic, "--dry-run").out == f"would delete group {topic}: offsets of 3 partitions\n"
    )
    assert klamm.ok("groups", "describe", topic, "--json").document == before


def test_a_dry_run_refuses_to_change_a_group_with_members(klamm, topic):
    with Consumer(bootstrap_servers=klamm.bootstrap, group_id=topic, group_instance_id="a") as consumer:
        consumer.subscribe([topic])
        wait_until(consumer.assignment, between=lambda: consumer.poll(timeout_ms=50))
        for code, words in {
            "NON_EMPTY_GROUP": ("delete", topic),
            "GROUP_SUBSCRIBED_TO_TOPIC": ("delete-offsets", topic, "--topic", topic),
            "NON_EMPTY_GROUP: ": ("reset", topic, "--to", "beginning", "--topic", topic),
            "UNKNOWN_MEMBER_ID": ("remove-members", topic, "--instance", "b"),
        }.items():
            for options in (["--dry-run"], []):
                assert code in klamm.refused(FAILED, "groups", *words, *options)
        assert klamm.ok("groups", "remove-members", topic, "--instance", "a", "--dry-run").out == "would remove a\n"
        assert klamm.ok("groups", "remove-members", topic, "--all", "--dry-run").out == "would remove all members (1)\n"
        (member,) = klamm.ok("groups", "describe", topic, "--members", "--json").document
    assert member["instance"] == "a"


@pytest.mark.parametrize(
    "words",
    [("delete", "missing"), ("remove-members", "missing", "--all"), ("remove-members", "missing", "--instance", "i")],
)
def test_a_dry_run_refuses_groups_that_do_not_exist(klamm, words):
    for options in (["--dry-run"], []):
        klamm.refused(FAILED, "groups", *words, *options)


def test_a_group_can_be_described_after_one_of_its_topics_was_deleted(klamm, topic, name):
    other = f"{name}-other"
    klamm.ok("topics", "create", other)
    for each in (topic, other):
        klamm.ok("consume", each, "--group", name, "--from", "beginning", "--exit")
    klamm.ok("topics", "delete", other)
    described = klamm.ok("groups", "describe", name, "--json").document["partitions"]
    assert {row["partition"] for row in described if row["topic"] == topic} == {0, 1, 2}


def test_group_members_are_removed_by_instance_or_all_at_once(klamm, topic):
    for options in (("--instance", "a"), ("--all", "--reason", "moving house")):
        with Consumer(bootstrap_servers=klamm.bootstrap, group_id=topic, group_instance_id="a") as consumer:
            consumer.subscribe([topic])
            wait_until(consumer.assignment, between=lambda: consumer.poll(timeout_ms=50))
        (left,) = klamm.ok("groups", "describe", topic, "--members", "--json").document
        assert left["instance"] == "a"
        klamm.ok("groups", "remove-members", topic, *options)
        assert klamm.ok("groups", "describe", topic, "--members", "--json").document == []


def test_a_group_that_changes_its_protocol_shows_the_protocol_of_each_member(klamm, topic):
    settings = {"bootstrap_servers": klamm.bootstrap, "group_id": topic, "heartbeat_interval_ms": 100}
    with (
        Consumer(**settings, client_id="old", group_protocol="classic") as old,
        Consumer(**settings, client_id="new", group_protocol="consumer") as new,
    ):
        old.subscribe([topic])
        wait_until(old.assignment, between=lambda: old.poll(timeout_ms=50))
        new.subscribe([topic])
        wait_until(new.assignment, between=lambda: (old.poll(timeout_ms=50), new.poll(timeout_ms=50)))
        described = klamm.ok("groups", "describe", topic, "--json").document
        rows = klamm.ok("groups", "describe", topic, "--members", "--json").document
    assert (described["type"], described["members"]) == ("consumer", 2)
    assert {row["client"]: row["protocol"] for row in rows} == {"old": "classic", "new": "consumer"}


def test_a_group_with_members_is_described_but_cannot_be_reset_or_deleted(klamm, topic):
    with Consumer(bootstrap_servers=klamm.bootstrap, group_id=topic, client_id="reader") as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: len(consumer.assignment()) == 3, between=lambda: consumer.poll(timeout_ms=100))
        (member,) = klamm.ok("groups", "describe", topic, "--members", "--json").document
        assert member["client"] == "reader"
        assert len(member["assignment"]) == 3
        described = klamm.ok("groups", "describe", topic, "--json").document
        assert (described["state"], described["members"]) == ("Stable", 1)
        assert {row["owner"] for row in described["partitions"]} == {"reader"}
        assert "NON_EMPTY_GROUP" in klamm.refused(FAILED, "groups", "delete", topic)
        assert "NON_EMPTY_GROUP" in klamm.refused(FAILED, "groups", "reset", topic, "--to", "earliest", "-t", topic)
        line = klamm.refused(FAILED, "groups", "delete-offsets", topic, "--topic", topic)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in line


@pytest.mark.parametrize(
    ("status", "arguments", "complaint"),
    [
        (FAILED, ("describe", "missing"), "GROUP_ID_NOT_FOUND"),
        (FAILED, ("delete", "missing"), "GROUP_ID_NOT_FOUND"),
        (USAGE, ("reset", "missing", "--to", "earliest"), "has no offsets"),
        (FAILED, ("reset", "g", "--to", "earliest", "--topic", "missing"), "'missing' does not exist"),
        (USAGE, ("list", "--state", "Sleepy"), "there is no state Sleepy; expected Empty"),
        (USAGE, ("remove-members", "g"), "--instance, or all with --all"),
        (USAGE, ("remove-members", "g", "--instance", "i", "--all"), "--instance, or all with --all"),
        (FAILED, ("remove-members", "missing", "--all"), "GROUP_ID_NOT_FOUND"),
        (FAILED, ("remove-members", "missing", "--instance", "i"), "UNKNOWN_MEMBER_ID"),
    ],
)
def test_wrong_group_commands_are_refused_with_the_reason(klamm, status, arguments, complaint):
    assert complaint in klamm.refused(status, "groups", *arguments)


def test_a_reset_to_an_unknown_partition_or_position_is_refused(klamm, topic):
    reset = ("groups", "reset", topic, "--topic")
    assert "has partitions 0 to 2" in klamm.refused(USAGE, *reset, f"{topic}:3", "--to", "earliest")
    assert "--to 'soon' is not a position" in klamm.refused(USAGE, *reset, topic, "--to", "soon")


def test_the_name_of_a_group_cannot_forge_lines_or_send_escape_sequences(tmp_path):
    group = "g\n2026-01-01T00:00:00.000Z INFO klamm_server.main forged\x1b[2J\x9b2J\x7f\u202e"
    with running_cluster(tmp_path, {"log.format": "text", "log.level": "INFO"}) as cluster:
        klamm = KlammCommand(cluster.bootstrap)
        klamm.ok("topics", "create", "t")
        with Consumer(bootstrap_servers=cluster.bootstrap, group_id=group) as consumer:
            consumer.subscribe(["t"])
            wait_until(consumer.assignment, between=lambda: consumer.poll(timeout_ms=100))
            consumer.commit()
            printed = [klamm.ok("groups", "describe", group, *options) for options in ((), ("--members",))]
        printed += [klamm.ok("groups", "list"), klamm.ok("groups", "list", "--json"), klamm.ok("cluster", "status")]
        printed += [klamm.ok("groups", "delete", group), klamm("groups", "describe", group)]
        assert "forged\\x1b[2J\\x9b2J" in cluster.log_path.read_text()
    for ended in printed:
        assert (ended.out + ended.err).replace("\n", "").isprintable()
    assert not [line for line in cluster.log_path.read_text().split("\n") if not line.isprintable()]
    assert not [
        line for line in cluster.log_path.read_text().splitlines() if " INFO klamm_server.main forged" in line[:60]
    ]


def test_a_partition_without_an_offset_has_a_row(klamm, topic):
    klamm.ok("produce", topic, "-p", 0, stdin="a\n")
    klamm.ok("consume", topic, "--group", topic, "--from", "beginning", "--exit")
    klamm.ok("groups", "delete-offsets", topic, "--topic", f"{topic}:1")
    rows = klamm.ok("groups", "describe", topic, "--json").document["partitions"]
    assert [(row["partition"], row["committed"], row["end_offset"], row["lag"]) for row in rows] == [
        (0, 1, 1, 0),
        (1, None, 0, None),
        (2, 0, 0, 0),
    ]
