"""Tests which entries the arguments of `klamm acls` mean, and which arguments are refused."""

from __future__ import annotations

import pytest
import typer

from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_cli.commands.acl_entries import AclScope, Roles, entries_of

ALICE = AclScope("User:alice", "*", prefixed=False, deny=False)
NONE = Roles(producer=False, consumer=False, topics=(), groups=(), transactional_ids=(), idempotent=False)
PRODUCER = NONE._replace(producer=True, topics=["t"])
CONSUMER = NONE._replace(consumer=True, topics=["t"], groups=["g"])
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ID = ResourceType.TRANSACTIONAL_ID


def names(roles: Roles) -> set[tuple[str, ResourceType, str]]:
    entries = entries_of(ALICE, None, None, roles)
    assert len(set(entries)) == len(entries)
    return {(entry.operation.name, entry.resource_type, entry.resource_name) for entry in entries}


def test_one_operation_and_resource_make_one_acl() -> None:
    whom = AclScope("User:bob", "10.0.0.1", prefixed=True, deny=True)
    assert entries_of(whom, "Alter-Configs", "topic:a:b", NONE) == [
        AclBinding(
            TOPIC,
            "a:b",
            PatternType.PREFIXED,
            "User:bob",
            "10.0.0.1",
            AclOperation.ALTER_CONFIGS,
            AclPermissionType.DENY,
        )
    ]


def test_a_producer_writes_describes_and_creates() -> None:
    written = {(operation, TOPIC, "t") for operation in ("WRITE", "DESCRIBE", "CREATE")}
    assert names(PRODUCER) == written
    full = PRODUCER._replace(transactional_ids=["x"], idempotent=True)
    transactional = {("WRITE", ID, "x"), ("DESCRIBE", ID, "x")}
    assert names(full) == written | transactional | {("IDEMPOTENT_WRITE", CLUSTER, "kafka-cluster")}


def test_a_consumer_reads_and_describes() -> None:
    assert names(CONSUMER) == {("READ", TOPIC, "t"), ("DESCRIBE", TOPIC, "t"), ("READ", GROUP, "g")}


def test_a_producer_that_is_also_a_consumer_gets_no_acl_twice() -> None:
    assert len(names(CONSUMER._replace(producer=True))) == 5


def test_a_prefixed_pattern_applies_to_names_and_not_to_the_cluster() -> None:
    entries = entries_of(ALICE._replace(prefixed=True), None, None, PRODUCER._replace(idempotent=True))
    patterns = {entry.resource_type: entry.pattern_type for entry in entries}
    assert patterns == {TOPIC: PatternType.PREFIXED, CLUSTER: PatternType.LITERAL}


@pytest.mark.parametrize(
    ("whom", "operation", "resource", "roles", "told"),
    [
        (ALICE, None, None, NONE, "expected OP and RESOURCE, or --producer or --consumer"),
        (ALICE, "read", None, NONE, "expected OP and RESOURCE"),
        (ALICE, "any", "topic:t", NONE, "operation 'any': expected one of all, read"),
        (ALICE, "read", "topics:t", NONE, "resource 'topics:t': expected topic:NAME"),
        (ALICE, "read", "topic:t", PRODUCER, "operation 'read': expected none with --producer"),
        (ALICE, None, None, NONE._replace(topics=["t"]), "expected with --producer or --consumer"),
        (ALICE._replace(deny=True), None, None, PRODUCER, "--deny: expected neither --producer nor"),
        (ALICE, None, None, NONE._replace(producer=True), "expected --topic"),
        (ALICE, None, None, CONSUMER._replace(groups=()), "--consumer: expected --group"),
        (ALICE, None, None, PRODUCER._replace(groups=["g"]), "--group: expected with --consumer"),
        (ALICE, None, None, CONSUMER._replace(idempotent=True), "--idempotent: expected with --producer"),
    ],
)
def test_arguments_that_make_no_acl_are_refused(
    capsys: pytest.CaptureFixture[str],
    whom: AclScope,
    operation: str | None,
    resource: str | None,
    roles: Roles,
    told: str,
) -> None:
    with pytest.raises(typer.Exit) as ended:
        entries_of(whom, operation, resource, roles)
    assert ended.value.exit_code == 2
    assert told in capsys.readouterr().err
