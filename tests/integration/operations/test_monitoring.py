"""Tests every dashboard query and every rule on a real Prometheus and a real cluster under a known load.

`pytest -s tests/integration/operations/test_monitoring.py` prints each query, its value, and the expected value.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import confluent_kafka
import pytest

from klamm import Admin, Consumer, LedgerId, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from tests.support.controller_quorum import CLUSTER_ID, HOST
from tests.support.ports import free_port
from tests.support.prometheus_server import PrometheusServer
from tests.support.server_process import ServerProcess
from tests.support.waiting import patience, wait_until

ROOT = Path(__file__).resolve().parents[3]
TOPIC, PARTITIONS = "orders", 3
SENT, SENT_BY_KAFKA_CLIENT, LEFT_OPEN = 300, 60, 1
GROUP, COMMITTED = "billing", (50, 40, 30)
QUERY_GROUP, QUERY_OFFSET = "a-query", 10
LEDGER = LedgerId("delays", "a-query")
SHARDS = 4
RANGES = {"$__rate_interval": "5m", "$__range": "1h"}
EVERYTHING = {"$broker": "broker-1", "$topic": ".*", "$group": ".*", "$sink": ".*", "$cluster": "cluster"}
OF_THE_MACHINE = re.compile(r"Disk|EventLoop|Slow$|LocalTimeHigh|LeaderFlapping")
"""Alerts that say more about where the test runs than about the cluster."""


class Watched(NamedTuple):
    """The processes and addresses that the tests use."""

    prometheus: PrometheusServer
    admin: Admin
    controllers: dict[int, ServerProcess]


def _servers(directory: Path) -> dict[str, list[ServerProcess]]:
    """Returns three controllers, a broker and a coordinator by job, each with a metrics port."""
    ports = [free_port() for _ in range(3)]
    servers = {"controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{port}" for port in ports)}
    topics = {"offsets.topic.num.partitions": str(SHARDS), "transaction.state.log.num.partitions": str(SHARDS)}
    replicas = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}

    def server(package: str, node_id: int, port: int, settings: dict[str, str], kafka: str = "") -> ServerProcess:
        own = {"listeners": f"GRPC://{HOST}:{port}{kafka}", "metrics.port": str(free_port())}
        return ServerProcess(package, node_id, directory, {**own, **settings})

    voters = {
        "controller.quorum.voters": ",".join(f"{node}@{HOST}:{port}" for node, port in enumerate(ports, 1)),
        "cluster.id": CLUSTER_ID,
    }
    controllers = [
        server(
            "klamm_controller",
            node_id,
            port,
            {"metadata.log.dir": str(directory / f"controller-{node_id}"), **voters, **topics, **replicas},
        )
        for node_id, port in enumerate(ports, 1)
    ]
    of_broker = {"log.dirs": str(directory / "broker"), "offsets.topic.num.partitions": str(SHARDS)}
    broker = server("klamm_broker", 1, free_port(), {**servers, **of_broker}, f",KAFKA://{HOST}:{free_port()}")
    quick = {"group.initial.rebalance.delay.ms": "0"}
    coordinator = server("klamm_coordinator", 1, free_port(), {**servers, **quick})
    return {"controller": controllers, "broker": [broker], "coordinator": [coordinator]}


def _endpoints(broker: ServerProcess) -> tuple[str, str]:
    """Returns the broker's addresses for our clients and for Kafka's."""
    ours, kafkas = broker.settings["listeners"].split(",")
    return ours.removeprefix("GRPC://"), kafkas.removeprefix("KAFKA://")


def _targets(servers: dict[str, list[ServerProcess]]) -> dict[str, dict[str, str]]:
    return {
        job: {f"{HOST}:{one.settings['metrics.port']}": f"{job}-{one.node_id}" for one in of_job}
        for job, of_job in servers.items()
    }


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no Prometheus here: apt-get install prometheus")
    directory = tmp_path_factory.mktemp("monitoring")
    with ExitStack() as stack:
        servers = _servers(directory)
        for server in (one for of_job in servers.values() for one in of_job):
            server.start()
            stack.callback(server.abandon)
        prometheus = PrometheusServer(program, directory, _targets(servers))
        prometheus.start()
        stack.callback(prometheus.stop)
        ours, kafkas = _endpoints(servers["broker"][0])
        admin = stack.enter_context(Admin(bootstrap_servers=ours))
        _work(stack, prometheus, admin, ours, kafkas)
        yield Watched(prometheus, admin, {server.node_id: server for server in servers["controller"]})


def _work(stack: ExitStack, prometheus: PrometheusServer, admin: Admin, ours: str, kafkas: str) -> None:
    """Puts a known load on the cluster and leaves its open clients to `stack`.

    Growing values grow twice, because a rate needs two scrapes.
    """
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    consumer = stack.enter_context(Consumer(bootstrap_servers=ours, group_id=GROUP, enable_auto_commit=False))
    consumer.subscribe([TOPIC])
    with Producer(bootstrap_servers=ours) as producer:
        for sent, share in ((0, 1), (1, 2)):
            for number in range(SENT // 2):
                producer.send(TOPIC, b"ours", partition=number % PARTITIONS)
            producer.flush()
            _send_by_kafka_client(kafkas, SENT_BY_KAFKA_CLIENT // 2)
            _read_and_commit(consumer, share)
            offsets = {TopicPartition(TOPIC, 0): QUERY_OFFSET * share // 2}
            admin.alter_group_offsets(QUERY_GROUP, offsets)
            _write_batch(admin, ours, batch_id=sent)
            admin.create_topics([NewTopic(f"other-{share}", 1)])
            prometheus.wait_scraped()
    left_open = stack.enter_context(Producer(bootstrap_servers=ours, transactional_id="left-open"))
    left_open.init_transactions()
    left_open.begin_transaction()
    left_open.send(TOPIC, b"open", partition=0).result(patience())
    stack.callback(left_open.abort_transaction)
    prometheus.wait_scraped()
    prometheus.wait_evaluated()


def _send_by_kafka_client(bootstrap: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(TOPIC, b"Kafka's", partition=number % PARTITIONS)
    assert producer.flush(patience()) == 0


def _read_and_commit(consumer: Consumer, share: int) -> None:
    wait_until(
        lambda: len(consumer.assignment()) == PARTITIONS, consumer.assignment, between=lambda: consumer.poll(100)
    )
    consumer.poll(1_000)
    offsets = {
        TopicPartition(TOPIC, number): OffsetAndMetadata(offset * share // 2) for number, offset in enumerate(COMMITTED)
    }
    consumer.commit(offsets)


def _write_batch(admin: Admin, bootstrap: str, batch_id: int) -> None:
    """Writes a batch as a Spark query's sink does."""
    assert admin.register_run(LEDGER, "a-run", batch_id)
    with Producer(bootstrap_servers=bootstrap, transactional_id=LEDGER.part(0, 0)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"delay", partition=2)
        part = producer.prepare_transaction("a-run", batch_id)
        assert part is not None
        admin.commit_batch(LEDGER, "a-run", batch_id, [part])


def _high_watermarks(admin: Admin) -> dict[int, int]:
    found = admin.list_offsets({TopicPartition(TOPIC, number): -1 for number in range(PARTITIONS)})
    return {partition.partition: one.offset for partition, one in found.items() if one is not None}


def _show(query: str, value: object, expected: object) -> None:
    print(f"{' '.join(query.split())} | {value} | {expected}")


class TestValues:
    """The values of queries whose expected value is known."""

    def test_prometheus_has_the_expected_record_counts_lags_and_cluster_state(self, watched: Watched) -> None:
        ends = _high_watermarks(watched.admin)
        in_group = {number: ends[number] - offset for number, offset in enumerate(COMMITTED)}
        in_group[2] -= 2  # the markers of the two batches are no records
        expected = {
            "sum(klamm_controller_active)": 1,
            'klamm_brokers{state="live"} and on (instance) klamm_controller_active == 1': 1,
            "max(klamm_offline_partitions)": 0,
            "klamm_topics and on (instance) klamm_controller_active == 1": 5,
            "max(klamm_raft_voters)": 3,
            'sum(klamm_raft_role{role="leader"})': 1,
            'sum(klamm_raft_role{role="follower"})': 2,
            "count(klamm_raft_replica_lag_entries)": 2,
            "count(count by (klamm_raft_term) (klamm_raft_term))": 1,
            f'sum(klamm_broker_in_messages_total{{topic="{TOPIC}"}})': SENT + SENT_BY_KAFKA_CLIENT + 2 + LEFT_OPEN,
            'klamm_broker_in_messages_total{topic="other-1"}': 0,  # no client has written to it
            f'sum(klamm_broker_partition_high_watermark{{topic="{TOPIC}"}})': sum(ends.values()),
            f'sum(klamm:group_lag:records{{group="{GROUP}"}})': sum(in_group.values()),
            f'klamm:group_lag:records{{group="{GROUP}", partition="0"}}': in_group[0],
            f'klamm:group_topic_lag:records{{group="{QUERY_GROUP}"}}': ends[0] - QUERY_OFFSET,
            "sum(klamm:group_below_start:records)": 0,
            "sum(klamm:group_lost_in_4h:records)": 0,
            f'klamm_coordinator_group_members{{group="{GROUP}"}}': 1,
            f'klamm_coordinator_group_members{{group="{QUERY_GROUP}"}}': 0,
            'klamm_coordinator_groups{protocol="classic", state="Stable"}': 1,
            "sum(klamm_coordinator_shards)": 2 * SHARDS,
            'klamm_coordinator_transactions{state="Ongoing"}': 1,
            'klamm_coordinator_transactions{state="CompleteCommit"}': 1,
            f'klamm_coordinator_ledger_committed_batch{{sink="{LEDGER.sink}"}}': 1,
            'sum(klamm_broker_kafka_requests_total{api="PRODUCE"}) > bool 0': 1,
            'klamm_broker_request_seconds_count{listener="KAFKA", api="Produce", phase="total"} > bool 0': 1,
            "sum(klamm_metrics_truncated)": 0,
            'sum(klamm_server_info{role="controller"})': 3,
            'sum(klamm_server_info{role="broker"})': 1,
            'sum(klamm_server_info{role="coordinator"})': 1,
        }
        for query, value in expected.items():
            found = watched.prometheus.until(lambda query=query: watched.prometheus.one(query), value)
            _show(query, found, value)
            assert found == value, query

    def test_the_size_of_the_logs_is_that_of_their_files(self, watched: Watched) -> None:
        """The logs grow between a scrape and the test's own count, so the test asks for both until they agree."""
        query = f'klamm_broker_log_size_bytes{{topic="{TOPIC}"}}'

        def in_prometheus() -> dict[int, float]:
            return {int(sample.labels["partition"]): sample.value for sample in watched.prometheus.ask(query)}

        def differences() -> dict[int, tuple[float, int]]:
            shown, sizes = in_prometheus(), _log_sizes(watched)
            return {
                partition: (shown.get(partition, 0), size)
                for partition, size in sizes.items()
                if shown.get(partition) != size
            }

        assert watched.prometheus.until(differences, {}) == {}
        assert all(size > 0 for size in in_prometheus().values())


def _log_sizes(watched: Watched) -> dict[int, int]:
    """Returns the bytes of each partition's log, as the brokers describe them."""
    return {
        replica.tp.partition: replica.size_bytes
        for log_dir in watched.admin.describe_log_dirs()[1]
        for replica in log_dir.replicas
        if replica.tp.topic == TOPIC
    }


def _builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_dashboards", ROOT / "tools" / "build_dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, source in _builder().sources():
        for row in source["rows"]:
            for panel in row["panels"]:
                yield name, panel


def _filled_in(query: str) -> str:
    for variable, text in {**RANGES, **EVERYTHING}.items():
        query = query.replace(variable, text)
    assert "$" not in query, query
    return query.partition(" | ")[0]


@pytest.mark.parametrize("dashboard", ["broker", "cluster", "raft", "spark", "topics"])
def test_every_query_of_a_dashboard_has_an_answer(watched: Watched, dashboard: str) -> None:
    panels = [panel for name, panel in _panels() if name == dashboard]
    assert panels
    empty = []
    for panel in panels:
        for query in panel["queries"]:
            may_be_empty = panel.get("may_be_empty", False)
            found = watched.prometheus.until(
                lambda query=query, may_be_empty=may_be_empty: bool(_values(watched, query)) or may_be_empty, True
            )
            values = [round(value, 4) for value in _values(watched, query)[:4]]
            _show(f"{dashboard}: {panel['title']}: {query}", values, "any" if may_be_empty else "some")
            if not found:
                empty.append(f"{panel['title']}: {query}")
    assert not empty


def _values(watched: Watched, query: str) -> list[float]:
    """Returns the query's values that are numbers. A quantile without observations is not a number."""
    found = watched.prometheus.ask(_filled_in(query))
    return [sample.value for sample in found if not math.isnan(sample.value)]


def test_the_variables_of_dashboards_list_all_clusters_brokers_topics_and_groups(watched: Watched) -> None:
    found = {}
    for name, query in _builder().VARIABLES.items():
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", _filled_in(query))
        assert match is not None, query
        found[name] = {sample.labels[match[2]] for sample in watched.prometheus.ask(match[1])}
    assert found["cluster"] == {"cluster"}
    assert found["broker"] == {"broker-1"}
    assert TOPIC in found["topic"]
    assert found["group"] == {GROUP, QUERY_GROUP}
    assert found["sink"] == {LEDGER.sink}


def test_every_rule_is_evaluated_and_a_healthy_cluster_has_no_alert(watched: Watched) -> None:
    rules = watched.prometheus.rules()
    assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]
    assert len(_alerts(rules)) > 40
    loud = watched.prometheus.until(lambda: _loud(watched.prometheus.rules()), {})
    for name, state in _alerts(rules).items():
        _show(f"alert {name}", state, "inactive")
    assert not loud, json.dumps([rule for rule in rules if rule["name"] in loud], indent=1)


def test_a_killed_controller_raises_the_alerts_server_down_and_quorum_at_risk(watched: Watched) -> None:
    leader = watched.prometheus.one("max(klamm_raft_leader)")
    assert leader is not None
    killed = watched.controllers[int(leader)]
    term = watched.prometheus.one("max(klamm_raft_term)")
    killed.end(signal.SIGKILL)
    try:
        another_leads = f"max(klamm_raft_term) > {term} and on () sum(klamm_controller_active) == 1"
        assert watched.prometheus.until(lambda: bool(watched.prometheus.ask(another_leads)), True)
        # The alerts are pending. They would notify an operator a minute or two later.
        expected = {"KlammServerDown": "pending", "KlammQuorumAtRisk": "pending"}
        assert watched.prometheus.until(lambda: _loud(watched.prometheus.rules()), expected) == expected
    finally:
        killed.start()
    assert watched.prometheus.until(lambda: _loud(watched.prometheus.rules()), {}) == {}


def _alerts(rules: list[dict[str, Any]]) -> dict[str, str]:
    return {rule["name"]: rule["state"] for rule in rules if rule["type"] == "alerting"}


def _loud(rules: list[dict[str, Any]]) -> dict[str, str]:
    alerts = _alerts(rules)
    return {name: state for name, state in alerts.items() if state != "inactive" and not OF_THE_MACHINE.search(name)}
