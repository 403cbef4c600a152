"""Tests backup and restore of a `klamm up` by the commands of the guide docs/how-to/back-up-and-restore.md."""

from __future__ import annotations

import pathlib
import re
import subprocess

from klamm import Consumer, Producer, TopicPartition
from tests.support.klamm_process import KlammProcess
from tests.support.reading import read_to_end

GUIDE = (pathlib.Path(__file__).parents[3] / "docs" / "how-to" / "back-up-and-restore.md").read_text()
TOPIC = TopicPartition("orders", 0)


def documented(heading: str) -> list[str]:
    """Returns the shell blocks of a section."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^##)", GUIDE, re.MULTILINE | re.DOTALL)
    assert section, heading
    return re.findall(r"^```sh\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)


def sh(commands: str, directory: pathlib.Path) -> None:
    subprocess.run(["sh", "-e", "-c", commands], cwd=directory, check=True)


def produce(cluster: KlammProcess, values: list[str], transactional_id: str | None = None) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer:
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        for value in values:
            producer.send("orders", value=value.encode(), partition=0)
        if transactional_id:
            producer.commit_transaction()
        producer.flush()


def consume(cluster: KlammProcess, group: str) -> list[str]:
    """Returns the values that the group has not read yet, and commits them."""
    settings = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(bootstrap_servers=cluster.bootstrap, enable_auto_commit=False, **settings) as consumer:
        consumer.subscribe(["orders"])
        records = read_to_end(consumer, [TopicPartition("orders", 0)])
        consumer.commit()
    return [record.value.decode() for record in records]


def test_a_restore_brings_back_the_records_and_offsets_of_the_backup(tmp_path: pathlib.Path) -> None:
    (backup, restore) = documented("Back up `klamm up`")
    cluster = KlammProcess(tmp_path)
    cluster.start()
    try:
        produce(cluster, ["a", "b"])
        assert consume(cluster, "readers") == ["a", "b"]
        produce(cluster, ["c", "d"], transactional_id="writer")
        cluster.stop()
        sh(backup, tmp_path)

        cluster.start()
        produce(cluster, ["lost"])
        assert consume(cluster, "readers") == ["c", "d", "lost"]
        cluster.stop()
        sh(restore, tmp_path)

        cluster.start()
        assert consume(cluster, "readers") == ["c", "d"], "the group stands where it stood at the backup"
        produce(cluster, ["e"], transactional_id="writer")
        assert consume(cluster, "readers") == ["e"]
        assert consume(cluster, "others") == ["a", "b", "c", "d", "e"]
    finally:
        if cluster.running:
            cluster.stop()
