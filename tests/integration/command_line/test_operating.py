"""Tests what an operator needs of a running cluster: its status, problems, activity and files."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from klamm import Admin, TopicPartition
from klamm_cli.top.rates import frame
from klamm_cli.top.watcher import Scope, Watcher
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_port
from tests.support.waiting import patience

FAILED, USAGE = 1, 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    metrics_port = free_port()
    with running_cluster(tmp_path_factory.mktemp("operating"), {"metrics.port": str(metrics_port)}) as running:
        running.metrics_port = metrics_port  # type: ignore[attr-defined]
        klamm = KlammCommand(running.bootstrap)
        klamm.ok("topics", "create", "orders", "--partitions", 1)
        klamm.ok("produce", "orders", "--key-separator", ":", stdin="a:1\nb:2\nc:3\n")
        klamm.ok("consume", "orders", "--group", "shop", "--from", "beginning", "--exit")
        yield running


@pytest.fixture(scope="module")
def klamm(cluster):
    return KlammCommand(cluster.bootstrap)


def of_this_disk(problem):
    """Returns True for problems about free disk space, which these tests must ignore."""
    return "the disk of" in problem or "MiB free" in problem


# --- klamm cluster status


def test_cluster_status_reports_a_healthy_cluster_without_problems(klamm):
    ended = klamm("cluster", "status", "--json")
    document = ended.document
    assert [each for each in document["problems"] if not of_this_disk(each)] == []
    assert document["healthy"] is (ended.status == 0) is (not document["problems"])
    state = "healthy" if document["healthy"] else "degraded"
    assert klamm("cluster", "status").out.startswith(f"cluster {document['cluster_id']}: {state}")
    assert [each["role"] for each in document["controllers"]] == ["leader"]
    shop = {"group": "shop", "type": "classic", "state": "Empty", "partitions": 1, "lag": 0, "behind_s": 0, "lost": 0}
    assert document["groups"] == [shop]
    assert document["log_dirs"][0]["state"] == "online"


def test_a_partition_that_refuses_records_degrades_the_cluster(klamm):
    klamm.ok("topics", "create", "strict", "--partitions", 1, "--config", "min.insync.replicas=2")
    try:
        ended = klamm("cluster", "status", "--json")
        assert ended.status == FAILED
        assert ended.document["partitions"]["under_min_isr"] == ["strict-0"]
    finally:
        klamm.ok("topics", "delete", "strict")


def test_records_that_are_deleted_before_a_group_reads_them_degrade_the_cluster(klamm, cluster):
    klamm.ok("topics", "create", "lossy", "--partitions", 1)
    klamm.ok("produce", "lossy", stdin="\n".join(map(str, range(10))) + "\n")
    klamm.ok("consume", "lossy", "--group", "late", "--from", "beginning", "-n", 2)
    try:
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            admin.delete_records({TopicPartition("lossy", 0): 7})
        (row,) = klamm.ok("groups", "describe", "late", "--json").document["partitions"]
        assert (row["committed"], row["end_offset"], row["lag"], row["lost"]) == (2, 10, 3, 5)
        ended = klamm("cluster", "status", "--json")
        assert ended.status == FAILED
        said = "group late lost 5 records, deleted before the group read them: lossy-0 (5)"
        assert said in ended.document["problems"]
        assert ended.document["groups"][0]["lost"] == 5
        assert len(klamm.ok("consume", "lossy", "--group", "late", "--from", "beginning", "--exit").out.split()) == 3
        assert said in klamm("cluster", "status", "--json").document["problems"], "the loss is not forgotten"
        would = klamm.ok("groups", "forget-lost", "late", "--dry-run").out
        assert "would forget that the group lost 5 records" in would
        assert klamm.ok("groups", "forget-lost", "late", "-t", "lossy", "--json").document["lost"] == 5
        assert said not in klamm("cluster", "status", "--json").document["problems"]
    finally:
        klamm.ok("groups", "delete", "late")
        klamm.ok("topics", "delete", "lossy")


# --- klamm doctor


def test_the_doctor_finds_no_problem_in_a_new_cluster(klamm, cluster):
    found = klamm("doctor", "--json", "--data-dir", cluster.data_dir).document
    assert [each for each in found if each["level"] == "problem" and not of_this_disk(each["text"])] == []
    by_check = {each["check"]: each["text"] for each in found if each["level"] == "ok"}
    assert by_check["addresses"] == "4 of 4 advertised addresses resolve and connect"
    assert by_check["clocks"].startswith("3 servers' clocks are within ")
    assert by_check["versions"].startswith("3 servers, all ")


def test_the_doctor_reports_a_data_directory_of_another_cluster(klamm, tmp_path):
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=another\n")
    ended = klamm("doctor", "--data-dir", tmp_path)
    assert ended.status == FAILED
    assert f"PROBLEM data directory: {tmp_path} is of cluster another" in ended.out


def test_the_doctor_tells_a_port_of_another_program_from_one_of_klamm(klamm, cluster, tmp_path):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = other.getsockname()[1]
        listeners = f"GRPC://127.0.0.1:{cluster.port},KAFKA://127.0.0.1:{cluster.kafka_port}"
        for name, value in (("runs", listeners), ("taken", f"GRPC://127.0.0.1:{taken}")):
            text = f"node.id=9\nlisteners={value}\nlog.dirs={tmp_path}\ncontroller.quorum.bootstrap.servers=h:1\n"
            (tmp_path / name).write_text(text)
        ended = klamm("doctor", "--config", tmp_path / "runs", "--config", tmp_path / "taken")
    assert ended.status == FAILED
    assert f"GRPC://127.0.0.1:{cluster.port}: the server runs" in ended.out
    assert f"PROBLEM ports: GRPC://127.0.0.1:{taken}: cannot listen" in ended.out


def test_the_doctor_checks_the_machine_when_no_server_answers(klamm):
    ended = klamm("doctor", "--bootstrap-servers", f"127.0.0.1:{free_port()}", "--timeout", 0.5)
    assert ended.status == FAILED
    assert "PROBLEM cluster: no server answers" in ended.out
    assert "ok      python: " in ended.out


# --- klamm top


def test_top_shows_the_rates_between_two_samples(klamm, cluster):
    klamm.ok("topics", "create", "busy", "--partitions", 1)
    scope = Scope(topics=None, groups=None, endpoints=[("127.0.0.1", cluster.metrics_port)], timeout_s=patience())
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        watcher = Watcher(admin, scope)
        before = watcher.sample()
        klamm.ok("produce", "busy", stdin="x" * 1_000 + "\ny\n")
        klamm.ok("consume", "busy", "--from", "beginning", "--exit")
        found = frame(before, watcher.sample(), limit=10)
    klamm.ok("topics", "delete", "busy")
    busy, orders = found.topics
    assert (busy["topic"], orders["topic"], orders["records_s"]) == ("busy", "orders", 0)
    assert busy["records_s"] * found.interval_s == pytest.approx(2, abs=0.1 * found.interval_s)
    assert busy["in_mib_s"] >= 0
    assert found.brokers[0]["records_s"] == busy["records_s"]
    assert [(group["group"], group["lag"]) for group in found.groups] == [("shop", 0)]
    assert found.endpoints[0]["requests_s"] > 0
    assert found.left_out == ""


def test_top_prints_a_table_of_the_chosen_topics(klamm):
    ended = klamm.ok("top", "--once", "--interval", 0.1, "--topics", "ord*")
    lines = ended.out.splitlines()
    assert "records/s, over " in lines[0]
    assert lines[1].startswith("brokers 1 of 1; partitions ")
    assert lines[1].endswith(": 0 without a leader, 0 under-replicated")
    assert lines[3].split() == ["TOPIC", "PARTITIONS", "RECORDS/S", "IN", "MIB/S", "OUT", "MIB/S", "COMMITTED/S"]
    assert lines[4].split()[:2] == ["orders", "1"]


def test_top_reports_a_metrics_endpoint_that_does_not_answer(klamm):
    address = f"127.0.0.1:{free_port()}"
    document = klamm.ok("top", "--once", "--json", "--interval", 0.1, "--metrics", address).document
    assert f"metrics of {address}: " in document["left_out"]


# --- klamm log dump


def test_log_dump_verifies_the_data_directory_of_a_running_cluster(klamm, cluster):
    ended = klamm.ok("log", "dump", "--verify", cluster.data_dir)
    assert "orders-0/00000000000000000000.log" in ended.out
    assert "type: topic payload: " in ended.out
    assert "damage: " not in ended.out


def test_log_dump_decodes_the_records_of_the_offsets_topic(klamm, cluster):
    ended = klamm.ok(
        "log", "dump", "--json", "--offsets-decoder", *cluster.data_dir.glob("broker/__consumer_offsets-*")
    )
    commits = [line for line in ended.documents if line.get("key", {}).get("type") == "OffsetCommit"]
    of_orders = [commit for commit in commits if commit["key"]["topic"] == "orders"]
    assert [(commit["key"]["topic"], commit["payload"]["offset"]) for commit in of_orders][-1:] == [("orders", 3)]


def test_log_dump_reports_damage_and_fails(klamm, cluster, tmp_path):
    (log,) = cluster.data_dir.glob("broker/orders-0/*.log")
    copy = tmp_path / log.name
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    ended = klamm("log", "dump", "--records", copy)
    assert ended.status == FAILED
    assert f"damage: {copy}, position " in ended.out


def test_log_dump_of_a_missing_file_is_a_usage_error(klamm, tmp_path):
    assert "no such file" in klamm.refused(USAGE, "log", "dump", os.path.join(tmp_path, "gone"))
