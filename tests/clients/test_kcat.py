"""kcat, an older librdkafka as Debian has it, against the Kafka listener."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat not found: make test and make clients install it"
)
TIMEOUT_S = 60
COUNT = 200
LINES = [f"line {number}" for number in range(COUNT)]


def behaviour(text: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour("kcat", text)


def kcat(bootstrap: str, *arguments: str, lines: list[str] | None = None) -> list[str]:
    """Returns the output of kcat, by line."""
    given = None if lines is None else "".join(f"{line}\n" for line in lines)
    run = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def complaint(bootstrap: str, *arguments: str, given: str = "") -> str:
    """Returns the error output of kcat when it fails."""
    command = ["kcat", "-b", bootstrap, *arguments]
    run = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert run.returncode == 1, run.stderr
    return run.stderr


def everything(bootstrap: str, topic: str, *arguments: str) -> list[str]:
    return kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", *arguments)


@pytest.fixture
def topic(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 3)])[name].result(TIMEOUT_S)
    wait_until_known(name)
    return name


@behaviour("produces and consumes with every codec")
def test_kcat_produces_and_consumes_with_every_codec(bootstrap: str, topic: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        kcat(bootstrap, "-P", "-t", topic, "-z", codec, lines=[f"{codec} {line}" for line in LINES])
    expected = sorted(f"{codec} {line}" for codec in ("none", "gzip", "snappy", "lz4", "zstd") for line in LINES)
    assert sorted(everything(bootstrap, topic)) == expected


@behaviour("produces without duplicates (idempotent)")
def test_kcat_produces_idempotently_in_order(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", lines=LINES)
    assert everything(bootstrap, topic, "-p", "0") == LINES


@behaviour("reads, processes and writes in transactions")
def test_kcat_produces_in_a_transaction(bootstrap: str, topic: str, name: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-X", f"transactional.id={name}", lines=LINES)
    assert everything(bootstrap, topic, "-p", "0", "-X", "isolation.level=read_committed") == LINES


@behaviour("a newer producer fences the older one")
def test_a_newer_kcat_producer_fences_the_older_one(bootstrap: str, topic: str, name: str) -> None:
    produce = ["-P", "-t", topic, "-p", "0", "-m", str(TIMEOUT_S), "-X", f"transactional.id={name}"]
    command = ["kcat", "-b", bootstrap, *produce]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as older:
        assert older.stdin is not None
        # It waits for a buffer full of them.
        older.stdin.write("from the past\n" * 20_000)
        older.stdin.flush()
        wait_until(lambda: everything(bootstrap, topic, "-p", "0", "-X", "isolation.level=read_uncommitted") != [])
        kcat(bootstrap, *produce, lines=["from now"])
        _, complaint = older.communicate(timeout=TIMEOUT_S)
        assert older.returncode == 1, complaint
        assert "fenced" in complaint
    assert everything(bootstrap, topic, "-p", "0", "-X", "isolation.level=read_committed") == ["from now"]


class KcatMember:
    """A `kcat -G` that runs until it is ended. It prints into two files."""

    def __init__(self, bootstrap: str, topic: str, files: Path, *settings: str) -> None:
        self._read, self._said = files.with_suffix(".read"), files.with_suffix(".said")
        options = [option for setting in ("auto.offset.reset=earliest", *settings) for option in ("-X", setting)]
        with self._read.open("w") as read, self._said.open("w") as said:
            command = ["kcat", "-b", bootstrap, "-G", topic, "-u", *options, topic]
            self._process = subprocess.Popen(command, stdout=read, stderr=said)

    def __enter__(self) -> KcatMember:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S)

    def rebalances(self) -> list[str]:
        """Returns the lines that kcat printed for its rebalances."""
        return [line for line in self._said.read_text().splitlines() if " rebalanced" in line]

    def was(self, what: str) -> bool:
        """True if the member's last rebalance printed this text."""
        return any(what in line for line in self.rebalances()[-1:])

    def lines(self) -> list[str]:
        return self._read.read_text().splitlines()


@behaviour("groups rebalance while they consume")
def test_kcat_members_rebalance_and_lose_no_record(bootstrap: str, topic: str, tmp_path: Path) -> None:
    with KcatMember(bootstrap, topic, tmp_path / "first") as first:
        wait_until(lambda: first.was(f"assigned: {topic} [0], {topic} [1]"))
        with KcatMember(bootstrap, topic, tmp_path / "second") as second:
            wait_until(lambda: has_one_each(topic, first, second))
            kcat(bootstrap, "-P", "-t", topic, lines=LINES)
            wait_until(lambda: len(first.lines() + second.lines()) >= COUNT)
        wait_until(lambda: first.was(f"assigned: {topic} [0], {topic} [1]"))
    assert sorted(first.lines() + second.lines()) == sorted(LINES)


@behaviour("groups rebalance cooperatively")
def test_kcat_members_rebalance_cooperatively(bootstrap: str, topic: str, tmp_path: Path) -> None:
    cooperative = "partition.assignment.strategy=cooperative-sticky"
    with KcatMember(bootstrap, topic, tmp_path / "first", cooperative) as first:
        wait_until(lambda: first.was("incremental assignment of 2 partition(s)"))
        with KcatMember(bootstrap, topic, tmp_path / "second", cooperative) as second:
            wait_until(lambda: second.was("incremental assignment of 1 partition(s)"))
            assert [line for line in first.rebalances() if "incremental revoke of 1 partition(s)" in line]
            kcat(bootstrap, "-P", "-t", topic, lines=LINES)
            wait_until(lambda: len(first.lines() + second.lines()) >= COUNT)
    assert sorted(first.lines() + second.lines()) == sorted(LINES)


@behaviour("static members keep their partitions")
def test_a_static_kcat_member_gets_its_partitions_back_without_a_rebalance(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    static = "group.instance.id=one"
    with KcatMember(bootstrap, topic, tmp_path / "other") as other:
        with KcatMember(bootstrap, topic, tmp_path / "one", static) as one:
            wait_until(lambda: has_one_each(topic, one, other))
            had = one.rebalances()[-1].rpartition(":")[2]
            before = other.rebalances()
        with KcatMember(bootstrap, topic, tmp_path / "one-again", static) as again:
            wait_until(lambda: again.was(f"assigned:{had}"))
            kcat(bootstrap, "-P", "-t", topic, lines=LINES)
            wait_until(lambda: len(again.lines() + other.lines()) >= COUNT)
            assert other.rebalances() == before


def has_one_each(topic: str, *members: KcatMember) -> bool:
    """True if each member has one of the topic's two partitions."""
    had = sorted(line.partition("assigned: ")[2] for member in members for line in member.rebalances()[-1:])
    return had == [f"{topic} [0]", f"{topic} [1]"]


@behaviour("offsets by time, at both ends, records deleted")
def test_kcat_finds_offsets_by_time_and_at_the_end(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", lines=LINES)
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1") == [f"{topic} [0] offset {COUNT}"]
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:1000") == [f"{topic} [0] offset 0"]
    assert everything(bootstrap, topic, "-p", "0", "-o", "-5") == LINES[-5:]


@behaviour("replicas, leaders, log dirs")
def test_kcat_shows_leaders_and_replicas(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[2, 1]])])[name].result(TIMEOUT_S)
    wait_until_known(name)
    assert "    partition 0, leader 2, replicas: 2,1, isrs: 2,1" in kcat(bootstrap, "-L", "-t", name)


@behaviour("names errors as with Kafka")
def test_kcat_prints_kafkas_errors(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 3, config={"max.message.bytes": "1000"})])[name].result(TIMEOUT_S)
    wait_until_known(name)
    assert "Broker: Message size too large" in complaint(bootstrap, "-P", "-t", name, given="x" * 2_000)
    assert "Broker: Invalid topic" in complaint(bootstrap, "-P", "-t", "a b", given="x")
    unknown = complaint(bootstrap, "-C", "-t", f"{name}-none", "-e", "-X", "allow.auto.create.topics=false")
    assert "Broker: Unknown topic or partition" in unknown


@behaviour("brokers, quorum, features, users")
def test_kcat_lists_brokers_and_partitions(bootstrap: str, topic: str) -> None:
    listed = kcat(bootstrap, "-L", "-t", topic)
    assert " 3 brokers:" in listed
    assert f'  topic "{topic}" with 2 partitions:' in listed
