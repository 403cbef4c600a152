"""Tests that the Metadata answers written by hand have the bytes of kio's schemas, in every spoken version."""

from __future__ import annotations

import asyncio
import uuid
from itertools import count
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.metadata_pb2 import MetadataRecord, RegisterBrokerRecord
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.hot.metadata import metadata
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request, parse_request
from klamm_server.metadata.replay import replay
from klamm_server.net.listeners import Listener, SecurityProtocol, encode
from klamm_server.runtime.sliced_work import SLICE_MAX_S, SlicedWork
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.session import Session, called_by
from tests.support.callers import session_of
from tests.support.kafka_requests import (
    CLUSTER,
    FLIGHTS,
    TOPIC_IDS,
    UNKNOWN,
    decoded,
    image,
    joined,
    request_of,
    versions_of,
)


class ScriptedMetadata:
    """A handler that creates no topics."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.waited_for: frozenset[str] = frozenset()

    async def created(self, names: frozenset[str], *, timeout_ms: int) -> None:
        assert timeout_ms > 0
        self.waited_for = names

    def missing(self, name: str, may_create: bool) -> ErrorCode:
        self.asked.append((name, may_create))
        return ErrorCode.LEADER_NOT_AVAILABLE if may_create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def metadata_of(
    request: Request, handler: ScriptedMetadata, view: ListenerMetadata, slices: SlicedWork | None = None
) -> bytes:
    answer = metadata(request, handler, view, TOPIC_IDS, slices or SlicedWork())
    if isinstance(answer, Waiting):
        assert handler.asked
        answer = asyncio.run(answer.work)
    return joined(answer)


def names_request(names: int) -> Request:
    topics = [{"name": f"t{number}", "topic_id": None} for number in range(names)]
    fields = {"topics": [*topics, {"name": "flights", "topic_id": None}], "allow_auto_topic_creation": False}
    return request_of(ApiKey.METADATA, 4, fields)


@pytest.mark.parametrize("session", [None, session_of()], ids=["no authorizer", "no rights"])
def test_metadata_of_many_names_are_written_in_several_turns_with_the_callers_rights(session: Session | None) -> None:
    request, clock_s = names_request(1_000), count(0, SLICE_MAX_S)

    def answer_of(slices: SlicedWork) -> Any:
        def handle(asked: Request) -> Any:
            return metadata(asked, ScriptedMetadata(), CLUSTER, TOPIC_IDS, slices)

        return handle(request) if session is None else called_by(session, handle, request)

    at_once = answer_of(SlicedWork(lambda: 0.0))
    assert not isinstance(at_once, Waiting)

    async def in_turns() -> tuple[bytes, int]:
        answer = answer_of(SlicedWork(lambda: next(clock_s)))
        assert isinstance(answer, Waiting)
        task = asyncio.create_task(answer.work)
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return joined(task.result()), turns

    answer, turns = asyncio.run(in_turns())
    assert answer == joined(at_once)
    assert (answer == metadata_of(request, ScriptedMetadata(), CLUSTER, SlicedWork(lambda: 0.0))) == (session is None)
    assert turns >= 20


def test_metadata_are_refused_for_more_names_than_an_array_may_have() -> None:
    with pytest.raises(MalformedRequestError, match="100001 topics; expected at most 100000"):
        metadata(names_request(100_000), ScriptedMetadata(), CLUSTER, TOPIC_IDS, SlicedWork(lambda: 0.0))


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("version", versions_of(ApiKey.METADATA))
def test_metadata_in_every_version_have_the_bytes_of_kios_schema(version: int, everything: bool) -> None:
    none = uuid.UUID(int=0)
    asked = [{"name": "flights", "topic_id": none}, {"name": "nowhere", "topic_id": none}]
    if version >= 12:
        # Java's client asks by id in this form, other clients in the second form.
        asked += [{"name": "", "topic_id": FLIGHTS}, {"name": None, "topic_id": UNKNOWN}]
    request = request_of(
        ApiKey.METADATA,
        version,
        {
            "topics": (None if version else []) if everything else asked,
            "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
    )
    handler = ScriptedMetadata()
    written = metadata_of(request, handler, ListenerMetadata(image, 2, "KAFKA"))
    assert handler.asked == ([] if everything else [("nowhere", True)])
    assert handler.waited_for == (frozenset() if everything else {"nowhere"})

    def topic(code: int, name: str | None, topic_id: uuid.UUID, partitions: list[Any]) -> dict[str, Any]:
        return {
            "error_code": code,
            "name": name,
            "topic_id": topic_id,
            "is_internal": False,
            "partitions": partitions,
            # A topic that does not exist has no known operations.
            "topic_authorized_operations": -(2**31) if code == 100 else 3576,
        }

    def partition(number: int, code: int, leader: int, *nodes: tuple[int, ...]) -> dict[str, Any]:
        replicas, isr, offline = nodes
        return {
            "error_code": code,
            "partition_index": number,
            "leader_id": leader,
            "leader_epoch": 3 + number,
            "replica_nodes": replicas,
            "isr_nodes": isr,
            "offline_replicas": offline,
        }

    flights = topic(
        0, "flights", FLIGHTS, [partition(0, 0, 1, (1, 2), (1, 2), ()), partition(1, 5, -1, (2, 3), (3,), (3,))]
    )
    others = [topic(5, "nowhere", none, []), topic(100, None, UNKNOWN, [])]
    expected = {
        "brokers": [
            {"node_id": 1, "host": "kafka1", "port": 9092, "rack": "a"},
            {"node_id": 2, "host": "kafka2", "port": 9102, "rack": None},
        ],
        "cluster_id": "cluster",
        "controller_id": 2,
        "topics": [flights] if everything else [flights, *others[: len(asked) - 1]],
        "cluster_authorized_operations": 8096,
        "error_code": 0,
    }
    assert written == messages.encode(request, expected)


@pytest.mark.parametrize("version", [4, 5, 6, 12])
def test_metadata_name_no_leader_that_the_client_cannot_dial(version: int) -> None:
    """A client on the listener PUBLIC sees only brokers that have this listener. Broker 1 has none."""
    public = Listener("PUBLIC", SecurityProtocol.KAFKA, "example.com", 1092)
    two = RegisterBrokerRecord(broker_id=2, broker_epoch=99, listeners=encode([public]))
    seen = replay(image(), [MetadataRecord(register_broker=two)], image().end_index + 1)
    view = ListenerMetadata(lambda: seen, 1, "PUBLIC")
    fields = {
        "topics": [{"name": "flights", "topic_id": uuid.UUID(int=0)}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    request = request_of(ApiKey.METADATA, version, fields)
    response = decoded(request, metadata_of(request, ScriptedMetadata(), view))
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(2, "example.com", 1092)]
    assert response.controller_id == 2
    error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    leaders = [(int(partition.error_code), partition.leader_id) for partition in response.topics[0].partitions]
    assert leaders == [(error, -1), (ErrorCode.LEADER_NOT_AVAILABLE, -1)]


def test_librdkafkas_metadata_request_for_all_topics_is_accepted() -> None:
    """librdkafka 2.16.0 writes a null array and then three bytes of a longer form of it. Kafka ignores these bytes."""
    frame = bytes.fromhex("0003000c00000003000772646b61666b610000000000010000")
    handler = ScriptedMetadata()
    request = parse_request(memoryview(frame), "")
    assert b"flights" in metadata_of(request, handler, ListenerMetadata(image, 2, "KAFKA"))


@pytest.mark.parametrize("name", ["?", "?00", "?zz", "?" + "0" * 33, "no/topic"])
@pytest.mark.parametrize("version", versions_of(ApiKey.METADATA))
def test_a_topic_name_that_looks_like_the_placeholder_of_an_unknown_id_is_a_plain_name(version: int, name: str) -> None:
    fields = {
        "topics": [{"name": name, "topic_id": uuid.UUID(int=0)}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    handler = ScriptedMetadata()
    metadata_of(request_of(ApiKey.METADATA, version, fields), handler, ListenerMetadata(image, 2, "KAFKA"))
    assert handler.asked == [(name, version < 4)]
    assert TOPIC_IDS.id_of(name) == bytes(16)
