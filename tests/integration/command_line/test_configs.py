"""`klamm configs` describes and alters the configs of topics and brokers."""

from __future__ import annotations

import pytest

FAILED, USAGE = 1, 2


def test_configs_are_altered_and_described(klamm, topic):
    klamm.ok("configs", "alter", "--topic", topic, "--set", "retention.ms=1000", "--set", "cleanup.policy=delete")
    klamm.ok("configs", "alter", "--topic", topic, "--append", "cleanup.policy=compact")
    described = klamm.ok("configs", "describe", "--topic", topic, "--json").document
    by_name = {row["name"]: row for row in described}
    assert by_name["retention.ms"]["value"] == "1000"
    assert by_name["retention.ms"]["source"] == "DYNAMIC_TOPIC"
    assert by_name["cleanup.policy"]["value"] == "delete,compact"
    assert by_name["segment.bytes"]["source"] == "DEFAULT"
    klamm.ok("configs", "alter", "--topic", topic, "--delete", "retention.ms", "--subtract", "cleanup.policy=compact")
    rows = klamm.ok("configs", "describe", "retention.ms", "cleanup.policy", "--topic", topic).rows
    assert [row[:2] for row in rows] == [["cleanup.policy", "delete"], ["retention.ms", "604800000"]]


def test_a_config_for_all_brokers_is_altered_and_described(klamm):
    klamm.ok("configs", "alter", "--all-brokers", "--set", "log.retention.ms=7000")
    (row,) = klamm.ok("configs", "describe", "log.retention.ms", "--broker", 1, "--json").document
    assert (row["value"], row["source"]) == ("7000", "DYNAMIC_DEFAULT_BROKER")
    klamm.ok("configs", "alter", "--all-brokers", "--delete", "log.retention.ms")


def test_the_docs_option_prints_what_a_config_does(klamm):
    assert "segment" in klamm.ok("configs", "describe", "log.segment.bytes", "--broker", 1, "--docs").out


def test_a_dry_run_alters_nothing(klamm, topic):
    klamm.ok("configs", "alter", "--topic", topic, "--set", "retention.ms=1", "--dry-run")
    (row,) = klamm.ok("configs", "describe", "retention.ms", "--topic", topic, "--json").document
    assert row["source"] == "DEFAULT"


@pytest.mark.parametrize(
    ("status", "arguments", "complaint"),
    [
        (FAILED, ("describe", "--topic", "missing"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (FAILED, ("describe", "frob", "--broker", "1"), "there is no config frob"),
        (FAILED, ("alter", "--broker", "7", "--set", "log.retention.ms=1"), "broker 7 is not registered"),
        (FAILED, ("alter", "--broker", "1", "--set", "node.id=2"), "node.id is read-only"),
        (FAILED, ("alter", "--all-brokers", "--set", "frob=2"), "unknown config frob"),
        (USAGE, ("describe",), "--topic NAME, --broker ID or --all-brokers"),
        (USAGE, ("describe", "--topic", "x", "--broker", "1"), "--topic NAME, --broker ID or --all-brokers"),
        (USAGE, ("alter", "--topic", "x"), "nothing to change"),
    ],
)
def test_wrong_config_commands_are_refused_with_the_reason(klamm, status, arguments, complaint):
    assert complaint in klamm.refused(status, "configs", *arguments)
