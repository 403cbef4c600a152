"""Tests the rights of produces and fetches with several partitions, and what the audit records of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.handlers.fetch import FetchHandler, FetchQuery
from klamm_broker.handlers.late_checks import LateChecks
from klamm_broker.handlers.produce import ACKS_ALL, PartitionRecords, Produce, ProduceHandler
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.fetch_reader import FetchCursor, ReaderTerms
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.audit.decisions import SessionAudit
from klamm_server.security.session import CALLER
from tests.support.audit_events import AuditRecorder, short
from tests.support.callers import ALICE, HOST, allow, session_of

NOTHING: Any = None
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOT_HERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""The answer to an allowed request, because the broker of these tests hosts no partition."""
NAMES = [TopicPartition(topic, number) for number in (0, 1) for topic in ("orders", "secret")]
ANSWERS = [(name, NOT_HERE if name.topic == "orders" else DENIED) for name in NAMES]


@pytest.fixture
def audit() -> Iterator[AuditRecorder]:
    """Makes ALICE the caller, with the rights to read and write `orders` only. Yields the audit trail."""
    audit = AuditRecorder(audit_events=("produce", "consume", "authorization.denied"))
    rights = [allow(one, ResourceType.TOPIC, "orders") for one in (AclOperation.READ, AclOperation.WRITE)]
    session = session_of(*rights)
    session.audit = SessionAudit(audit.trail, lambda: 0, ALICE, HOST)
    token = CALLER.set(session)
    yield audit
    CALLER.reset(token)


def part(topic: str, partition: int, *, is_transactional: bool = False) -> PartitionRecords:
    batch = encode_batch([(0, None, b"v", ())], producer_id=7, producer_epoch=0, is_transactional=is_transactional)
    return PartitionRecords(TopicPartition(topic, partition), memoryview(batch))


def produce(*partitions: PartitionRecords) -> list[tuple[TopicPartition, ErrorCode]]:
    """Produces the partitions' records, and returns the error code of each answer."""
    clock = SystemClock()
    replicas = ReplicaManager(broker_id=1, clock=clock, observer=NOTHING)
    produces = PurgatoryDriver(max_parked=10, clock=clock)
    answers = ProduceHandler(replicas, produces, NOTHING, LateChecks(NOTHING, clock)).serve(
        Produce(ACKS_ALL, 60_000, "", partitions)
    )
    assert not isinstance(answers, Waiting)
    return [(answer.topic_partition, answer.error_code) for answer in answers]


def fetch(names: Sequence[TopicPartition]) -> list[tuple[TopicPartition, ErrorCode]]:
    """Fetches from the partitions and returns the error code of each answer."""
    clock = SystemClock()
    replicas = ReplicaManager(broker_id=1, clock=clock, observer=NOTHING)
    fetches = PurgatoryDriver(max_parked=10, clock=clock)
    records = RecordReader(Disk(), thread_count=1)
    handler = FetchHandler(replicas, fetches, records, RequestMemory(1 << 20), fetch_max_bytes=1 << 20)
    cursors = [FetchCursor(name, 0, 1_000) for name in names]
    found, _ = handler.begin(FetchQuery(cursors, 60_000, 1, 1_000, ReaderTerms(read_committed=False)))
    records.close()
    return [(answer.topic_partition, answer.error_code) for answer in found.answers]


def recorded(audit: AuditRecorder) -> list[tuple[object, ...]]:
    """Returns the topic of each recorded decision, whether it was allowed, and its count."""
    audit.trail.close(now_ms=0)
    return sorted((topic, is_allowed, count) for _, is_allowed, _, _, topic, count in map(short, audit.events()))


def test_a_produce_has_answers_in_its_order_and_the_audit_records_each_topic_once(audit: AuditRecorder) -> None:
    assert produce(*(part(*name) for name in NAMES)) == ANSWERS
    assert recorded(audit) == [("orders", True, 1), ("secret", False, 1)]


def test_a_fetch_has_answers_in_its_order_and_the_audit_records_each_topic_once(audit: AuditRecorder) -> None:
    assert fetch(NAMES) == ANSWERS
    assert recorded(audit) == [("orders", True, 1), ("secret", False, 1)]


def test_an_unknown_topic_id_is_answered_before_any_check_of_rights(audit: AuditRecorder) -> None:
    """`?` begins the name that stands for an unknown id."""
    unknown = TopicPartition("?AAAAAAAAAAAAAAAAAAAABw", 0)
    assert (produce(part(*unknown)), fetch([unknown])) == ([(unknown, NOT_HERE)], [(unknown, NOT_HERE)])
    assert recorded(audit) == []


def test_clients_may_not_write_an_internal_topic_whatever_their_rights_to_it(audit: AuditRecorder) -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    orders = TopicPartition("orders", 0)
    assert produce(part(*internal), part(*orders)) == [(internal, DENIED), (orders, NOT_HERE)]
    assert recorded(audit) == [("kafka-cluster", False, 1), ("orders", True, 1)]


def test_a_transactional_batch_in_any_partition_refuses_the_produce_before_its_topics_are_checked(
    audit: AuditRecorder,
) -> None:
    partitions = [part("orders", 0), part("orders", 1, is_transactional=True)]
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [code for _, code in produce(*partitions)] == [refused, refused]
    assert recorded(audit) == []
