"""Tests `klamm quotas` and the quota calls of the Admin against a cluster."""

from __future__ import annotations

import pytest

from klamm import Admin
from klamm.admin import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilterComponent
from klamm.errors import EXCEPTIONS, ErrorCode
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster

FAILED, USAGE = 1, 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("quotas")) as running:
        yield running


@pytest.fixture
def admin(cluster):
    """Yields an Admin, and removes all quotas afterwards."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin
        found = admin.describe_client_quotas()
        admin.alter_client_quotas(
            ClientQuotaAlteration(entity, dict.fromkeys(values)) for entity, values in found.items()
        )


@pytest.fixture
def klamm(cluster, admin):
    return KlammCommand(cluster.bootstrap)


def listed(klamm, *options):
    rows = klamm("quotas", "list", "--json", *options).document
    return [(row["entity"], row["quota"], row["value"]) for row in rows]


def test_quotas_are_set_listed_and_removed(klamm):
    assert listed(klamm) == []
    klamm.ok("quotas", "set", "--user", "alice", "producer_byte_rate=1000", "request_percentage=12.5")
    klamm.ok("quotas", "set", "--user", "alice", "--client-id-default", "producer_byte_rate=2000")
    klamm.ok("quotas", "set", "--ip-default", "connection_creation_rate=100")
    assert listed(klamm) == [
        ("client-id=<default> user=alice", "producer_byte_rate", 2000.0),
        ("ip=<default>", "connection_creation_rate", 100.0),
        ("user=alice", "producer_byte_rate", 1000.0),
        ("user=alice", "request_percentage", 12.5),
    ]
    assert len(listed(klamm, "--user", "alice")) == 3
    assert listed(klamm, "--user", "bob") == []
    klamm.ok("quotas", "unset", "--user", "alice", "producer_byte_rate")
    assert len(listed(klamm, "--user", "alice")) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["set", "producer_byte_rate=1"], USAGE, "for whom?"),
        (["set", "--user", "a", "--user-default", "producer_byte_rate=1"], USAGE, "exclude each other"),
        (["set", "--user", "a", "producer_byte_rate=fast"], USAGE, "expected a number"),
        (["set", "--user", "a", "producer_byte_rate"], USAGE, "expected name=value"),
        (["set", "--user", "a", "producer_byte_rate=0"], FAILED, "expected more than 0"),
        (["set", "--user", "a", "connection_creation_rate=1"], FAILED, "is unknown for the entity"),
        (["set", "--ip", "example.org", "connection_creation_rate=1"], FAILED, "not an address"),
        (["unset", "--user", "a", "producer_byte_rate"], FAILED, "user=a has no quota producer_byte_rate"),
    ],
)
def test_wrong_quota_commands_are_refused_and_change_nothing(klamm, arguments, status, problem):
    for options in ([], ["--dry-run"]):
        ended = klamm("quotas", *arguments, *options)
        assert ended.status == status, ended
        assert problem in ended.err
    assert listed(klamm) == []


def test_a_dry_run_changes_no_quota(klamm):
    alice = ("--user", "alice", "producer_byte_rate")
    klamm.ok("quotas", "set", *alice[:2], "producer_byte_rate=1000")
    before = listed(klamm)
    dry = klamm.ok("quotas", "set", *alice[:2], "producer_byte_rate=5", "--dry-run")
    assert dry.out == "would set producer_byte_rate=5 for user=alice\n"
    document = {"entity": "user=alice", "set": {"producer_byte_rate": 5.0}, "validate_only": True}
    assert klamm.ok("quotas", "set", *alice[:2], "producer_byte_rate=5", "--dry-run", "--json").document == document
    assert klamm.ok("quotas", "unset", *alice, "--dry-run").out == "would remove producer_byte_rate of user=alice\n"
    document = {"entity": "user=alice", "removed": ["producer_byte_rate"], "validate_only": True}
    assert klamm.ok("quotas", "unset", *alice, "--dry-run", "--json").document == document
    assert listed(klamm) == before


def test_the_admin_alters_and_describes_client_quotas(admin):
    alice = ClientQuotaEntity.of({"user": "alice"})
    anyone = ClientQuotaEntity.of({"user": None, "client-id": None})
    rate = {"consumer_byte_rate": 5000.0}
    admin.alter_client_quotas([ClientQuotaAlteration(alice, {"consumer_byte_rate": 1.0})], validate_only=True)
    assert admin.describe_client_quotas() == {}
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST], match="user=alice"):
        admin.alter_client_quotas([ClientQuotaAlteration(alice, {"x": 1.0}), ClientQuotaAlteration(anyone, rate)])
    admin.alter_client_quotas([ClientQuotaAlteration(alice, rate)])
    assert admin.describe_client_quotas() == {alice: rate, anyone: rate}
    by_name, default, any_name = (
        ClientQuotaFilterComponent("user", "alice"),
        ClientQuotaFilterComponent("user"),
        ClientQuotaFilterComponent("user", any_name=True),
    )
    assert list(admin.describe_client_quotas([by_name])) == [alice]
    assert list(admin.describe_client_quotas([default])) == [anyone]
    assert list(admin.describe_client_quotas([default], strict=True)) == []
    assert set(admin.describe_client_quotas([any_name])) == {alice, anyone}
    with pytest.raises(EXCEPTIONS[ErrorCode.UNSUPPORTED_VERSION]):
        admin.describe_client_quotas([ClientQuotaFilterComponent("group")])
    with pytest.raises(ValueError, match="alice"):
        ClientQuotaFilterComponent("user", "alice", any_name=True)
