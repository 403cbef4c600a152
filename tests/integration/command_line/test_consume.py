"""`klamm consume` prints the records from one position to another."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.cli_runner import values

FAILED, USAGE = 1, 2


def test_consume_starts_at_the_offset_or_time_of_the_from_option(klamm, topic):
    hour_ms, now_ms = 3_600_000, time.time_ns() // 1_000_000
    stamps = {"old": now_ms - 10 * hour_ms, "older": now_ms - 20 * hour_ms, "new": now_ms}
    lines = [
        json.dumps({"value": name, "timestamp_ms": stamps[name], "partition": 1}) for name in ("older", "old", "new")
    ]
    klamm.ok("produce", topic, "--json-lines", stdin="\n".join(lines))

    def consumed(start):
        return klamm.ok("consume", topic, "--from", start, "--exit").out.split()

    assert consumed("beginning") == consumed("0") == consumed("365000d") == ["older", "old", "new"]
    assert consumed("2") == ["new"]
    assert consumed("end") == consumed("3") == consumed("9" * 30) == []
    assert consumed("15h") == consumed("900m") == ["old", "new"]
    assert consumed("1m") == ["new"]
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime((now_ms - 5 * hour_ms) / 1000))
    assert consumed(moment) == ["new"]
    assert consumed("-2") == ["old", "new"]
    assert consumed("-9") == ["older", "old", "new"]
    assert consumed(f"@{stamps['old']}") == ["old", "new"]
    assert consumed("now") == consumed("@now") == []
    assert consumed("@1d") == ["older", "old", "new"]


def test_consume_stops_at_the_position_of_the_to_option_and_does_not_wait(klamm, topic):
    klamm.ok("produce", topic, "-p", 0, stdin="a\nb\nc\n")
    klamm.ok("produce", topic, "-p", 1, stdin="d\n")

    def consumed(start, stop):
        return sorted(klamm.ok("consume", topic, "--from", start, "--to", stop).out.split())

    assert consumed("beginning", "end") == consumed("beginning", "now") == ["a", "b", "c", "d"]
    assert consumed("beginning", "2") == ["a", "b", "d"]
    assert consumed("1", "-1") == ["b"]
    assert consumed("end", "beginning") == consumed("beginning", "15m") == []


def test_count_and_partition_choose_what_is_consumed(klamm, topic):
    klamm.ok("produce", topic, "--partition", 0, stdin="a\nb\nc\n")
    klamm.ok("produce", topic, "--partition", 2, stdin="d\n")
    assert klamm.ok("consume", topic, "--from", "beginning", "-p", 0, "-n", 2).out.split() == ["a", "b"]
    assert klamm.ok("consume", topic, "--from", "beginning", "-p", 2, "--exit", "-n", 5).out.split() == ["d"]
    assert values(klamm, topic, "-p", 0, "-p", 2) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("status", "arguments", "complaint"),
    [
        (USAGE, ("--partition", "9"), "has partitions 0 to 2, not 9"),
        (USAGE, ("--from", "yesterday"), "'yesterday' is not a position"),
        (USAGE, ("--from", "1767225600000"), "expected offset:1767225600000 or @1767225600000"),
        (USAGE, ("--to", "@1767225600"), "may be in seconds or in milliseconds"),
        (USAGE, ("--group", "g", "--partition", "1"), "exclude each other"),
        (USAGE, ("--group", "g", "--to", "end"), "exclude each other"),
        (USAGE, ("--json", "--key"), "exclude each other"),
        (USAGE, ("--format", "%s", "-k", ":"), "exclude each other"),
        (USAGE, ("--json", "--null", "-"), "exclude each other"),
        (USAGE, ("--format", "%q"), "%q is not a token"),
        (USAGE, ("-k", ""), "--key-separator is empty"),
        (USAGE, ("--config", "value.deserializer=json"), "records are printed as they are"),
        (USAGE, ("--group", "g", "--from", "15m"), "klamm groups reset g --to 15m"),
        (USAGE, ("--config", "frobnicate=1"), "unknown configuration frobnicate"),
        (USAGE, ("--config", "fetch.min.bytes=x"), "fetch.min.bytes: 'x' is not valid"),
    ],
)
def test_wrong_consume_commands_are_refused_with_the_reason(klamm, topic, status, arguments, complaint):
    assert complaint in klamm.refused(status, "consume", topic, *arguments)


def test_a_topic_that_does_not_exist_is_neither_waited_for_nor_created(klamm, name):
    assert f"'{name}' does not exist" in klamm.refused(FAILED, "consume", name)
    assert f"'{name}' does not exist" in klamm.refused(FAILED, "consume", name, "--group", name)
    assert name not in klamm.ok("topics", "list").out
