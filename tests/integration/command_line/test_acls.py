"""Tests `klamm acls` on a cluster with an authorizer. Callers at loopback addresses are super users."""

from __future__ import annotations

import pytest

from klamm import Admin
from klamm.acls import AclBindingFilter
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster

FAILED, USAGE, DENIED = 1, 2, 4


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    with running_cluster(tmp_path_factory.mktemp("acls"), settings=settings) as cluster:
        yield cluster


@pytest.fixture
def klamm(running):
    """Removes all entries after each test, because one test lists all of them."""
    yield KlammCommand(running.bootstrap)
    with Admin(bootstrap_servers=running.bootstrap) as admin:
        admin.delete_acls([AclBindingFilter()])


def listed(klamm, *options):
    rows = klamm("acls", "list", "--json", *options).document
    return [(row["principal"], row["permission"], row["operation"], row["pattern"], row["name"]) for row in rows]


def test_acl_entries_are_added_listed_and_removed(klamm):
    reads = ("User:alice", "read", "topic:orders-", "--prefixed")
    alters = ("User:bob", "alter-configs", "cluster", "--deny", "--host", "10.0.0.0/8")
    for entry in (reads, reads, alters):
        klamm.ok("acls", "add", *entry)
    of_alice = ("User:alice", "ALLOW", "READ", "PREFIXED", "orders-")
    of_bob = ("User:bob", "DENY", "ALTER_CONFIGS", "LITERAL", "kafka-cluster")
    assert sorted(listed(klamm)) == [of_alice, of_bob]
    assert listed(klamm, "--principal", "User:bob") == [of_bob]
    without_its_host = klamm("acls", "remove", *alters[:-2])
    assert without_its_host.status == FAILED
    assert "there is no entry DENY User:bob ALTER_CONFIGS" in without_its_host.err
    for entry in (reads, alters):
        klamm.ok("acls", "remove", *entry)
    assert listed(klamm) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("User:alice", "reed", "topic:t"), "operation 'reed': expected one of all, read"),
        (("User:alice", "read", "orders"), "resource 'orders': expected topic:NAME"),
        (("User:alice", "read", "topic:"), "resource 'topic:': expected topic:NAME"),
    ],
)
def test_an_invalid_acl_entry_is_refused_with_the_reason(klamm, arguments, told):
    ended = klamm("acls", "add", *arguments)
    assert ended.status == USAGE
    assert told in ended.err


def test_acls_check_prints_the_deciding_rule_and_its_exit_status_is_the_answer(klamm):
    asked = ("acls", "check", "User:carol", "describe", "topic:bills-1")
    by_default = klamm(*asked)
    assert (by_default.status, by_default.out) == (
        DENIED,
        "denied: by default, no entry is about it (allow.everyone.if.no.acl.found=false)\n",
    )
    klamm.ok("acls", "add", "User:carol", "write", "topic:bills-", "--prefixed")
    allowed = klamm.ok(*asked)
    assert allowed.out == "allowed: ALLOW User:carol WRITE TOPIC PREFIXED 'bills-' from *\n"
    klamm.ok("acls", "add", "User:carol", "all", "topic:bills-1", "--deny", "--host", "10.0.0.0/8")
    assert klamm.ok(*asked).out == allowed.out
    there = klamm(*asked, "--host", "10.1.2.3", "--json")
    assert there.status == DENIED
    assert there.document == {
        "allowed": False,
        "rule": "DENY User:carol ALL TOPIC LITERAL 'bills-1' from 10.0.0.0/8",
    }
    assert klamm("acls", "check", "User:dora", *asked[3:]).out == (
        "denied: by default, entries are about it and none allows this\n"
    )
    assert klamm.ok("acls", "check", "User:ANONYMOUS", "alter", "cluster").out == (
        "allowed: a super user (super.users)\n"
    )
    assert "Invalid operation ALL" in klamm.refused(FAILED, "acls", "check", "User:carol", "all", "topic:t")


def test_one_command_adds_or_removes_all_entries_of_a_producer_or_consumer(klamm):
    both = ("User:erin", "--producer", "--consumer", "--topic", "t", "--group", "g", "--transactional-id", "x")
    klamm.ok("acls", "add", *both, "--idempotent")
    assert len(listed(klamm, "--principal", "User:erin")) == 8
    klamm.ok("acls", "remove", "User:erin", "--producer", "--topic", "t")
    kept = {(operation, name) for _, _, operation, _, name in listed(klamm, "--principal", "User:erin")}
    assert kept == {
        ("READ", "t"),
        ("READ", "g"),
        ("WRITE", "x"),
        ("DESCRIBE", "x"),
        ("IDEMPOTENT_WRITE", "kafka-cluster"),
    }
    left = klamm.ok("acls", "remove", *both, "--idempotent")
    assert left.out.count("removed ") == 5
    assert left.out.count("there is no entry ") == 3
    told = klamm.refused(FAILED, "acls", "remove", "User:erin", "--producer", "--topic", "t")
    assert "there is no entry ALLOW User:erin WRITE TOPIC LITERAL 't' from *; ALLOW User:erin DESCRIBE" in told


def test_a_dry_run_adds_and_removes_no_entry(klamm):
    reads, writes = (("User:alice", each, "topic:orders") for each in ("read", "write"))
    klamm.ok("acls", "add", *reads)
    before = listed(klamm)
    text = "{} ALLOW User:alice {} TOPIC LITERAL 'orders' from *\n"
    assert klamm.ok("acls", "add", *writes, "--dry-run").out == text.format("would add", "WRITE")
    assert klamm.ok("acls", "add", *reads, "--dry-run", "--json").document == {"added": [], "validate_only": True}
    assert klamm.ok("acls", "remove", *reads, "--dry-run").out == text.format("would remove", "READ")
    (removed,) = klamm.ok("acls", "remove", *reads, "--dry-run", "--json").document["removed"]
    assert (removed["principal"], removed["operation"], removed["name"]) == ("User:alice", "READ", "orders")
    assert listed(klamm) == before
    assert "there is no entry" in klamm.refused(FAILED, "acls", "remove", *writes, "--dry-run")


@pytest.mark.parametrize(
    "entry", [("alice", "read", "topic:t"), ("User:alice", "read", "topic:t", "--host", "10.0.0.0/99")]
)
def test_a_dry_run_refuses_the_entries_that_the_cluster_refuses(klamm, entry):
    refused = [klamm.refused(FAILED, "acls", "add", *entry, *options) for options in (["--dry-run"], [])]
    assert refused[0] == refused[1]
    assert listed(klamm) == []


def test_the_doctor_reports_servers_with_an_authorizer_and_users_without_entries(klamm, tmp_path):
    password = tmp_path / "password"
    password.write_text("hunter2-of-frank\n")
    password.chmod(0o600)
    klamm.ok("users", "create", "frank", "--password-file", password)
    found = {each["check"]: each for each in klamm("doctor", "--json").document}
    assert found["authorization"]["text"] == "3 servers, all with an authorizer"
    assert found["rights"]["level"] == "warning"
    assert found["rights"]["text"].endswith("no access control list names: frank")
    klamm.ok("users", "delete", "frank")
