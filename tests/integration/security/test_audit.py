"""Tests that the audit of a cluster has logins, refusals and changes, with the user of each, and no secret."""

from __future__ import annotations

import json
import pathlib
import stat
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ForwardedTopic

from klamm import Admin
from klamm.acls import AclOperation, ResourceType
from klamm.admin import ConfigChange, ConfigResource, ConfigResourceType, NewTopic
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import AUDIT_TOPIC
from tests.support.audit_events import short
from tests.support.authorized_cluster import allow
from tests.support.klamm_process import running_cluster
from tests.support.sasl_cluster import PASSWORD, USER, SaslCluster, token
from tests.support.waiting import patience, wait_until

ALICE, ANONYMOUS = f"User:{USER}", "User:ANONYMOUS"
WRONG_PASSWORD = "canary-wrong-password"
TOPIC = "payments"


class Audited:
    """A `klamm up` where clients log in, and its audit file. Clients over gRPC are super users."""

    def __init__(self, cluster: SaslCluster, path: pathlib.Path) -> None:
        self.cluster = cluster
        self.path = path

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def wait_for(self, *wanted: object, whose: str | None = None, mechanism: str | None = None) -> dict[str, Any]:
        """Waits for the first event whose short form, without the count, is `wanted`.

        If given, `whose` is the account's name, and `mechanism` is that of the login.
        """

        def found() -> dict[str, Any] | None:
            for one in self.events():
                is_of_account = whose in (None, one.get("user", {}).get("name"))
                is_by_mechanism = mechanism in (None, one.get("auth_protocol"))
                if short(one)[:-1] == wanted and is_of_account and is_by_mechanism:
                    return one
            return None

        event = wait_until(found, lambda: "\n".join(str(short(one)) for one in self.events()))
        assert event is not None
        return event

    def admin(self) -> Admin:
        return Admin({"bootstrap.servers": f"127.0.0.1:{self.cluster.grpc}"})

    def produce(self, settings: Mapping[str, Any], topic: str) -> KafkaError | None:
        """Produces a record. Returns the error of the record or of the login, or None."""
        errors: list[KafkaError | None] = []
        failures: list[KafkaError] = []

        def on_error(error: KafkaError) -> None:
            if error.code() == KafkaError._AUTHENTICATION:
                failures.append(error)

        given = {**settings, "error_cb": on_error, "message.timeout.ms": int(patience() * 1000)}
        producer = Producer(given)
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        wait_until(lambda: errors or failures, between=lambda: producer.poll(0.1))
        return (failures or errors)[0]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    directory = tmp_path_factory.mktemp("audit")
    path = directory / "audit.log"
    made = SaslCluster(
        directory,
        authorizer_class_name="StandardAuthorizer",
        super_users=ANONYMOUS,
        audit_enable="true",
        audit_log_file=str(path),
    )
    with running_cluster(made.directory, made.settings, port=made.grpc) as made.process:
        made.set_password(USER, PASSWORD)
        yield Audited(made, path)


def test_a_successful_and_a_refused_login_are_audited(audited: Audited) -> None:
    refused = audited.produce(audited.cluster.client("SCRAM-SHA-256", WRONG_PASSWORD), TOPIC)
    assert refused is not None
    assert refused.code() == KafkaError._AUTHENTICATION
    failure = audited.wait_for(3002, False, ALICE, "", mechanism="SCRAM-SHA-256")
    assert failure["dst_endpoint"]["svc_name"] == "SASL_SSL"
    audited.produce(audited.cluster.client("PLAIN"), TOPIC)
    success = audited.wait_for(3002, True, ALICE, "", mechanism="PLAIN")
    assert success["src_endpoint"]["ip"] in ("127.0.0.1", "::1")


def test_a_denied_topic_is_audited(audited: Audited) -> None:
    refused = audited.produce({**audited.cluster.client("PLAIN"), "client.id": "app-7"}, "denied")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    event = audited.wait_for(6003, False, ALICE, "METADATA", "denied")
    assert event["actor"]["authorizations"] == [{"decision": "Denied", "policy": {"name": "default"}}]
    assert event["resources"] == [{"type": "TOPIC", "name": "denied"}]


def test_a_request_that_the_controller_refuses_is_audited_with_its_client_id_and_listener(audited: Audited) -> None:
    client = AdminClient({**audited.cluster.client("PLAIN"), "client.id": "app-8"})
    (created,) = client.create_topics([ForwardedTopic("forwarded", 1)]).values()
    with pytest.raises(KafkaException):
        created.result(patience())
    event = audited.wait_for(6003, False, ALICE, "CreateTopics", "forwarded")
    assert event["src_endpoint"]["name"] == "app-8"
    assert event["dst_endpoint"]["svc_name"] == "SASL_SSL"


def test_changes_of_topics_acls_and_passwords_are_audited_with_their_user(audited: Audited) -> None:
    entry = allow("bob", AclOperation.READ, ResourceType.TOPIC, TOPIC)
    with audited.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, partition_count=1, replication_factor=1)])
        admin.create_acls([entry])
    audited.wait_for(6003, True, ANONYMOUS, "CreateTopics", TOPIC)
    made = audited.wait_for(3001, True, ANONYMOUS, "CreateAcls", whose="bob")
    assert (made["activity_id"], made["policy"]["desc"]) == (7, str(entry))
    password = audited.wait_for(3001, True, ANONYMOUS, "AlterUserScramCredentials", whose=USER)
    assert password["activity_id"] == 3


def test_the_audit_file_contains_no_secret_and_only_its_owner_may_read_it(audited: Audited) -> None:
    jwt = token(audience="another")
    audited.produce(audited.cluster.client("OAUTHBEARER", jwt), TOPIC)
    audited.produce(audited.cluster.client("PLAIN", WRONG_PASSWORD), TOPIC)
    wait_until(
        lambda: {"OAUTHBEARER", "PLAIN"} <= {event["auth_protocol"] for event in audited.events() if _failed(event)}
    )
    text = audited.path.read_text() + audited.cluster.log()
    assert not any(secret in text for secret in (PASSWORD, WRONG_PASSWORD, jwt, jwt.split(".")[2]))
    assert stat.S_IMODE(audited.path.stat().st_mode) == 0o600


def _failed(event: dict[str, Any]) -> bool:
    return bool(event["class_uid"] == 3002 and event["status_id"] == 2)


def in_topic(audited: Audited, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Reads the first three partitions of the audit topic until it has all events of the audit file. Returns the
    events.

    Raises KafkaException if the user may not read the topic.
    """
    consumer = Consumer({**settings, "group.id": "auditors", "enable.auto.commit": False})
    consumer.assign([TopicPartition(AUDIT_TOPIC, number, 0) for number in range(3)])
    events: list[dict[str, Any]] = []
    failures: list[KafkaError] = []

    def poll() -> None:
        message = consumer.poll(0.2)
        if message is None:
            return
        error, value = message.error(), message.value()
        if error is None:
            assert value is not None
            events.append(json.loads(value))
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            failures.append(error)

    def is_complete() -> bool:
        wanted = {short(event)[:-1] for event in audited.events()}
        return bool(failures) or wanted <= {short(event)[:-1] for event in events}

    try:
        wait_until(is_complete, lambda: str(len(events)), between=poll)
    finally:
        consumer.close()
    if failures:
        raise KafkaException(failures[0])
    return events


def test_only_a_user_with_read_on_the_audit_topic_reads_the_events(audited: Audited) -> None:
    audited.cluster.set_password("auditor", PASSWORD)
    auditor = audited.cluster.client("PLAIN", user="auditor")
    audited.produce(audited.cluster.client("PLAIN"), "denied")
    audited.wait_for(6003, False, ALICE, "METADATA", "denied")
    with audited.admin() as admin:
        wait_until(lambda: AUDIT_TOPIC in admin.list_topics(include_internal=True))
    with audited.admin() as admin:
        # Without this right librdkafka does not even try to read.
        admin.create_acls([allow("auditor", AclOperation.DESCRIBE, ResourceType.TOPIC, AUDIT_TOPIC)])
    with pytest.raises(KafkaException) as refused:
        in_topic(audited, auditor)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with audited.admin() as admin:
        admin.create_acls([allow("auditor", AclOperation.READ, ResourceType.TOPIC, AUDIT_TOPIC)])
    events = in_topic(audited, auditor)
    text = json.dumps(events)
    assert not any(secret in text for secret in (PASSWORD, WRONG_PASSWORD))


def test_no_client_may_write_to_the_audit_topic_or_change_it(audited: Audited) -> None:
    with audited.admin() as admin:
        wait_until(lambda: AUDIT_TOPIC in admin.list_topics(include_internal=True))
        admin.create_acls([allow(USER, AclOperation.ALL, ResourceType.TOPIC, AUDIT_TOPIC)])
    refused = audited.produce(audited.cluster.client("PLAIN"), AUDIT_TOPIC)
    assert refused is not None
    assert refused.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION)
    topic = ConfigResource(ConfigResourceType.TOPIC, AUDIT_TOPIC)
    # At this listener every client is a super user, and even super users are refused.
    refused = audited.produce({"bootstrap.servers": f"127.0.0.1:{audited.cluster.plaintext}"}, AUDIT_TOPIC)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_EXCEPTION
    with audited.admin() as admin:
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_TOPIC_EXCEPTION]):
            admin.delete_topics([AUDIT_TOPIC])
        with pytest.raises(EXCEPTIONS[ErrorCode.POLICY_VIOLATION]):
            admin.incremental_alter_configs({topic: [ConfigChange("retention.ms", "1")]})
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_PARTITIONS]):
            admin.create_partitions({AUDIT_TOPIC: 9})
