from __future__ import annotations

from types import SimpleNamespace

from klamm_controller.active.metrics import watch_controller
from klamm_controller.metadata.brokers import handle_broker_session_end
from klamm_server.metrics.prometheus import registry


def test_the_controller_metrics_show_the_committed_image(three_brokers):
    controller = SimpleNamespace(is_active=True, committed=three_brokers.image)
    watch_controller(controller)
    three_brokers.create_one("a", 4)
    three_brokers.create_one("b", 2)
    three_brokers.add_coordinator(1)
    three_brokers.apply(handle_broker_session_end(2, three_brokers.image))
    led_by_nobody = sum(p.leader == -1 for name in "ab" for p in three_brokers.topic(name).partitions)
    assert led_by_nobody
    controller.committed = three_brokers.image

    assert registry().get_sample_value("klamm_controller_active") == 1
    assert registry().get_sample_value("klamm_metadata_end_index") == three_brokers.image.end_index
    assert registry().get_sample_value("klamm_topics") == 2
    assert registry().get_sample_value("klamm_partitions") == 6
    assert registry().get_sample_value("klamm_offline_partitions") == led_by_nobody
    named = {
        (topic, str(number)): registry().get_sample_value(
            "klamm_partition_without_leader", {"topic": topic, "partition": str(number)}
        )
        for topic, number in (("a", n) for n in range(4))
    }
    assert named == {
        ("a", str(p.partition)): 1 if p.leader == -1 else None for p in three_brokers.topic("a").partitions
    }
    controller.is_active = False
    assert not any(one.samples for one in registry().collect() if one.name == "klamm_partition_without_leader")
    assert registry().get_sample_value("klamm_preferred_replica_imbalance") == led_by_nobody, "each has one replica"
    assert registry().get_sample_value("klamm_reassigning_partitions") == 0
    assert registry().get_sample_value("klamm_brokers", {"state": "live"}) == 2
    assert registry().get_sample_value("klamm_brokers", {"state": "fenced"}) == 1
    assert registry().get_sample_value("klamm_coordinators", {"state": "live"}) == 1
    assert registry().get_sample_value("klamm_coordinators", {"state": "fenced"}) == 0
