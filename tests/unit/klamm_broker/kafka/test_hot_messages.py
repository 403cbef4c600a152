"""Tests that the messages written by hand have the same bytes as those of kio's schemas, in every spoken version."""

from __future__ import annotations

import asyncio
import io
import random
import struct
import uuid
from collections.abc import Iterable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from klamm.errors import ErrorCode
from klamm.kafka_types.writer import KafkaWriter
from klamm.model import TopicPartition
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    ClusterRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from klamm_broker.handlers.fetch import FetchQuery
from klamm_broker.handlers.produce import AnswersInTime, Produce, Produced
from klamm_broker.kafka import messages
from klamm_broker.kafka.api_versions import api_versions
from klamm_broker.kafka.features import LEVELS
from klamm_broker.kafka.fetch import Fetch
from klamm_broker.kafka.fetch import _read as read_fetch
from klamm_broker.kafka.fetch_sessions import FetchSessions
from klamm_broker.kafka.leader_hints import node_endpoints
from klamm_broker.kafka.metadata import metadata
from klamm_broker.kafka.produce import _read as read_produce
from klamm_broker.kafka.produce import produce
from klamm_broker.kafka.requests import ARRAY_ITEMS_MAX, SPOKEN, ApiKey, Request, parse_request
from klamm_broker.kafka.schemas import request_schema, response_schema
from klamm_broker.kafka.seen_cluster import SeenCluster
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_broker.kafka.wire import AnswerWriter, MalformedRequestError, Part
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_broker.replica.fetch_reader import PartitionAnswer
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.net.listeners import Listener, SecurityProtocol, encode
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.loop_slices import SLICE_MAX_S, LoopSlices
from klamm_server.security.session import Session, called_by
from tests.support.callers import session_of

FLIGHTS = uuid.UUID(int=7)
UNKNOWN = uuid.UUID(int=9)


def versions_of(api_key: ApiKey) -> range:
    spoken = SPOKEN[api_key]
    return range(spoken.min, spoken.max + 1)


def request_of(api_key: ApiKey, version: int, fields: dict[str, Any]) -> Request:
    """Returns a request as a client would send it."""
    schema = request_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, messages._make(schema, fields))
    tags = b"\x00" if version >= SPOKEN[api_key].flexible else b""
    frame = struct.pack(">hhih", api_key, version, 42, 2) + b"me" + tags + buffer.getvalue()
    request = parse_request(memoryview(frame), "10.0.0.1")
    assert (request.api_key, request.version, request.correlation_id) == (api_key, version, 42)
    assert (request.client_id, request.client_host) == ("me", "10.0.0.1")
    return request


def joined(parts: Iterable[Any]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def bytes_of(writer: AnswerWriter) -> bytes:
    return joined(writer.parts())


def image() -> MetadataImage:
    """Returns an image of three brokers and a partition without a leader.

    The third broker is fenced and has no Kafka listener.
    """

    def broker(number: int, *, kafka_port: int, rack: str = "", fenced: bool = False) -> MetadataRecord:
        record = RegisterBrokerRecord(
            broker_id=number,
            broker_epoch=number,
            endpoint=Endpoint(host=f"broker{number}", port=9094),
            rack=rack,
            fenced=fenced,
            kafka_endpoint=Endpoint(host=f"kafka{number}", port=kafka_port) if kafka_port else None,
        )
        return MetadataRecord(register_broker=record)

    def partition(number: int, leader: int, replicas: Sequence[int], isr: Sequence[int]) -> MetadataRecord:
        record = PartitionRecord(
            topic_id=FLIGHTS.bytes, partition=number, replicas=replicas, isr=isr, leader=leader, leader_epoch=3 + number
        )
        return MetadataRecord(partition=record)

    records = [
        MetadataRecord(cluster=ClusterRecord(cluster_id="cluster")),
        broker(1, kafka_port=9092, rack="a"),
        broker(2, kafka_port=9102),
        broker(3, kafka_port=0, fenced=True),
        MetadataRecord(topic=TopicRecord(name="flights", topic_id=FLIGHTS.bytes)),
        partition(0, 1, (1, 2), (1, 2)),
        partition(1, -1, (2, 3), (3,)),
    ]
    return replay(MetadataImage.empty(), records, len(records))


TOPIC_IDS = TopicIds(image)
CLUSTER = SeenCluster(image, 1, "KAFKA")
SECOND_NODE = {"node_endpoints": [{"node_id": 2, "host": "kafka2", "port": 9102, "rack": None}]}


def decoded(request: Request, answer: bytes) -> Any:
    schema = response_schema(request.api_key, request.version)
    found, size = entity_reader(schema)(answer, 0)
    assert size == len(answer)
    return found


class ScriptedProduce:
    """A handler that records its requests and gives prepared answers."""

    def __init__(self, answers: list[Produced], *, in_time: bool = False) -> None:
        self.answers = answers
        self.in_time = in_time
        self.given: Produce | None = None

    def serve(self, produce: Produce) -> list[Produced] | AnswersInTime:
        self.given = produce
        return self._later() if self.in_time else self.answers

    async def _later(self) -> list[Produced]:
        await asyncio.sleep(0)
        return self.answers


@pytest.mark.parametrize("in_time", [False, True])
@pytest.mark.parametrize("version", versions_of(ApiKey.PRODUCE))
def test_a_produce_in_every_version_has_the_bytes_of_kios_schema(version: int, in_time: bool) -> None:
    delays = "delays" if version < 13 else "?" + UNKNOWN.bytes.hex()
    request = request_of(
        ApiKey.PRODUCE,
        version,
        {
            "transactional_id": "tx",
            "acks": -1,
            "timeout": 1_500,
            "topic_data": [
                {
                    "name": "flights",
                    "topic_id": FLIGHTS,
                    "partition_data": [{"index": 0, "records": b"first"}, {"index": 1, "records": None}],
                },
                {
                    "name": "delays",
                    "topic_id": UNKNOWN,
                    "partition_data": [{"index": 2, "records": b"x" * 300}, {"index": 3, "records": b"y"}],
                },
            ],
        },
    )
    handler = ScriptedProduce(
        [
            Produced(TopicPartition("flights", 0), base_offset=77, log_start_offset=5),
            Produced(
                TopicPartition("flights", 1),
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "not me",
                current_leader=2,
                current_leader_epoch=9,
            ),
            Produced(TopicPartition(delays, 2), base_offset=0, log_append_time_ms=123, log_start_offset=0),
            Produced(TopicPartition(delays, 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"),
        ],
        in_time=in_time,
    )
    answer = produce(request, handler, CLUSTER, TOPIC_IDS)
    assert isinstance(answer, list) is not in_time
    if not isinstance(answer, list):
        assert answer is not None
        answer = asyncio.run(answer)
    assert handler.given is not None
    assert handler.given[:3] == (-1, 1_500, "tx")
    assert handler.given.verify_only is (version < 12)
    assert [(one.topic_partition, bytes(one.records)) for one in handler.given.partitions] == [
        (("flights", 0), b"first"),
        (("flights", 1), b""),
        ((delays, 2), b"x" * 300),
        ((delays, 3), b"y"),
    ]
    leader = {"current_leader": {"leader_id": 2, "leader_epoch": 9}}
    expected = {
        "responses": [
            {
                "name": "flights",
                "topic_id": FLIGHTS,
                "partition_responses": [
                    {
                        "index": 0,
                        "error_code": 0,
                        "base_offset": 77,
                        "log_append_time": None,
                        "log_start_offset": 5,
                        "record_errors": [],
                        "error_message": None,
                    },
                    {
                        "index": 1,
                        "error_code": 6,
                        "base_offset": -1,
                        "log_append_time": None,
                        "log_start_offset": -1,
                        "record_errors": [],
                        "error_message": "not me",
                        **leader,
                    },
                ],
            },
            {
                "name": "delays",
                "topic_id": UNKNOWN,
                "partition_responses": [
                    {
                        "index": 2,
                        "error_code": 0,
                        "base_offset": 0,
                        "log_append_time": 123,
                        "log_start_offset": 0,
                        "record_errors": [],
                        "error_message": None,
                    },
                    {
                        "index": 3,
                        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        if version < 13
                        else ErrorCode.UNKNOWN_TOPIC_ID,
                        "base_offset": -1,
                        "log_append_time": None,
                        "log_start_offset": -1,
                        "record_errors": [],
                        "error_message": "gone",
                    },
                ],
            },
        ],
        **(SECOND_NODE if version >= 10 else {}),
    }
    assert answer is not None
    assert joined(answer) == messages.encode(request, expected)


@pytest.mark.parametrize("leader", [-1, 3, 9])
def test_a_refused_produce_names_no_endpoint_of_a_leader_that_the_client_cannot_dial(leader: int) -> None:
    """The leader is missing, a broker without such a listener, or an unknown broker."""
    refused = Produced(TopicPartition("flights", 1), ErrorCode.NOT_LEADER_OR_FOLLOWER, "", current_leader=leader)
    assert node_endpoints(CLUSTER, [refused]) == []


@pytest.mark.parametrize("version", [3, 9])
def test_produce_without_acknowledgement_has_no_answer(version: int) -> None:
    fields = {"transactional_id": None, "acks": 0, "timeout": 1, "topic_data": []}
    request = request_of(ApiKey.PRODUCE, version, fields)
    assert produce(request, ScriptedProduce([]), CLUSTER, TOPIC_IDS) is None


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_older_producers_get_invalid_txn_state_instead_of_transaction_abortable(version: int, code: ErrorCode) -> None:
    partitions = [{"index": 0, "records": b"x"}]
    fields = {
        "transactional_id": "tx",
        "acks": 1,
        "timeout": 1,
        "topic_data": [{"name": "flights", "partition_data": partitions}],
    }
    request = request_of(ApiKey.PRODUCE, version, fields)
    refused = Produced(TopicPartition("flights", 0), ErrorCode.TRANSACTION_ABORTABLE, "not part of it")
    answer = produce(request, ScriptedProduce([refused]), CLUSTER, TOPIC_IDS)
    assert isinstance(answer, list)
    (topic,) = decoded(request, joined(answer)).responses
    assert topic.partition_responses[0].error_code == code


class ScriptedFetch:
    """A handler that records its requests and gives prepared answers, at once or later."""

    def __init__(self, answers: Sequence[PartitionAnswer], records: Sequence[bytes], *, waits: bool = False) -> None:
        self.answers, self.records, self._waits = answers, records, waits
        self.wanted: FetchQuery | None = None

    def begin(self, wanted: FetchQuery) -> tuple[Any, Sequence[bytes] | None]:
        self.wanted = wanted
        return SimpleNamespace(answers=self.answers), None if self._waits else self.records

    async def finish(self, wanted: FetchQuery, begun: Any) -> tuple[Any, Sequence[bytes]]:
        assert wanted is self.wanted
        return begun, self.records


def fetched_of(kafka_fetch: Fetch, request: Request) -> bytes:
    """Returns the answer, also if it comes later."""
    answer = kafka_fetch.fetch(request)

    async def in_time() -> list[Part]:
        return answer if isinstance(answer, list) else await answer

    return b"".join(map(bytes, asyncio.run(in_time())))


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("version", versions_of(ApiKey.FETCH))
def test_a_fetch_in_every_version_has_the_bytes_of_kios_schema(version: int, waits: bool) -> None:
    def topic(name: str, topic_id: uuid.UUID, numbers: Sequence[int]) -> dict[str, Any]:
        partitions = [
            {
                "partition": number,
                "current_leader_epoch": 3,
                "fetch_offset": 100 + number,
                "last_fetched_epoch": 2,
                "log_start_offset": -1,
                "partition_max_bytes": 1_000,
            }
            for number in numbers
        ]
        return {"topic": name, "topic_id": topic_id, "partitions": partitions}

    unknown_name = "nowhere" if version < 13 else "?" + UNKNOWN.bytes.hex()
    request = request_of(
        ApiKey.FETCH,
        version,
        {
            "cluster_id": None,
            "replica_id": -1,
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 50_000,
            "isolation_level": 1,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [topic("flights", FLIGHTS, [0, 1]), topic("nowhere", UNKNOWN, [0])],
            "forgotten_topics_data": [],
            "rack_id": "b",
            "replica_state": {"replica_id": -1, "replica_epoch": -1},
        },
    )
    answers = [
        PartitionAnswer(
            TopicPartition("flights", 0),
            high_watermark=200,
            last_stable_offset=150,
            log_start_offset=7,
            records_bytes=5,
            aborted_transactions=[AbortedTransaction(11, 120, 130, 150)],
        ),
        PartitionAnswer(
            TopicPartition("flights", 1),
            -1,
            -1,
            -1,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=2,
            current_leader_epoch=4,
        ),
        PartitionAnswer(TopicPartition(unknown_name, 0), -1, -1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    handler = ScriptedFetch(answers, [b"batch"], waits=waits)
    sessions = FetchSessions(slots=1, eviction_ms=0, rng=random.Random(1))
    kafka_fetch = Fetch(handler, CLUSTER, TOPIC_IDS, sessions, SystemClock())
    written = fetched_of(kafka_fetch, request)
    wanted = handler.wanted
    assert wanted is not None
    assert (wanted.max_wait_ms, wanted.min_bytes, wanted.max_bytes) == (500, 1, 50_000)
    assert wanted.terms == (True, "b" if version >= 11 else "")
    assert [(one.topic_partition, one.offset, one.max_bytes) for one in wanted.cursors] == [
        (("flights", 0), 100, 1_000),
        (("flights", 1), 101, 1_000),
        ((unknown_name, 0), 100, 1_000),
    ]
    first = wanted.cursors[0]
    assert first.current_leader_epoch == (3 if version >= 9 else -1)
    assert first.last_fetched_epoch == (2 if version >= 12 else -1)

    def partition(number: int, code: int, offsets: tuple[int, int, int], **more: Any) -> dict[str, Any]:
        high_watermark, last_stable_offset, log_start_offset = offsets
        return {
            "partition_index": number,
            "error_code": code,
            "high_watermark": high_watermark,
            "last_stable_offset": last_stable_offset,
            "log_start_offset": log_start_offset,
            "aborted_transactions": [],
            "preferred_read_replica": -1,
            "records": b"",
            **more,
        }

    flights = [
        partition(
            0,
            0,
            (200, 150, 7),
            aborted_transactions=[{"producer_id": 11, "first_offset": 120}],
            records=b"batch",
        ),
        partition(1, 6, (-1, -1, -1), current_leader={"leader_id": 2, "leader_epoch": 4}),
    ]
    unknown = [partition(0, 3 if version < 13 else 100, (-1, -1, -1))]
    expected = {
        "error_code": 0,
        "session_id": 0,
        "responses": [
            {"topic": "flights", "topic_id": FLIGHTS, "partitions": flights},
            {"topic": "nowhere", "topic_id": UNKNOWN, "partitions": unknown},
        ],
        **(SECOND_NODE if version >= 16 else {}),
    }
    assert written == messages.encode(request, expected)


@pytest.mark.parametrize("version", range(7, SPOKEN[ApiKey.FETCH].max + 1))
def test_a_fetch_in_a_session_has_the_bytes_of_kios_schema(version: int) -> None:
    """The second request names no partition and gets the changes. The third request comes too late and is refused."""

    def ask(session_id: int, epoch: int, numbers: Sequence[int]) -> Request:
        partitions = [
            {
                "partition": number,
                "current_leader_epoch": -1,
                "fetch_offset": 9,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": 1_000,
            }
            for number in numbers
        ]
        fields = {
            "cluster_id": None,
            "replica_id": -1,
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 50_000,
            "isolation_level": 0,
            "session_id": session_id,
            "session_epoch": epoch,
            "topics": [{"topic": "flights", "topic_id": FLIGHTS, "partitions": partitions}] if numbers else [],
            "forgotten_topics_data": [],
            "rack_id": "",
            "replica_state": {"replica_id": -1, "replica_epoch": -1},
        }
        return request_of(ApiKey.FETCH, version, fields)

    def answer(high_watermark: int, number: int) -> PartitionAnswer:
        return PartitionAnswer(TopicPartition("flights", number), high_watermark, 5, 0)

    def expected(request: Request, code: int, session_id: int, told: Sequence[tuple[int, int]]) -> bytes:
        partitions = [
            {
                "partition_index": number,
                "error_code": 0,
                "high_watermark": high_watermark,
                "last_stable_offset": 5,
                "log_start_offset": 0,
                "aborted_transactions": [],
                "preferred_read_replica": -1,
                "records": b"",
            }
            for number, high_watermark in told
        ]
        topics = [{"topic": "flights", "topic_id": FLIGHTS, "partitions": partitions}] if told else []
        return messages.encode(request, {"error_code": code, "session_id": session_id, "responses": topics})

    handler = ScriptedFetch([answer(9, 0), answer(9, 1)], [])
    sessions = FetchSessions(slots=1, eviction_ms=0, rng=random.Random(1))
    kafka_fetch = Fetch(handler, CLUSTER, TOPIC_IDS, sessions, SystemClock())
    first = ask(0, 0, [0, 1])
    body = fetched_of(kafka_fetch, first)
    (session_id,) = struct.unpack_from(">i", body, 6)
    assert session_id > 0
    assert body == expected(first, 0, session_id, [(0, 9), (1, 9)])
    handler.answers = [answer(9, 0), answer(12, 1)]
    second = ask(session_id, 1, [])
    assert fetched_of(kafka_fetch, second) == expected(second, 0, session_id, [(1, 12)])
    assert handler.wanted is not None
    assert [(one.topic_partition, one.offset) for one in handler.wanted.cursors] == [
        (("flights", 0), 9),
        (("flights", 1), 9),
    ]
    for late, code in ((ask(session_id, 1, []), 71), (ask(session_id % 1000 + 7, 1, []), 70)):
        assert fetched_of(kafka_fetch, late) == expected(late, code, 0, [])


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
    request: Request, handler: ScriptedMetadata, view: SeenCluster, slices: LoopSlices | None = None
) -> bytes:
    answer = metadata(request, handler, view, TOPIC_IDS, slices or LoopSlices())
    assert isinstance(answer, list) or handler.asked
    return joined(answer if isinstance(answer, list) else asyncio.run(answer))


def names_request(names: int) -> Request:
    topics = [{"name": f"t{number}", "topic_id": None} for number in range(names)]
    fields = {"topics": [*topics, {"name": "flights", "topic_id": None}], "allow_auto_topic_creation": False}
    return request_of(ApiKey.METADATA, 4, fields)


@pytest.mark.parametrize("session", [None, session_of()], ids=["no authorizer", "no rights"])
def test_metadata_of_many_names_are_written_in_several_turns_with_the_callers_rights(session: Session | None) -> None:
    request, clock_s = names_request(1_000), count(0, SLICE_MAX_S)

    def answer_of(slices: LoopSlices) -> Any:
        def handle(asked: Request) -> Any:
            return metadata(asked, ScriptedMetadata(), CLUSTER, TOPIC_IDS, slices)

        return handle(request) if session is None else called_by(session, handle, request)

    at_once = answer_of(LoopSlices(lambda: 0.0))
    assert isinstance(at_once, list)

    async def in_turns() -> tuple[bytes, int]:
        answer = answer_of(LoopSlices(lambda: next(clock_s)))
        assert not isinstance(answer, list)
        task = asyncio.create_task(answer)
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return joined(task.result()), turns

    answer, turns = asyncio.run(in_turns())
    assert answer == joined(at_once)
    assert (answer == metadata_of(request, ScriptedMetadata(), CLUSTER, LoopSlices(lambda: 0.0))) == (session is None)
    assert turns >= 20


def test_metadata_are_refused_for_more_names_than_an_array_may_have() -> None:
    with pytest.raises(MalformedRequestError, match="100001 topics; expected at most 100000"):
        metadata(names_request(100_000), ScriptedMetadata(), CLUSTER, TOPIC_IDS, LoopSlices(lambda: 0.0))


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
    written = metadata_of(request, handler, SeenCluster(image, 2, "KAFKA"))
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
    view = SeenCluster(lambda: seen, 1, "PUBLIC")
    fields = {
        "topics": [{"name": "flights", "topic_id": uuid.UUID(int=0)}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    request = request_of(ApiKey.METADATA, version, fields)
    response = decoded(request, metadata_of(request, ScriptedMetadata(), view))
    assert [(one.node_id, one.host, one.port) for one in response.brokers] == [(2, "example.com", 1092)]
    assert response.controller_id == 2
    error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    leaders = [(int(one.error_code), one.leader_id) for one in response.topics[0].partitions]
    assert leaders == [(error, -1), (ErrorCode.LEADER_NOT_AVAILABLE, -1)]


@pytest.mark.parametrize("version", versions_of(ApiKey.API_VERSIONS))
def test_api_versions_in_every_version_has_the_bytes_of_kios_schema(version: int) -> None:
    request = request_of(ApiKey.API_VERSIONS, version, {"client_software_name": "c", "client_software_version": "1"})
    entries = [
        {"api_key": key, "min_version": one.advertised_min, "max_version": one.max}
        for key, one in sorted(SPOKEN.items())
    ]
    supported = [{"name": name, "min_version": level, "max_version": level} for name, level in sorted(LEVELS.items())]
    finalized = [
        {"name": name, "max_version_level": level, "min_version_level": level} for name, level in sorted(LEVELS.items())
    ]
    fields = {
        "error_code": 0,
        "api_keys": entries,
        "supported_features": supported,
        "finalized_features_epoch": 70_000,
        "finalized_features": finalized,
    }
    assert bytes_of(api_versions(request, 70_000, "cluster", 1)) == messages.encode(request, fields)


def test_a_newer_version_of_api_versions_is_answered_in_version_0_with_the_range() -> None:
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 9, 1, -1) + b"\x00"
    answer = bytes_of(api_versions(parse_request(memoryview(frame), ""), 1, "cluster", 1))
    assert answer == struct.pack(">hihhh", 35, 1, 18, 0, SPOKEN[ApiKey.API_VERSIONS].max)


def test_librdkafkas_metadata_request_for_all_topics_is_accepted() -> None:
    """librdkafka 2.16.0 writes a null array and then three bytes of a longer form of it. Kafka ignores these bytes."""
    frame = bytes.fromhex("0003000c00000003000772646b61666b610000000000010000")
    handler = ScriptedMetadata()
    request = parse_request(memoryview(frame), "")
    assert b"flights" in metadata_of(request, handler, SeenCluster(image, 2, "KAFKA"))


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
    metadata_of(request_of(ApiKey.METADATA, version, fields), handler, SeenCluster(image, 2, "KAFKA"))
    assert handler.asked == [(name, version < 4)]
    assert TOPIC_IDS.id_of(name) == bytes(16)


def test_an_unknown_transaction_is_described_with_start_time_minus_one() -> None:
    request = request_of(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["a"]})
    state = {
        "error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        "transactional_id": "a",
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "topics": [],
    }
    answer = messages.encode(request, {"error_code": 0, "transaction_states": [state]})
    assert struct.pack(">iqqh", 0, -1, -1, -1) in answer


def many_partitions(api_key: ApiKey, topics: int, by_topic: int, forgotten: int = 0) -> Request:
    """Returns a Produce or Fetch of `topics` topics with `by_topic` partitions each."""
    partition = b"\x00\x00\x00\x01\x00\x00" if api_key is ApiKey.PRODUCE else b"\x00" * 33
    head = struct.pack(">bhi", 0, 1, 9) if api_key is ApiKey.PRODUCE else b"\xff" * 4 + b"\x00" * 21
    topic = KafkaWriter(flexible=True).string("t").array_size(by_topic).value() + partition * by_topic + b"\x00"
    body = head + KafkaWriter(flexible=True).array_size(topics).value() + topic * topics
    if api_key is ApiKey.FETCH:
        gone = KafkaWriter(flexible=True).array_size(1).string("t").array_size(forgotten).value()
        body += gone + bytes(4 * forgotten) + b"\x00\x01"
    version = 9 if api_key is ApiKey.PRODUCE else 12
    return Request(api_key, version, 1, "", "", memoryview(body + b"\x00"), 0, True)


@pytest.mark.parametrize(
    ("api_key", "topics", "by_topic", "forgotten"),
    [
        (ApiKey.PRODUCE, 1, ARRAY_ITEMS_MAX + 1, 0),
        (ApiKey.PRODUCE, 2, ARRAY_ITEMS_MAX // 2 + 1, 0),
        (ApiKey.PRODUCE, ARRAY_ITEMS_MAX + 1, 0, 0),
        (ApiKey.FETCH, 2, ARRAY_ITEMS_MAX // 2 + 1, 0),
        (ApiKey.FETCH, ARRAY_ITEMS_MAX + 1, 0, 0),
        (ApiKey.FETCH, 1, 1, ARRAY_ITEMS_MAX + 1),
    ],
)
def test_the_partitions_of_a_produce_or_fetch_have_a_limit(
    api_key: ApiKey, topics: int, by_topic: int, forgotten: int
) -> None:
    with pytest.raises(MalformedRequestError, match="expected at most 100000"):
        read_of(many_partitions(api_key, topics, by_topic, forgotten))


def test_a_fetch_may_forget_many_partitions() -> None:
    read_of(many_partitions(ApiKey.FETCH, 3, 5, 1_000))


def read_of(request: Request) -> object:
    read: Any = read_produce if request.api_key is ApiKey.PRODUCE else read_fetch
    return read(request, TOPIC_IDS)
