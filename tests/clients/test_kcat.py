"""kcat, an older librdkafka as Debian has it, against the Kafka listener."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make clients installs it"),
]
TIMEOUT_S = 60
COUNT = 200
LINES = [f"line {number}" for number in range(COUNT)]


def behaviour(text: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour("kcat", text)


def kcat(bootstrap: str, *arguments: str, lines: list[str] | None = None) -> list[str]:
    """What it prints, by line."""
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


def everything(bootstrap: str, topic: str, *arguments: str) -> list[str]:
    return kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", *arguments)


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 3)])[name].result(TIMEOUT_S)
    return name


@behaviour("produces and consumes with every codec")
def test_codecs(bootstrap: str, topic: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        kcat(bootstrap, "-P", "-t", topic, "-z", codec, lines=[f"{codec} {line}" for line in LINES])
    expected = sorted(f"{codec} {line}" for codec in ("none", "gzip", "snappy", "lz4", "zstd") for line in LINES)
    assert sorted(everything(bootstrap, topic)) == expected


@behaviour("produces without duplicates (idempotent)")
def test_idempotent(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", lines=LINES)
    assert everything(bootstrap, topic, "-p", "0") == LINES


@behaviour("reads, processes and writes in transactions")
def test_transactions(bootstrap: str, topic: str, name: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-X", f"transactional.id={name}", lines=LINES)
    assert everything(bootstrap, topic, "-p", "0", "-X", "isolation.level=read_committed") == LINES


@behaviour("groups rebalance while they consume")
def test_a_group(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, lines=LINES)
    group = ["-G", topic, "-c", str(COUNT), "-q", "-X", "auto.offset.reset=earliest", topic]
    assert sorted(kcat(bootstrap, *group)) == sorted(LINES)


@behaviour("offsets by time, at both ends, records deleted")
def test_offsets(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", lines=LINES)
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1") == [f"{topic} [0] offset {COUNT}"]
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:1000") == [f"{topic} [0] offset 0"]
    assert everything(bootstrap, topic, "-p", "0", "-o", "-5") == LINES[-5:]


@behaviour("brokers, quorum, features, users")
def test_metadata(bootstrap: str, topic: str) -> None:
    listed = kcat(bootstrap, "-L", "-t", topic)
    assert " 3 brokers:" in listed
    assert f'  topic "{topic}" with 2 partitions:' in listed
