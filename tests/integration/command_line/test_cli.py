"""Every command of `klamm` against a real cluster: tables, JSON, exit statuses, one-line errors."""

from __future__ import annotations

import itertools
import json
import socket
import time

import pytest

from klamm import Consumer, Producer, TopicPartition
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_port
from tests.support.reading import read_all
from tests.support.waiting import wait_until

FAILED, USAGE, UNREACHABLE = 1, 2, 3


@pytest.fixture(scope="module")
def klamm(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cli")) as cluster:
        yield KlammCommand(cluster.bootstrap)


@pytest.fixture
def name(request, _numbers=itertools.count()):  # noqa: B008 - one count for all tests
    """A name no other test uses."""
    return f"t{next(_numbers)}-{request.node.originalname.removeprefix('test_').replace('_', '-')}"


@pytest.fixture
def topic(klamm, name):
    """A topic with three partitions."""
    klamm.ok("topics", "create", name, "--partitions", 3)
    return name


def values(klamm, topic, *options):
    return sorted(klamm.ok("consume", topic, "--from", "beginning", "--exit", *options).out.splitlines())


# --- the command itself


def test_version(klamm):
    assert klamm.ok("--version").out.startswith("klamm ")


@pytest.mark.parametrize("group", [(), ("topics",), ("configs",), ("groups",)])
def test_without_a_command_the_help_is_shown_and_the_status_is_usage(klamm, group):
    ended = klamm(*group)
    assert ended.status == USAGE
    assert "Commands" in ended.out
    assert ended.err == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("frobnicate",), "No such command 'frobnicate'"),
        (("topics", "create"), "Missing argument"),
        (("consume", "x", "--frobnicate"), "No such option: --frobnicate"),
        (("consume", "x", "--count", "0"), "'--count'"),
        (("consume", "x", "--count", "many"), "'--count'"),
        (("consume", "x", "--timeout", "0"), "'--timeout'"),
        (("up", "--port", "70000"), "--port: '70000' is not valid, expected a number from 0 to 65535"),
        (("up", "--brokers", "many"), "--brokers: 'many'"),
        (("up", "--frobnicate"), "--frobnicate"),
    ],
)
def test_a_wrong_command_line_is_one_line(klamm, arguments, complaint):
    line = klamm.refused(USAGE, *arguments)
    assert complaint in line
    assert "--help`)" in line


def test_a_listener_for_kafka_clients_names_the_other_one(tmp_path):
    with running_cluster(tmp_path) as cluster:
        line = KlammCommand(cluster.kafka_bootstrap).refused(UNREACHABLE, "topics", "list", "--timeout", "1")
    assert line == (
        f"klamm: {cluster.kafka_bootstrap} is for others: this is a Kafka listener of Klamm;"
        f" clients of its gRPC API dial {cluster.bootstrap}"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("topics", "create", "x"),
        ("groups", "describe", "x"),
        ("configs", "describe", "--all-brokers"),
        ("cluster",),
        ("cluster", "quorum"),
        ("consume", "x"),
        ("produce", "x"),
    ],
)
def test_a_command_says_how_long_no_server_answered(klamm, arguments):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        line = klamm.refused(UNREACHABLE, *arguments, "--bootstrap", address, "--timeout", "0.3")
    assert f"no server answers at {address} (no answer in 0.3 s)" in line
    assert "klamm up" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("-b", "{}", "topics", "list"),
        ("--bootstrap", "{}", "topics", "list"),
        ("topics", "-b", "{}", "list"),
        ("topics", "list", "-b", "{}"),
        ("-b", "127.0.0.1:1", "topics", "list", "-b", "{}"),
        ("-b", "{}", "cluster"),
        ("cluster", "--bootstrap", "{}", "quorum"),
        ("-b", "{}", "groups", "list"),
    ],
)
def test_the_server_may_be_named_before_the_command(klamm, arguments):
    elsewhere = KlammCommand("127.0.0.1:1")
    assert elsewhere(*(each.format(klamm.bootstrap) for each in arguments)).status == 0


def test_a_malformed_bootstrap_is_refused(klamm):
    assert "expected host:port" in klamm.refused(USAGE, "topics", "list", "--bootstrap", "one:two")


# --- topics


def test_topics_are_created_listed_described_grown_and_deleted(klamm, name):
    created = klamm.ok("topics", "create", name, "-p", 2, "--config", "retention.ms=60000", "--json").document
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
    assert klamm.ok("topics", "delete", name, "--json").document == {"deleted": [name]}
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
def test_what_the_cluster_refuses_about_topics(klamm, arguments, code):
    assert code in klamm.refused(FAILED, "topics", *arguments)


def test_a_topic_that_exists_is_not_created_again_nor_shrunk(klamm, topic):
    assert "TOPIC_ALREADY_EXISTS" in klamm.refused(FAILED, "topics", "create", topic)
    assert "it cannot grow to 2" in klamm.refused(FAILED, "topics", "add-partitions", topic, 2)


def test_topics_and_groups_that_are_or_are_not_there_may_be_passed_over(klamm, topic, name):
    new = f"{name}-new"
    ended = klamm.ok("topics", "create", topic, new, "--if-not-exists", "-p", 2)
    assert f"topic {topic} exists" in ended.err
    assert [row[:2] for row in ended.rows] == [[new, "2"]]
    assert "INVALID_PARTITIONS" in klamm.refused(FAILED, "topics", "create", "x", "--if-not-exists", "-p", 0)
    described = klamm.ok("topics", "describe", new, "gone", "--if-exists", "--json")
    assert [row["partition"] for row in described.document] == [0, 1]
    assert "there is no topic gone" in described.err
    assert "there is no topic gone" in klamm.ok("topics", "add-partitions", "gone", 3, "--if-exists").err
    ended = klamm.ok("topics", "delete", new, "gone", "--if-exists", "--json")
    assert ended.document == {"deleted": [new]}
    assert "there is no topic gone" in ended.err
    klamm.ok("consume", topic, "--group", topic, "--exit")
    assert klamm.ok("groups", "delete", topic, "gone", "--if-exists", "--json").document == {"deleted": [topic]}
    assert "there is no ledger" in klamm.ok("ledgers", "delete", "sink", "query", "--if-exists").err


def test_a_config_without_a_value_is_wrong_usage(klamm):
    assert "expected name=value" in klamm.refused(USAGE, "topics", "create", "x", "--config", "retention.ms")


# --- configs


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


def test_configs_of_brokers(klamm):
    klamm.ok("configs", "alter", "--all-brokers", "--set", "log.retention.ms=7000")
    (row,) = klamm.ok("configs", "describe", "log.retention.ms", "--broker", 1, "--json").document
    assert (row["value"], row["source"]) == ("7000", "DYNAMIC_DEFAULT_BROKER")
    klamm.ok("configs", "alter", "--all-brokers", "--delete", "log.retention.ms")


def test_docs_say_what_a_config_does(klamm):
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
def test_what_is_refused_about_configs(klamm, status, arguments, complaint):
    assert complaint in klamm.refused(status, "configs", *arguments)


# --- produce and consume


def test_lines_come_back_as_they_went_in(klamm, topic):
    lines = ["one", "", "  two\t2 ", "drei äöü"]
    ended = klamm.ok("produce", topic, stdin="\n".join(lines))
    assert ended.err == f"4 records acknowledged by {topic}\n"
    assert values(klamm, topic) == sorted(lines)


def test_a_file_is_produced(klamm, topic, tmp_path):
    (tmp_path / "lines").write_bytes(b"a\r\nb\r\n\xff\xfe\n")
    assert klamm.ok("produce", topic, "--file", tmp_path / "lines", "--json").document == {"topic": topic, "records": 3}
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


def test_json_lines_say_everything_of_a_record_and_what_was_consumed_can_be_produced_again(klamm, topic):
    documents = [
        {"key": "k", "value": "v", "headers": {"h": "1", "none": None}, "partition": 2, "timestamp_ms": 1_500},
        {"value": {"nested": [1, "ä"]}, "partition": 0},
        {"key": "deleted", "value": None, "partition": 1},
        {"value": "twice", "headers": [["h", "1"], ["h", "2"]], "partition": 2},
    ]
    klamm.ok("produce", topic, "--json-lines", stdin="\n".join(map(json.dumps, documents)))
    consumed = klamm.ok("consume", topic, "--from", "beginning", "--exit", "--json")
    by_place = {(each["partition"], each["offset"]): each for each in consumed.documents}
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


def test_bytes_that_are_no_text_come_through_json_unchanged(klamm, topic, name):
    """Null, empty and any bytes, in key, value and headers."""
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


def test_keys_are_told_from_none_on_both_sides(klamm, topic):
    klamm.ok("produce", topic, "-k", r"\t", "--null", "-", "-p", 0, stdin="-\tnone\n\tempty\nk\t-\n")
    assert values(klamm, topic, "--key") == ["\tempty", "k\tnull", "null\tnone"]
    assert values(klamm, topic, "-k", r"\x1f", "--null", "") == ["\x1fempty", "\x1fnone", "k\x1f"]
    assert values(klamm, topic, "-f", r"%p/%o %k=%s %K %S\n") == ["0/0 =none -1 4", "0/1 =empty 0 5", "0/2 k= 1 -1"]


def test_a_record_too_large_is_told_all_limits_at_once(klamm, topic):
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
def test_wrong_usage_of_produce(klamm, topic, arguments, complaint):
    assert complaint in klamm.refused(USAGE, "produce", topic, *arguments, stdin="a:b\n")


def test_producing_to_a_topic_that_does_not_exist_creates_it_and_says_so(klamm, name):
    assert f"there is no topic {name} yet" in klamm.ok("produce", name, stdin="a\n").err
    assert values(klamm, name) == ["a"]


def test_consuming_starts_where_it_is_told(klamm, topic):
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


def test_consuming_stops_where_it_is_told_and_does_not_wait(klamm, topic):
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
def test_what_is_refused_about_consume(klamm, topic, status, arguments, complaint):
    assert complaint in klamm.refused(status, "consume", topic, *arguments)


def test_a_topic_that_does_not_exist_is_neither_waited_for_nor_created(klamm, name):
    assert f"'{name}' does not exist" in klamm.refused(FAILED, "consume", name)
    assert f"'{name}' does not exist" in klamm.refused(FAILED, "consume", name, "--group", name)
    assert name not in klamm.ok("topics", "list").out


# --- groups


def test_a_group_commits_what_it_printed_and_goes_on_from_there(klamm, topic):
    klamm.ok("produce", topic, "-p", 1, stdin="a\nb\nc\n")
    group = ("--group", topic, "--from", "beginning")
    assert klamm.ok("consume", topic, *group, "-n", 2).out.split() == ["a", "b"]
    described = klamm.ok("groups", "describe", topic, "--json").document
    assert (described["group"], described["state"], described["members"]) == (topic, "Empty", 0)
    by_partition = {row["partition"]: row for row in described["partitions"]}
    assert (by_partition[1]["committed"], by_partition[1]["end_offset"], by_partition[1]["lag"]) == (2, 3, 1)
    assert klamm.ok("consume", topic, *group, "--exit").out.split() == ["c"]
    assert klamm.ok("consume", topic, *group, "--exit").out == ""
    assert [topic, "1", "3", "3", "0", "0", "-"] in klamm.ok("groups", "describe", topic).rows
    assert [topic, "classic", "Empty", "consumer"] in klamm.ok("groups", "list").rows
    assert topic in klamm.ok("groups", "list", "--state", "empty").out
    assert topic not in klamm.ok("groups", "list", "--state", "Stable").out


def test_a_new_group_that_starts_at_the_end_ends_there(klamm, topic):
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
    assert (dry["before"], dry["after"]) == (3, 0)
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
        klamm.ok("groups", "reset", topic, "--to", to)
        assert committed()[0] == expected, to
    klamm.ok("groups", "reset", topic, "--to", 1, "--topic", topic)
    assert klamm.ok("consume", topic, "--group", topic, "--exit").out.split() == ["b", "c"]


def test_offsets_and_groups_are_deleted(klamm, topic):
    klamm.ok("consume", topic, "--group", topic, "--from", "beginning", "--exit")
    klamm.ok("groups", "delete-offsets", topic, "--topic", f"{topic}:1")
    partitions = klamm.ok("groups", "describe", topic, "--json").document["partitions"]
    assert {row["partition"] for row in partitions} == {0, 2}
    assert klamm.ok("groups", "delete", topic, "--json").document == {"deleted": [topic]}
    assert "GROUP_ID_NOT_FOUND" in klamm.refused(FAILED, "groups", "describe", topic)


def test_a_group_outlives_a_topic_it_consumed(klamm, topic, name):
    other = f"{name}-other"
    klamm.ok("topics", "create", other)
    for each in (topic, other):
        klamm.ok("consume", each, "--group", name, "--from", "beginning", "--exit")
    klamm.ok("topics", "delete", other)
    described = klamm.ok("groups", "describe", name, "--json").document["partitions"]
    assert {row["partition"] for row in described if row["topic"] == topic} == {0, 1, 2}


def test_members_are_removed(klamm, topic):
    for options in (("--instance", "a"), ("--all", "--reason", "moving house")):
        with Consumer(bootstrap_servers=klamm.bootstrap, group_id=topic, group_instance_id="a") as consumer:
            consumer.subscribe([topic])
            wait_until(consumer.assignment, between=lambda: consumer.poll(timeout_ms=50))
        (left,) = klamm.ok("groups", "describe", topic, "--members", "--json").document
        assert left["instance"] == "a"
        klamm.ok("groups", "remove-members", topic, *options)
        assert klamm.ok("groups", "describe", topic, "--members", "--json").document == []


def test_a_group_with_members_is_described_and_not_touched(klamm, topic):
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
def test_what_is_refused_about_groups(klamm, status, arguments, complaint):
    assert complaint in klamm.refused(status, "groups", *arguments)


def test_a_reset_names_partitions_and_times_that_exist(klamm, topic):
    reset = ("groups", "reset", topic, "--topic")
    assert "has partitions 0 to 2" in klamm.refused(USAGE, *reset, f"{topic}:3", "--to", "earliest")
    assert "--to 'soon' is not a position" in klamm.refused(USAGE, *reset, topic, "--to", "soon")


# --- cluster


def test_the_quorum_shows_who_leads_and_who_lags(klamm):
    described = klamm.ok("cluster", "quorum", "--json").document
    assert described["leader_id"] == 1
    assert described["high_watermark"] > 0
    replica = described["replicas"][0]
    assert (replica["id"], replica["kind"], replica["role"], replica["lag"]) == (1, "controller", "leader", 0)
    assert len(replica["directory_id"]) == 22
    assert {each["kind"] for each in described["replicas"]} == {"controller", "broker", "coordinator"}
    assert f"leader 1, term {described['term']}" in klamm.ok("cluster", "quorum").err


@pytest.mark.parametrize(
    ("command", "controller_id", "said"),
    [
        ("add-controller", 7, "controller 7 is not an observer"),
        ("add-controller", 1, "controller 1 is not an observer"),
        ("remove-controller", 7, "controller 7 is not a voter"),
        ("remove-controller", 1, "INVALID_REQUEST"),
    ],
)
def test_changes_of_the_quorum_that_are_refused_say_why(klamm, command, controller_id, said):
    assert said in klamm.refused(FAILED, "cluster", command, "--controller-id", controller_id)


def test_the_cluster_shows_its_servers_and_disks(klamm, topic):
    described = klamm.ok("cluster", "--json").document
    assert {(each["kind"], each["state"]) for each in described["servers"]} == {
        ("controller", "active"),
        ("broker", "live"),
        ("coordinator", "live"),
    }
    assert described["cluster_id"] in klamm.ok("cluster").err
    (disk,) = klamm.ok("cluster", "--log-dirs", "--json").document
    assert (disk["broker"], disk["state"]) == (1, "online")
    assert disk["replicas"] >= 3


# --- pipelines, before Spark starts


@pytest.fixture
def no_spark(monkeypatch):
    """Spark must not be started."""

    def start(*arguments: object) -> None:
        raise AssertionError(f"Spark was to be started: {arguments}")

    monkeypatch.setattr("klamm_pipelines.session.open_session", start)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("flight_delays", "--input", "missing"),
            "no topic 'missing' (--input); `klamm topics create missing`",
        ),
        (
            ("archive", "--topics", "missing,gone", "--archive", "/x"),
            "'missing' (--topics), 'gone' (--topics)",
        ),
        (("enrich",), "'flights' (--flights), 'weather' (--weather), 'planes' (--planes)"),
        (
            ("dedup_and_dead_letter", "--input", "missing", "--output", "o", "--dead-letter", "d"),
            "there is no topic 'missing' (--input)",  # The brokers create the others.
        ),
    ],
)
def test_a_pipeline_without_its_topics_says_so_before_spark_starts(klamm, tmp_path, arguments, complaint):
    line = klamm.refused(FAILED, "pipeline", "run", *arguments, "--checkpoint", tmp_path)
    assert complaint in line
    assert "Error" not in line


@pytest.mark.usefixtures("no_spark")
def test_topics_that_a_pipeline_writes_are_needed_where_brokers_create_none(tmp_path):
    with running_cluster(tmp_path / "cluster", {"auto.create.topics.enable": "false"}) as cluster:
        strict = KlammCommand(cluster.bootstrap)
        strict.ok("topics", "create", "departures")
        arguments = ("flight_delays", "--input", "departures", "--output", "figures", "--checkpoint", tmp_path)
        assert "no topic 'figures' (--output)" in strict.refused(FAILED, "pipeline", "run", *arguments)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("pipeline", ["flight_delays", "replay", "mirror"])
def test_a_pipeline_without_its_cluster_says_so_before_spark_starts(klamm, tmp_path, pipeline):
    address = f"127.0.0.1:{free_port()}"
    arguments = {
        "flight_delays": ("--checkpoint", tmp_path),
        "replay": ("--archive", tmp_path, "--topic", "t", "--to", "u"),
        "mirror": ("--topics", "t", "--target-bootstrap", klamm.bootstrap, "--checkpoint", tmp_path),
    }[pipeline]
    line = klamm.refused(UNREACHABLE, "pipeline", "run", pipeline, "--bootstrap", address, *arguments)
    assert f"no server answers at --bootstrap {address} (Connection refused)" in line


@pytest.mark.usefixtures("no_spark")
def test_a_mirror_looks_for_its_topics_groups_and_target_before_spark_starts(klamm, topic, tmp_path):
    def refused(status, *arguments):
        return klamm.refused(status, "pipeline", "run", "mirror", "--checkpoint", tmp_path, *arguments)

    to_itself = ("--target-bootstrap", klamm.bootstrap)
    assert "--topics 'missing' matches no topic" in refused(USAGE, "--topics", "missing", *to_itself)
    assert "--groups 'missing' matches no group" in refused(USAGE, "--topics", topic, "--groups", "missing", *to_itself)
    address = f"127.0.0.1:{free_port()}"
    line = refused(UNREACHABLE, "--topics", topic, "--target-bootstrap", address)
    assert f"no server answers at --target-bootstrap {address}" in line
