"""Tests the checks for settings and replication that lose or refuse records, and for unreachable servers."""

from __future__ import annotations

import dataclasses

import pytest

from klamm.version import __version__
from klamm_cli.doctor.cluster_checks import check_cluster
from klamm_cli.doctor.durability import FACTOR, MIN_ISR, UNCLEAN, check_durability
from klamm_cli.doctor.finding import Level
from klamm_cli.doctor.server_checks import check_servers, hosts_of, is_loopback
from klamm_cli.doctor.server_probe import ProbeAnswer, ProbeTarget, targets
from tests.support.status_world import HEALTHY, partition, server, topic

PROBLEM, WARNING, OK = Level.PROBLEM, Level.WARNING, Level.OK


def levels(findings):
    return [finding.level for finding in findings]


@pytest.mark.parametrize(
    ("settings", "brokers", "expected"),
    [
        ({MIN_ISR: "2", FACTOR: "3"}, 3, []),
        ({MIN_ISR: "1", FACTOR: "1"}, 1, []),
        ({MIN_ISR: "1", FACTOR: "1"}, 2, []),
        ({MIN_ISR: "1", FACTOR: "1"}, 3, [WARNING]),
        ({MIN_ISR: "3", FACTOR: "2"}, None, [PROBLEM]),
        ({MIN_ISR: "3", FACTOR: "3"}, None, [WARNING]),
        ({MIN_ISR: "1", FACTOR: "3"}, None, [WARNING]),
        ({MIN_ISR: "2", FACTOR: "3"}, 2, [PROBLEM]),
        ({UNCLEAN: "TRUE"}, None, [WARNING]),
        ({UNCLEAN: "false"}, None, []),
        ({}, 3, []),
    ],
)
def test_replication_settings_that_lose_or_refuse_records_are_reported(settings, brokers, expected):
    found = list(check_durability("settings", "here", settings, brokers))
    assert levels(found) == expected
    assert all(each.text.startswith("here: ") and each.advice for each in found)


def check(settings=None, data_dirs=None, **changes):
    facts = dataclasses.replace(HEALTHY, **changes)
    return check_cluster(facts, settings or {}, data_dirs or {})


def texts(findings, level):
    return [finding.text for finding in findings if finding.level is level]


def test_a_healthy_cluster_has_one_finding_that_says_so():
    found = check()
    assert levels(found) == [OK]
    assert found[0].text == "the-id is healthy: 6 servers"


def test_problems_of_the_status_are_problems_of_the_doctor_too():
    found = check(unknown={"groups": "timed out"})
    assert levels(found) == [PROBLEM]
    assert found[0].advice


def test_a_directory_of_another_cluster_is_a_problem():
    found = check(data_dirs={"/data": "other", "/same": "the-id"})
    assert texts(found, PROBLEM) == ["/data is of cluster other; the one that answers is the-id"]


def test_settings_that_differ_among_brokers_are_a_warning_and_not_checked_further():
    found = check(settings={1: {FACTOR: "3", MIN_ISR: "2"}, 2: {FACTOR: "1", MIN_ISR: "2"}})
    assert texts(found, WARNING) == [f"{FACTOR} differs: 3 on broker 1, 1 on broker 2"]


def test_settings_are_checked_against_all_registered_brokers():
    assert not texts(check(settings={1: {FACTOR: "3", MIN_ISR: "2"}}), PROBLEM)


def test_one_copy_is_a_warning_in_a_cluster_of_three():
    topics = {
        "__consumer_offsets": topic("__consumer_offsets", partition(0, replicas=(1,), isr=(1,)), internal=True),
        "one": topic("one", partition(0, replicas=(2,), isr=(2,))),
        "two": topic("two", partition(0, replicas=(2, 1), isr=(2, 1))),
    }
    first, second = texts(check(topics=topics, min_isr={}), WARNING)
    assert first.startswith("__consumer_offsets has 1 of 3 copies in a cluster of 3 brokers")
    assert second == "topics with one copy in a cluster of 3 brokers: one"


def test_one_copy_is_all_there_can_be_on_one_broker():
    single = dataclasses.replace(HEALTHY.cluster, brokers=(server(1),))
    topics = {"one": topic("one", partition(0, replicas=(1,), isr=(1,)))}
    assert levels(check(cluster=single, topics=topics, min_isr={})) == [OK]


def test_unclean_elections_are_named_by_topic():
    assert texts(check(unclean=("b", "a")), WARNING)[0].endswith("may be lost: a, b")


# --- servers


def answer(name="broker 1", host="h1", **changes):
    values = {"health": "SERVING", "version": __version__, "skew_ms": 0, "open_files_max": 100_000, **changes}
    return ProbeAnswer(target=ProbeTarget(name=name, host=host, port=9094), **values)


def test_servers_without_a_fault_have_no_problem():
    found = check_servers([answer(), answer("broker 2", skew_ms=-12)], ["h1"])
    assert [each.text for each in found] == [
        "2 of 2 advertised addresses resolve and connect",
        "2 servers' clocks are within 12 ms of this machine's",
        f"2 servers, all {__version__}",
    ]
    assert set(levels(found)) == {OK}


@pytest.mark.parametrize(
    ("bad", "level", "said"),
    [
        ({"not_resolved": "no such name", "health": ""}, PROBLEM, "which does not resolve here: no such name"),
        ({"not_connected": "refused", "health": ""}, PROBLEM, "which takes no connection: refused"),
        ({"host": "127.0.0.1"}, PROBLEM, "is each machine's own loopback"),
        ({"health": "NOT_SERVING"}, PROBLEM, "broker 1 answers, but is NOT_SERVING"),
        ({"skew_ms": 90_000}, WARNING, "the clock of broker 1 is 90.0 s ahead of this machine's"),
        ({"skew_ms": -90_000}, WARNING, "the clock of broker 1 is 90.0 s behind this machine's"),
        ({"version": "0.0.1"}, WARNING, "servers: 0.0.1; this machine: "),
        ({"version": ""}, WARNING, "servers: one that does not tell its version"),
        ({"open_files_max": 1_024}, WARNING, "broker 1 may have 1024 files open"),
    ],
)
def test_each_fault_of_a_server_is_reported(bad, level, said):
    found = [check_server for check_server in check_servers([answer(**bad)], ["h1"]) if check_server.level is not OK]
    assert levels(found) == [level]
    assert said in found[0].text


def test_the_clock_skew_of_a_slow_answer_is_ignored_within_its_uncertainty():
    assert set(levels(check_servers([answer(skew_ms=2_000, uncertainty_ms=1_500)], ["h1"]))) == {OK}


def test_an_advertised_loopback_address_is_fine_for_a_client_on_loopback():
    assert set(levels(check_servers([answer(host="127.0.0.1")], ["localhost"]))) == {OK}


def test_servers_of_different_versions_are_listed():
    found = check_servers([answer(), answer("broker 2", version="0.0.1")], ["h1"])
    assert texts(found, WARNING) == [f"servers differ: 0.0.1: broker 2; {__version__}: broker 1"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("[::1]", True), ("10.0.0.1", False), ("h", False)],
)
def test_loopback_hosts_are_recognized(host, expected):
    assert is_loopback(host) is expected


def test_the_hosts_of_a_bootstrap_list_are_parsed():
    assert hosts_of("a:1, b:2,[::1]:3") == ["a", "b", "[::1]"]


def test_all_servers_except_fenced_ones_are_probed():
    brokers = (server(1, kafka_host="k", kafka_port=9092), server(2, fenced=True, kafka_port=9092))
    found = targets(dataclasses.replace(HEALTHY.cluster, brokers=brokers))
    assert [(each.name, each.is_kafka) for each in found] == [
        ("controller 1", False),
        ("controller 2", False),
        ("broker 1", False),
        ("coordinator 1", False),
        ("broker 1 for Kafka clients", True),
    ]
