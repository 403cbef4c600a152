"""Tests the audit's topic while it accepts no writes: waiting lines are bounded, and lost ones are counted."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import AUDIT_TOPIC
from klamm.rpc.transport import Transport
from klamm.wire.v1.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord
from klamm_server.config.server_config import ServiceConfig, load
from klamm_server.links.audit_topic import AuditTopic
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.audit.backlog import BACKLOG_MAX_BYTES
from klamm_server.security.auditor import DROPPED, Auditor
from tests.support.audit_events import NODE, denied
from tests.support.waiting import until

OWN = load(ServiceConfig, {"node.id": "1"}).resolved_listeners().between_servers


def nobody_is_dialled() -> Transport:
    return cast(Any, object())


def without_leader() -> MetadataImage:
    topic_id = uuid.UUID(int=7).bytes
    records = [MetadataRecord(topic=TopicRecord(name=AUDIT_TOPIC, topic_id=topic_id))]
    for number in range(3):
        partition = PartitionRecord(topic_id=topic_id, partition=number, replicas=[1], isr=[1], leader=-1)
        records.append(MetadataRecord(partition=partition))
    return replay(MetadataImage.empty(), records, 0)


def test_a_missing_audit_topic_is_created() -> None:
    created: list[str] = []
    topic = AuditTopic(
        nobody_is_dialled(), MetadataImage.empty, OWN, SystemClock(), lambda: created.append(AUDIT_TOPIC)
    )
    with pytest.raises(EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]):
        asyncio.run(topic.write([b"{}"]))
    assert created == [AUDIT_TOPIC]


def test_without_a_leader_audit_lines_wait_within_a_bound_and_dropped_ones_are_counted() -> None:
    image = without_leader()
    topic = AuditTopic(nobody_is_dialled(), lambda: image, OWN, SystemClock())
    with pytest.raises(EXCEPTIONS[ErrorCode.LEADER_NOT_AVAILABLE]):
        asyncio.run(topic.write([b"{}"]))

    async def run() -> None:
        given = {"node.id": "1", "audit.enable": "true"}
        auditor = Auditor(load(ServiceConfig, given), NODE, SystemClock(), {"topic": topic})
        before = DROPPED.labels("topic").value
        running = asyncio.create_task(auditor.run())
        (feed,) = auditor._feeds
        for number in range(40_000):
            auditor.trail.record(denied(f"{number}"), auditor.now_ms())
        await until(lambda: feed.backlog.is_overrun)
        assert feed.backlog.held_bytes <= BACKLOG_MAX_BYTES
        assert len(feed.backlog) + DROPPED.labels("topic").value - before == 40_000
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await auditor.close()

    asyncio.run(run())
