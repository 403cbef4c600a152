from __future__ import annotations

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.io.shard_metrics import watch_groups, watch_transactions
from klamm_coordinator.lag.group_lag import PartitionLag, Unread
from klamm_server.metrics.prometheus import registry
from tests.support.transaction_driver import LEDGER, TransactionDriver


def test_the_metrics_show_groups_with_members_and_offsets(make_driver):
    driver = make_driver()
    driver.topics_are(t=3)
    driver.settle(driver.consumer("m1", group_id="new", topics=("t",)))
    driver.join(joins_without_id=True, group_id="old")
    for partition, offset in enumerate((17, 5)):
        driver.commit(offset, partition=partition, group_id="alone")
    driver.commit(-1, partition=2, group_id="alone")
    watch_groups(lambda: [driver.rules], lambda: iter(()), lambda: 0)
    found = registry().get_sample_value
    reset = {"group": "alone", "topic": "t", "partition": "2"}
    assert found("klamm_coordinator_group_offset", reset) is None, "it begins where a member's policy says"
    for partition, offset in enumerate((17, 5)):
        labels = {"group": "alone", "topic": "t", "partition": str(partition)}
        assert found("klamm_coordinator_group_offset", labels) == offset
    members = {group: found("klamm_coordinator_group_members", {"group": group}) for group in ("new", "old", "alone")}
    assert members == {"new": 1, "old": 1, "alone": 0}
    assert found("klamm_coordinator_groups", {"protocol": "classic", "state": "Empty"}) == 1
    assert found("klamm_coordinator_groups", {"protocol": "classic", "state": "PreparingRebalance"}) == 1
    assert found("klamm_coordinator_groups", {"protocol": "consumer", "state": "Stable"}) == 1


def test_the_metrics_show_what_groups_have_to_read_and_what_they_lost():
    now_ms = 1_700_000_000_000
    unread = Unread(next_deletion_ms=now_ms + 90_000)
    lags = [
        ("a", PartitionLag(TopicPartition("t", 0), unread, lag=7, behind_ms=4_500, lost_count=3)),
        ("a", PartitionLag(TopicPartition("t", 1), Unread(), lag=0, behind_ms=0)),
        ("a", PartitionLag(TopicPartition("t", 2), Unread(ErrorCode.LEADER_NOT_AVAILABLE))),
    ]
    watch_groups(list, lambda: iter(lags), lambda: now_ms)

    def found(name, partition):
        labels = {"group": "a", "topic": "t", "partition": str(partition)}
        return registry().get_sample_value(f"klamm_coordinator_group_{name}", labels)

    assert [found("behind_seconds", number) for number in range(3)] == [4.5, 0, None]
    assert [found("unread_records", number) for number in range(3)] == [7, 0, None]
    assert [found("lost_records", number) for number in range(3)] == [3, None, None]
    assert [found("unread_deletion_seconds", number) for number in range(3)] == [90, None, None]


def test_the_metrics_show_transactions_by_state_and_the_age_of_the_oldest():
    driver = TransactionDriver()
    watch_transactions(lambda: [driver.rules], lambda: driver.now.wall_ms)
    found = registry().get_sample_value
    assert found("klamm_coordinator_oldest_transaction_seconds") == 0
    for transactional_id in ("a", "b", "c"):
        driver.init(transactional_id=transactional_id)
    driver.add(driver.value("a").producer, 1, transactional_id="a")
    driver.advance(5_000)
    driver.add(driver.value("b").producer, 1, transactional_id="b")
    driver.advance(1_000)
    assert found("klamm_coordinator_transactions", {"state": "Ongoing"}) == 2
    assert found("klamm_coordinator_transactions", {"state": "Empty"}) == 1
    assert found("klamm_coordinator_oldest_transaction_seconds") == 6


def test_the_metrics_show_the_open_parts_and_the_committed_batch_of_a_ledger():
    driver = TransactionDriver()
    watch_transactions(lambda: [driver.rules], lambda: driver.now.wall_ms)
    labels = {"sink": LEDGER.sink, "query": LEDGER.query_id}
    found = registry().get_sample_value
    driver.register("a-run", 7)
    part = driver.prepared_part("a-run", 7, partition=0)
    driver.advance(2_000)
    assert found("klamm_coordinator_ledger_open_parts", labels) == 1
    assert found("klamm_coordinator_ledger_idle_seconds", labels) == 2
    driver.decide("a-run", 7, committed=True, parts=(part,))
    assert found("klamm_coordinator_ledger_committed_batch", labels) == 7
    assert found("klamm_coordinator_ledger_open_parts", labels) == 0
