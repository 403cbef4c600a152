"""Tests Kafka's own vulnerabilities, with one test for each that Klamm could have.

Five have their tests elsewhere. CVE-2026-33557, tokens that another issuer or nobody signed, is in
`test_token_rules.py`. CVE-2024-56128, a foreign nonce of SCRAM, is in `test_scram_server.py`. CVE-2018-17196, a
transactional produce without a right to the id, is in `test_stolen_handles.py`. CVE-2022-34917, memory for frames that
an unknown client announces, is in `test_sasl_listeners.py`. CVE-2026-35554, records sent to another topic when their
batch expires in flight, is in `test_sender_faults.py`. Vulnerabilities of parts that Klamm does not have are left out:
Connect's REST interface, JMX.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import klamm.security
import klamm_server.security
from klamm import Admin
from klamm.acls import AclBinding, AclOperation, ResourceType
from klamm.admin import (
    ConfigResource,
    ConfigResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from klamm.errors import ConfigError, ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.jaas import parse_jaas
from klamm.security.token_endpoint import ALLOWED_URLS, check_allowed
from klamm.wire.v1 import broker_pb2
from klamm.wire.v1 import metadata_pb2 as m
from klamm_broker.kafka.api import ApiKey
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.known_passwords import KnownPasswords
from klamm_server.security.sasl.plain_server import PlainServer
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import SaslRefusedError
from tests.support.acl_strategies import BINDINGS, NAMES, OPERATIONS
from tests.support.authorized_cluster import allow
from tests.support.callers import index_of
from tests.support.canary_cluster import CANARY, CanaryCluster
from tests.support.every_rpc import Caller, every_rpc
from tests.support.waiting import wait_until

PASSWORD = "hunter2-canary"
NOW_S = 1_900_000_000


def scram_upsertion(user: str) -> UserScramCredentialUpsertion:
    mechanism = ScramMechanism.of_name("SCRAM-SHA-256")
    assert mechanism is not None
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4_096), Secret(PASSWORD))


def described_by(canary: CanaryCluster, who: str) -> Any:
    asked = {"group_ids": [CANARY], "include_authorized_operations": False}
    with canary.cluster.wire(who) as wire:
        (group,) = wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked).groups
    return group


def test_cve_2026_41115_a_group_is_described_only_with_describe_of_group_and_topic(canary: CanaryCluster) -> None:
    """Kafka let a user with READ of the group see its members and their assignments."""
    topic, group = (ResourceType.TOPIC, CANARY), (ResourceType.GROUP, CANARY)
    with canary.cluster.admin() as admin:
        admin.create_acls(
            [
                allow("of-topic", AclOperation.DESCRIBE, *topic),
                allow("of-group", AclOperation.DESCRIBE, *group),
                allow("of-both", AclOperation.DESCRIBE, *topic),
                allow("of-both", AclOperation.DESCRIBE, *group),
            ]
        )
    wait_until(lambda: described_by(canary, "of-both").error_code == ErrorCode.NONE, canary.cluster.logs)
    seen = {who: described_by(canary, who) for who in ("of-topic", "of-group", "of-both")}
    assert seen["of-topic"].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert seen["of-group"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert seen["of-both"].error_code == ErrorCode.NONE
    assert [bool(one.members) for one in seen.values()] == [False, False, True]


def test_cve_2026_33558_debug_logs_hold_no_secrets(canary: CanaryCluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), canary.cluster.admin() as admin:
        admin.alter_user_scram_credentials([scram_upsertion("logged")])
    logs = caplog.text + "".join(process.log_path.read_text() for process in canary.cluster.processes)
    assert PASSWORD not in logs


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://127.0.0.1:1/", "https://169.254.169.254/latest/meta-data"]
)
def test_cve_2025_27817_token_urls_that_are_not_allowed_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_URLS, "https://issuer.example/token")
    with pytest.raises(ConfigError):
        check_allowed(url)


@pytest.mark.parametrize(
    "module", ["com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule"]
)
def test_cve_2023_25194_2025_27818_and_27819_unknown_login_modules_are_refused(module: str) -> None:
    with pytest.raises(ConfigError, match="not known"):
        parse_jaas(Secret(f'{module} required user.provider.url="ldap://evil";'))


def test_cve_2024_31141_placeholders_in_config_values_are_not_resolved(tmp_path: Path) -> None:
    """Kafka's config providers read files and the environment for anyone who writes a configuration."""
    hidden = tmp_path / "hidden"
    hidden.write_text(f"k={PASSWORD}\n")
    for value in (f"${{file:{hidden}:k}}", "${env:HOME}", f"${{directory:{tmp_path}:hidden}}"):
        with pytest.raises(ConfigError) as refused:
            Admin({"bootstrap.servers": "localhost:1", "ssl.truststore.location": value, "security.protocol": "SSL"})
        assert PASSWORD not in str(refused.value)


@given(st.lists(BINDINGS, max_size=8, unique=True), st.data())
def test_cve_2024_27309_remaining_acls_decide_as_if_removed_ones_had_never_existed(
    acls: list[AclBinding], data: st.DataObject
) -> None:
    """After any additions and removals, the remaining entries decide as if there had never been others."""
    image = MetadataImage.empty()
    added, removed = records_of(acls)
    gone = data.draw(st.sets(st.sampled_from(range(len(acls)))) if acls else st.just(set()))
    for record in [*added, *(removed[number] for number in sorted(gone))]:
        image = replay(image, [record], image.end_index + 1)
    left = index_of([acl for number, acl in enumerate(acls) if number not in gone])
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    for _ in range(5):
        question = (data.draw(OPERATIONS), ResourceType.TOPIC, data.draw(NAMES))
        told = authorizer.authorize(image.acls, "User:alice", "10.0.0.1", *question)
        assert told.is_allowed == authorizer.authorize(left, "User:alice", "10.0.0.1", *question).is_allowed


def records_of(acls: list[AclBinding]) -> tuple[list[m.MetadataRecord], list[m.MetadataRecord]]:
    """Returns the metadata records that add the entries, and those that remove them."""
    ids = [number.to_bytes(16, "big") for number in range(len(acls))]
    added = [
        m.MetadataRecord(access_control_entry=m.AccessControlEntryRecord(id=acl_id, **acl._asdict()))
        for acl_id, acl in zip(ids, acls, strict=True)
    ]
    return added, [
        m.MetadataRecord(remove_access_control_entry=m.RemoveAccessControlEntryRecord(id=acl_id)) for acl_id in ids
    ]


_SECRET_NAME = re.compile(r"password|secret|digest|signature|proof|nonce|(stored|server|client)_key$|hmac")


def test_cve_2021_38153_secrets_are_compared_in_constant_time() -> None:
    """No name of a secret is compared by == or in, except in comparisons of lengths."""
    found: list[str] = []
    for package in (klamm.security, klamm_server.security):
        for path in Path(package.__path__[0]).rglob("*.py"):
            found += [f"{path.name}:{line}" for line in _comparisons_of_secrets(ast.parse(path.read_text()))]
    assert not found


def _comparisons_of_secrets(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            sides = [side for side in (node.left, *node.comparators) if not isinstance(side, ast.Constant)]
            if len(sides) > 1 and any(_SECRET_NAME.search(_name(side)) for side in sides):
                yield node.lineno


def _name(side: ast.AST) -> str:
    if isinstance(side, ast.Attribute):
        return side.attr
    return side.id if isinstance(side, ast.Name) else ""


def test_cve_2018_1288_a_consumer_cannot_fetch_as_a_replica(canary: CanaryCluster) -> None:
    """A consumer that fetched as a replica could read beyond the high watermark, and move it."""
    request = broker_pb2.ReplicaFetchRequest(replica_id=1, broker_epoch=1).SerializeToString()
    (rpc,) = (one for one in every_rpc() if one.path.endswith("/ReplicaFetch"))
    with (
        Caller(canary.cluster.grpc, canary.cluster.stores("consumer")) as caller,
        pytest.raises(grpc.RpcError) as caught,
    ):
        caller.call(rpc, request)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    asked = {
        "replica_id": 1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": CANARY, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    with canary.cluster.wire("admin") as wire, pytest.raises(ConnectionError):
        wire.ask(ApiKey.FETCH, 12, asked)


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_cve_2017_12610_a_user_cannot_log_in_as_another_user(name: str) -> None:
    """A login may not name another user to act as."""
    other = {"alice": "bob", "bob": "alice"}[name]
    store = CredentialStore({}, b"secret")
    mechanism = ScramMechanism.of_name("SCRAM-SHA-256")
    assert mechanism is not None
    with pytest.raises(SaslRefusedError):
        PlainServer(store, KnownPasswords(b"key"), 0).step(f"{other}\0{name}\0{PASSWORD}".encode())
    with pytest.raises(SaslRefusedError):
        ScramServer(mechanism, store, nonce="nonce").step(f"n,a={quote(other)},n={name},r=client".encode())


def test_cve_2019_12399_described_configs_show_no_secrets(canary: CanaryCluster) -> None:
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    with canary.cluster.admin() as admin:
        entries = admin.describe_configs([broker])[broker]
    secrets = {name: entry.value for name, entry in entries.items() if re.search("password|keystore.key|jaas", name)}
    assert secrets
    assert not any(secrets.values()), sorted(secrets)
