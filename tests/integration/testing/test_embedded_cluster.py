"""Tests the cluster that users start in their own tests: which failures it survives, and that it leaves no process."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import subprocess
import sys

import pytest

from klamm import Admin, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition
from klamm.errors import ConfigError
from klamm.testing import EmbeddedCluster
from klamm.testing.server import ServerNotReadyError
from tests.support.waiting import patience, wait_until


def test_records_survive_a_kill_and_a_pause_and_close_deletes_the_directory() -> None:
    with EmbeddedCluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert list(cluster.servers) == ["klamm"]
        assert producer.send("records", b"before").result(patience()).offset == 0
        cluster.kill()
        assert not cluster.servers["klamm"].is_running
        cluster.restart()
        cluster.pause("klamm")
        waiting = producer.send("records", b"after")
        assert not waiting.done()
        cluster.resume("klamm")
        assert waiting.result(patience()).offset == 1
    assert not cluster.data_dir.exists()
    assert not cluster.servers["klamm"].is_running


def test_one_broker_of_three_is_killed_and_comes_back() -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        assert list(cluster.servers) == ["controller-1", "broker-1", "broker-2", "broker-3", "coordinator-1"]
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("records", partition_count=3, replication_factor=3)])
            cluster.kill("broker-2")
            with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for partition in range(3):
                    producer.send("records", b"value", partition=partition).result(patience())
            cluster.restart("broker-2")
            wait_until(
                lambda: all(
                    len(partition.isr) == 3 for partition in admin.describe_topics(["records"])["records"].partitions
                )
            )


def test_an_embedded_cluster_serves_kafka_clients_and_async_clients(tmp_path: pathlib.Path) -> None:
    from confluent_kafka.admin import AdminClient

    async def scenario() -> EmbeddedCluster:
        async with EmbeddedCluster(data_dir=tmp_path, settings={"num.partitions": "2"}) as cluster:
            async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await (await producer.send("records", b"value", partition=1))
            kafka = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers})
            described = await asyncio.to_thread(kafka.list_topics, "records", patience())
            assert len(described.topics["records"].partitions) == 2
            return cluster

    cluster = asyncio.run(scenario())
    assert list(tmp_path.rglob("*.log")), "a directory that was given is kept"
    cluster.start()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        partition = TopicPartition("records", 1)
        assert consumer.end_offsets([partition]) == {partition: 1}
    cluster.close()


def test_an_embedded_cluster_that_cannot_start_names_the_reason(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=r"num\.partition"):
        EmbeddedCluster(settings={"num.partition": "2"})
    with (
        pytest.raises(ServerNotReadyError, match=r"num\.partitions"),
        EmbeddedCluster(settings={"num.partitions": "x"}),
    ):
        pass
    cluster = EmbeddedCluster(data_dir=tmp_path)
    with pytest.raises(ConfigError, match="no server is named 'broker-1', expected one of klamm"):
        cluster.kill("broker-1")
    cluster.close()


def test_no_process_is_left_when_the_test_itself_is_killed(tmp_path: pathlib.Path) -> None:
    program = (
        "import sys\n"
        "from klamm.testing import EmbeddedCluster\n"
        "cluster = EmbeddedCluster()\n"
        "cluster.start()\n"
        "print(cluster.servers['klamm'].pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert killed.stdout is not None
    pid = int(killed.stdout.readline())
    killed.send_signal(signal.SIGKILL)
    killed.communicate()

    def is_gone() -> bool:
        try:
            # Without an init process, a process without a waiting parent stays a zombie.
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(is_gone)
