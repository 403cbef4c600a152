"""The counter beside a real cluster, which the fixtures of klamm.testing start and stop."""

from counter import OrderCounter

from klamm import Consumer, Producer
from klamm.testing import EmbeddedCluster


def test_orders_are_counted(klamm_topic: str, klamm_producer: Producer, klamm_consumer: Consumer) -> None:
    for customer in (b"alice", b"bob", b"alice"):
        klamm_producer.send(klamm_topic, b"an order", key=customer)
    klamm_producer.flush()
    counter, seen = OrderCounter(klamm_producer, f"{klamm_topic}-counts"), 0
    while seen < 3:
        for records in klamm_consumer.poll(1_000).values():
            counter.count(records)
            seen += len(records)
    assert counter.counts == {b"alice": 2, b"bob": 1}


def test_counts_outlive_the_death_of_the_cluster() -> None:
    with EmbeddedCluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("orders", b"an order", key=b"alice").result(60)
        cluster.kill()
        cluster.restart()
        assert producer.send("orders", b"another", key=b"alice").result(60).offset == 1
