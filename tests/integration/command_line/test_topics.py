"""`klamm topics` creates, lists, describes, grows and deletes topics."""

from __future__ import annotations

import pytest

from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster

FAILED, USAGE = 1, 2


def test_topics_are_created_listed_described_grown_and_deleted(klamm, name):
    created = klamm.ok("topics", "create", name, "--partitions", 2, "--config", "retention.ms=60000", "--json").document
    assert [(row["topic"], row["partitions"], row["replication_factor"]) for row in created] == [(name, 2, 1)]
    assert [name, "2", "1"] in klamm.ok("topics", "list").rows
    klamm.ok("topics", "add-partitions", name, 4)
    klamm.ok("produce", name, "--partition", 3, stdin="a\nb\n")
    described = klamm.ok("topics", "describe", name, "--json").document
    assert [(row["partition"], row["start_offset"], row["end_offset"]) for row in described] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
        (3, 0, 2),
    ]
    assert all((row["leader"], row["replicas"], row["isr"]) == (1, [1], [1]) for row in described)
    assert klamm.ok("topics", "delete", name, "--json").document == {
        "deleted": [name],
        "validate_only": False,
    }
    assert name not in {row["topic"] for row in klamm.ok("topics", "list", "--json").document}


def test_a_dry_run_creates_nothing(klamm, name):
    klamm.ok("topics", "create", name, "--dry-run")
    assert name not in klamm.ok("topics", "list").out


def test_internal_topics_are_listed_when_asked_for(klamm, topic):
    klamm.ok("consume", topic, "--group", topic, "--exit")
    assert "__consumer_offsets" not in klamm.ok("topics", "list").out
    assert "__consumer_offsets" in klamm.ok("topics", "list", "--internal").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "a/b"), "INVALID_TOPIC_EXCEPTION"),
        (("create", "x", "--partitions", "0"), "INVALID_PARTITIONS"),
        (("create", "x", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (("create", "x", "--config", "frob=1"), "unknown config frob"),
        (("create", "x", "--config", "retention.ms=soon"), "expected a whole number"),
        (("describe", "missing"), "'missing' does not exist"),
        (("delete", "missing"), "'missing' does not exist"),
        (("add-partitions", "missing", "3"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_topics_command_that_the_cluster_refuses_prints_the_error_code(klamm, arguments, code):
    assert code in klamm.refused(FAILED, "topics", *arguments)


def test_a_topic_that_exists_is_not_created_again_nor_shrunk(klamm, topic):
    assert "TOPIC_ALREADY_EXISTS" in klamm.refused(FAILED, "topics", "create", topic)
    assert "cannot change to 2, expected more" in klamm.refused(FAILED, "topics", "add-partitions", topic, 2)


def test_if_exists_and_if_not_exists_skip_topics_groups_and_ledgers(klamm, topic, name):
    new = f"{name}-new"
    ended = klamm.ok("topics", "create", topic, new, "--if-not-exists", "--partitions", 2)
    assert f"topic {topic} exists" in ended.err
    assert [row[:2] for row in ended.rows] == [[new, "2"]]
    assert "INVALID_PARTITIONS" in klamm.refused(FAILED, "topics", "create", "x", "--if-not-exists", "--partitions", 0)
    described = klamm.ok("topics", "describe", new, "gone", "--if-exists", "--json")
    assert [row["partition"] for row in described.document] == [0, 1]
    assert "there is no topic gone" in described.err
    assert "there is no topic gone" in klamm.ok("topics", "add-partitions", "gone", 3, "--if-exists").err
    ended = klamm.ok("topics", "add-partitions", "gone", 3, "--if-exists", "--json")
    assert ended.document == {"topic": "gone", "partitions": None, "validate_only": False}
    ended = klamm.ok("topics", "delete", new, "gone", "--if-exists", "--json")
    assert ended.document["deleted"] == [new]
    assert "there is no topic gone" in ended.err
    klamm.ok("consume", topic, "--group", topic, "--exit")
    assert klamm.ok("groups", "delete", topic, "gone", "--if-exists", "--json").document["deleted"] == [topic]
    assert "there is no ledger" in klamm.ok("ledgers", "delete", "sink", "query", "--if-exists").err


def test_a_config_without_a_value_is_wrong_usage(klamm):
    assert "expected name=value" in klamm.refused(USAGE, "topics", "create", "x", "--config", "retention.ms")


def partitions(klamm, topic):
    return len(klamm.ok("topics", "describe", topic, "--json").document)


def test_a_dry_run_adds_no_partitions(klamm, topic):
    assert klamm.ok("topics", "add-partitions", topic, 5, "--dry-run").out == f"{topic} would have 5 partitions\n"
    document = klamm.ok("topics", "add-partitions", topic, 5, "--dry-run", "--json").document
    assert document == {"topic": topic, "partitions": 5, "validate_only": True}
    assert partitions(klamm, topic) == 3
    assert "expected more" in klamm.refused(FAILED, "topics", "add-partitions", topic, 2, "--dry-run")


def test_a_dry_run_of_a_deletion_shows_the_records_and_deletes_nothing(klamm, topic):
    klamm.ok("produce", topic, stdin="a\nb\nc\n")
    dry_run = ("topics", "delete", topic, "--dry-run")
    assert klamm.ok(*dry_run).out == f"would delete topic {topic}: 3 partitions, 3 records\n"
    assert klamm.ok(*dry_run, "--json").document == {"deleted": [topic], "validate_only": True}
    ended = klamm.ok(*dry_run, "gone", "--if-exists")
    assert (ended.out.count("\n"), "there is no topic gone" in ended.err) == (1, True)
    assert partitions(klamm, topic) == 3


def test_a_dry_run_refuses_the_deletions_that_the_cluster_refuses(klamm, topic):
    klamm.ok("consume", topic, "--group", topic, "--exit")
    for names in (["missing"], ["__consumer_offsets"], [topic, topic]):
        dry = klamm.refused(FAILED, "topics", "delete", *names, "--dry-run")
        assert dry == klamm.refused(FAILED, "topics", "delete", *names)


def test_a_dry_run_of_an_election_gives_the_results_of_the_election(klamm, topic):
    elect = ("topics", "elect-leaders", topic, "--json")
    assert klamm.ok(*elect, "--dry-run").document == klamm.ok(*elect).document == []
    dry, real = (klamm(*elect, "-p", 7, *options) for options in (["--dry-run"], []))
    assert (dry.status, dry.document) == (real.status, real.document)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in dry.document[0]["result"]
    assert klamm.ok("topics", "elect-leaders", "--all-topics", "--unclean", "--dry-run", "--json").document == []


def test_a_dry_run_refuses_deletions_if_the_cluster_deletes_no_topics(tmp_path):
    with running_cluster(tmp_path, {"delete.topic.enable": "false"}) as cluster:
        klamm = KlammCommand(cluster.bootstrap)
        klamm.ok("topics", "create", "kept")
        refused = [klamm.refused(FAILED, "topics", "delete", "kept", *options) for options in (["--dry-run"], [])]
    assert refused == ["klamm: TOPIC_DELETION_DISABLED: kept: delete.topic.enable is false"] * 2


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_partitions_are_not_added_while_a_group_has_unread_keys(klamm, topic, dry_run):
    klamm.ok("produce", topic, "--partition", 0, "--key-separator", ":", stdin="a:1\nb:2\n")
    klamm.ok("consume", topic, "--group", topic, "--from", "beginning", "--exit")
    klamm.ok("produce", topic, "--partition", 0, stdin="no key\n")
    klamm.ok("topics", "add-partitions", topic, 4)
    klamm.ok("produce", topic, "--partition", 0, "--key-separator", ":", stdin="a:3\n")
    said = klamm.refused(FAILED, "topics", "add-partitions", topic, 5, *dry_run)
    assert f"groups have unread records with keys in {topic}: {topic} (2 records)" in said
    assert partitions(klamm, topic) == 4
    klamm.ok("topics", "add-partitions", topic, 5, "--force", *dry_run)
    assert partitions(klamm, topic) == (4 if dry_run else 5)
