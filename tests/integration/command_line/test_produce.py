"""`klamm produce` writes lines, files and JSON, and names the line that it refuses."""

from __future__ import annotations

import json

import pytest

from klamm import Producer, TopicPartition
from tests.support.cli_runner import KlammCommand, values
from tests.support.klamm_process import running_cluster
from tests.support.reading import read_all

FAILED, USAGE = 1, 2


def test_produced_lines_are_consumed_unchanged(klamm, topic):
    lines = ["one", "", "  two\t2 ", "drei äöü"]
    ended = klamm.ok("produce", topic, stdin="\n".join(lines))
    assert ended.err == f"4 records acknowledged by {topic}\n"
    assert values(klamm, topic) == sorted(lines)


def test_a_file_is_produced(klamm, topic, tmp_path):
    (tmp_path / "lines").write_bytes(b"a\r\nb\r\n\xff\xfe\n")
    assert klamm.ok("produce", topic, "--file", tmp_path / "lines", "--json").document == {
        "topic": topic,
        "records": 3,
        "validate_only": False,
    }
    consumed = klamm.ok("consume", topic, "--from", "beginning", "--exit", "--json").documents
    assert sorted(each.get("value", "") + each.get("value_base64", "") for each in consumed) == ["//4=", "a", "b"]


def test_a_key_separator_splits_at_its_first_occurrence(klamm, topic):
    klamm.ok("produce", topic, "--key-separator", "::", stdin="a::b::c\n::\n")
    assert values(klamm, topic, "--key") == ["\t", "a\tb::c"]


def test_compression_and_other_settings_reach_the_producer(klamm, topic):
    lines = [f"line {number}" for number in range(2_000)]
    options = ("--compression", "zstd", "--acks", "1", "--config", "linger.ms=20", "--config", "batch.size=100000")
    klamm.ok("produce", topic, *options, stdin="\n".join(lines))
    assert values(klamm, topic) == sorted(lines)


def test_json_lines_carry_all_fields_of_a_record_and_consumed_json_can_be_produced_again(klamm, topic):
    documents = [
        {"key": "k", "value": "v", "headers": {"h": "1", "none": None}, "partition": 2, "timestamp_ms": 1_500},
        {"value": {"nested": [1, "ä"]}, "partition": 0},
        {"key": "deleted", "value": None, "partition": 1},
        {"value": "twice", "headers": [["h", "1"], ["h", "2"]], "partition": 2},
    ]
    klamm.ok("produce", topic, "--json-lines", stdin="\n".join(map(json.dumps, documents)))
    consumed = klamm.ok("consume", topic, "--from", "beginning", "--exit", "--json")
    by_place = {(document["partition"], document["offset"]): document for document in consumed.documents}
    assert by_place.keys() == {(0, 0), (1, 0), (2, 0), (2, 1)}
    assert by_place[2, 0] == {
        "topic": topic,
        "partition": 2,
        "offset": 0,
        "timestamp_ms": 1_500,
        "key": "k",
        "value": "v",
        "headers": [["h", "1"], ["none", None]],
    }
    assert json.loads(by_place[0, 0]["value"]) == {"nested": [1, "ä"]}
    assert by_place[1, 0]["value"] is None
    assert by_place[2, 1]["headers"] == [["h", "1"], ["h", "2"]]

    klamm.ok("produce", topic, "--json-lines", stdin=consumed.out)
    again = klamm.ok("consume", topic, "--from", "beginning", "--exit", "--json").documents
    assert len(again) == 8
    assert [each for each in again if each["timestamp_ms"] == 1_500 and each["offset"] != 0]


def test_binary_values_pass_through_json_unchanged(klamm, topic, name):
    """The values are null, empty and arbitrary bytes, in key, value and headers."""
    contents = [None, b"", b"\xff\x00\n", b"text", b'{"base64": "aGk="}']
    records = [(key, value, (("h", key), ("h", value))) for key in contents for value in contents]
    with Producer(bootstrap_servers=klamm.bootstrap) as producer:
        for key, value, headers in records:
            producer.send(topic, value, key, partition=0, headers=headers)
    printed = klamm.ok("consume", topic, "--from", "beginning", "--exit", "--json").out
    klamm.ok("topics", "create", f"{name}-copy")
    klamm.ok("produce", f"{name}-copy", "--json-lines", stdin=printed)
    copied = read_all(klamm.bootstrap, [TopicPartition(f"{name}-copy", 0)])
    assert [(each.key, each.value, each.headers) for each in copied] == records


def test_produce_and_consume_distinguish_an_empty_key_from_a_null_key(klamm, topic):
    klamm.ok("produce", topic, "-k", r"\t", "--null", "-", "-p", 0, stdin="-\tnone\n\tempty\nk\t-\n")
    assert values(klamm, topic, "--key") == ["\tempty", "k\tnull", "null\tnone"]
    assert values(klamm, topic, "-k", r"\x1f", "--null", "") == ["\x1fempty", "\x1fnone", "k\x1f"]
    assert values(klamm, topic, "-f", r"%p/%o %k=%s %K %S\n") == ["0/0 =none -1 4", "0/1 =empty 0 5", "0/2 k= 1 -1"]


def test_the_error_for_a_record_too_large_names_all_size_limits(klamm, topic):
    klamm.ok("configs", "alter", "--topic", topic, "--set", "max.message.bytes=1000")
    large = "x" * 2_000_000 + "\n"
    for settings in ((), ("--config", "max.request.size=5000000")):
        line = klamm.refused(FAILED, "produce", topic, *settings, stdin=large)
        size = "5000000" if settings else "1048576"
        for limit in (f"max.request.size={size}", "buffer.memory=33554432", "max.message.bytes=1000"):
            assert limit in line
        for limit in ("segment.bytes=", "message.max.bytes=1048588", "socket.request.max.bytes="):
            assert limit in line


@pytest.mark.parametrize(
    ("stdin", "complaint"),
    [
        ("not json", "line 2: not JSON"),
        ("[1]", "line 2: expected a JSON object"),
        ('{"vlaue": 1}', "line 2: unknown vlaue"),
        ('{"value": 1, "partition": "x"}', "line 2: partition: expected a whole number"),
        ('{"value": 1, "partition": 3}', "line 2: {topic} has 3 partitions"),
        ('{"value": 1, "partition": -1}', "line 2: {topic} has 3 partitions"),
        ('{"value": 1, "headers": 5}', "line 2: headers: expected"),
        ('{"value": 1, "headers": ["ab"]}', "line 2: headers: expected"),
        ('{"value": 1, "timestamp_ms": true}', "line 2: timestamp_ms: expected a whole number"),
    ],
)
def test_a_bad_json_line_is_named_and_those_before_it_stay(klamm, topic, stdin, complaint):
    good = '{"value": "good", "partition": 0}\n'
    line = klamm.refused(USAGE, "produce", topic, "--json-lines", stdin=good + stdin + "\n" + good)
    assert complaint.format(topic=topic) in line
    assert values(klamm, topic) == ["good"]


def test_a_line_without_the_separator_is_named(klamm, topic):
    line = klamm.refused(USAGE, "produce", topic, "-k", ":", stdin="a:b\nc\n")
    assert "line 2: there is no ':' between key and value" in line


def test_a_record_too_large_is_named_and_those_before_it_stay(klamm, topic):
    line = klamm.refused(FAILED, "produce", topic, stdin="small\n" + "x" * 2_000_000 + "\n")
    assert "line 2: MESSAGE_TOO_LARGE" in line
    assert "max.request.size" in line
    assert values(klamm, topic) == ["small"]


def test_a_record_the_broker_finds_too_large_is_refused(klamm, topic):
    settings = ("--config", "max.request.size=5000000")
    line = klamm.refused(FAILED, "produce", topic, *settings, stdin="x" * 2_000_000 + "\n")
    assert "MESSAGE_TOO_LARGE" in line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--partition", "3"), "there is no 3"),
        (("--file", "/does/not/exist"), "cannot read /does/not/exist: No such file or directory"),
        (("--file", "/"), "cannot read /: Is a directory"),
        (("--acks", "2"), "acks: '2' is not valid"),
        (("--compression", "rar"), "expected one of none, gzip, snappy, lz4, zstd"),
        (("--config", "frobnicate=1"), "unknown configuration frobnicate"),
        (("--json-lines", "-k", ":"), "exclude each other"),
        (("--json-lines", "--null", ""), "exclude each other"),
        (("-k", ""), "--key-separator is empty"),
        (("-k", r"\q"), r"--key-separator: \q is not an escape"),
        (("-k", r"\n"), "--key-separator has a line feed"),
    ],
)
def test_wrong_produce_commands_are_refused_with_the_reason(klamm, topic, arguments, complaint):
    assert complaint in klamm.refused(USAGE, "produce", topic, *arguments, stdin="a:b\n")


def test_producing_to_a_topic_that_does_not_exist_creates_it_and_says_so(klamm, name):
    assert f"there is no topic {name} yet" in klamm.ok("produce", name, stdin="a\n").err
    assert values(klamm, name) == ["a"]


def test_a_dry_run_checks_the_records_and_produces_none(klamm, topic):
    assert klamm.ok("produce", topic, "--dry-run", stdin="a\nb\n").out == f"would produce 2 records to {topic}\n"
    document = {"topic": topic, "records": 2, "validate_only": True}
    assert klamm.ok("produce", topic, "--dry-run", "--json", stdin="a\nb\n").document == document
    assert values(klamm, topic) == []


@pytest.mark.parametrize(
    ("options", "stdin"),
    [
        (("--json-lines",), '{"value": "a"}\nnot JSON\n'),
        (("--key-separator", ":"), "a:b\nc\n"),
        (("--partition", 3), "a\n"),
        (("--config", "max.request.size=1000"), "a" * 2000 + "\n"),
        (("--acks", "many"), "a\n"),
    ],
)
def test_a_dry_run_refuses_the_records_that_produce_refuses(klamm, topic, options, stdin):
    dry, real = (klamm("produce", topic, *options, *each, stdin=stdin) for each in (["--dry-run"], []))
    assert dry.status == real.status != 0
    assert dry.err.splitlines()[-1] == real.err.splitlines()[-1]


def test_a_dry_run_refuses_a_missing_topic_that_nothing_creates(tmp_path):
    with running_cluster(tmp_path, {"auto.create.topics.enable": "false"}) as cluster:
        klamm = KlammCommand(cluster.bootstrap)
        settings = ("--config", "max.block.ms=100")
        dry, real = (klamm("produce", "gone", *settings, *each, stdin="a\n") for each in (["--dry-run"], []))
        assert dry.status == real.status == 1, (dry, real)
