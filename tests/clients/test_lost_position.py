"""Groups whose next records were deleted: Klamm's client reads and commits as Java's client and librdkafka do."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest

from klamm import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.consumer import PositionReset
from tests.clients.conftest import Cluster
from tests.clients.test_tools import tool
from tests.support.waiting import patience, wait_until

WRITTEN, DELETED, COMMITTED = 100, 60, 10
JAVA_IDLE_MS = 10_000
"""Java's console consumer ends when no record came for this long."""

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


def read_with_java(cluster: Cluster, group: str, topic: str, reset: str) -> int:
    """Returns the number of records that the console consumer prints. It commits when it ends."""
    printed = tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group),
        *("--consumer-property", f"auto.offset.reset={reset}", "--timeout-ms", str(JAVA_IDLE_MS)),
    )
    return len([line for line in printed.splitlines() if line.startswith("record ")])


def read_with_librdkafka(cluster: Cluster, group: str, topic: str, reset: str) -> int:
    """Returns the number of records up to the end of the partition. Commits the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    count = 0
    try:
        while True:
            message = consumer.poll(patience())
            assert message is not None, "neither a record nor the end of the partition came"
            if message.error() is None:
                count += 1
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ends = confluent_kafka.TopicPartition(topic, 0, consumer.position(_at(topic))[0].offset)
                # librdkafka has a position only where it has read a record.
                if ends.offset < 0:
                    ends.offset = message.offset()
                consumer.commit(offsets=[ends], asynchronous=False)
                return count
            else:
                raise AssertionError(message.error())
    finally:
        consumer.close()


def read_with_klamm(cluster: Cluster, group: str, topic: str, reset: str) -> int:
    """Returns the number of records up to the end of the partition. Commits the end."""
    tp, count, resets = TopicPartition(topic, 0), 0, list[PositionReset]()
    with Consumer(
        bootstrap_servers=cluster.klamm_bootstrap,
        group_id=group,
        auto_offset_reset=reset,
        enable_auto_commit=False,
        on_position_reset=resets.append,
    ) as consumer:
        consumer.subscribe([topic])

        def poll() -> None:
            nonlocal count
            count += len(consumer.poll(timeout_ms=100).get(tp, ()))

        wait_until(lambda: resets and consumer.position(tp) == WRITTEN, between=poll)
        consumer.commit()
        (reset_,) = resets
        assert (reset_.old_position, reset_.log_start_offset, reset_.log_end_offset) == (COMMITTED, DELETED, WRITTEN)
        assert consumer.metrics()["records-skipped-total"] == WRITTEN - COMMITTED - count
    return count


def _at(topic: str) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(topic, 0)]


@pytest.mark.parametrize(("reset", "read"), [("earliest", WRITTEN - DELETED), ("latest", 0)])
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(read_with_java, id="java"),
        pytest.param(read_with_librdkafka, id="librdkafka"),
        pytest.param(read_with_klamm, id="klamm"),
    ],
)
def test_a_group_whose_committed_records_were_deleted_resets_its_offset_with_each_client(
    cluster: Cluster, name: str, client: Callable[[Cluster, str, str, str], int], reset: str, read: int
) -> None:
    tp = TopicPartition(name, 0)
    with Admin(bootstrap_servers=cluster.klamm_bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=1, replication_factor=3)])
        with Producer(bootstrap_servers=cluster.klamm_bootstrap) as producer:
            sent = [producer.send(name, b"record %d" % number) for number in range(WRITTEN)]
            producer.flush()
            assert [each.result().offset for each in sent] == list(range(WRITTEN))
        admin.alter_group_offsets(name, {tp: OffsetAndMetadata(COMMITTED)})
        assert admin.delete_records({tp: DELETED}) == {tp: DELETED}
        assert client(cluster, name, name, reset) == read
        committed = admin.list_group_offsets(name)[tp]
        assert committed is not None
        assert committed.offset == WRITTEN
