"""Tests that the messages written by hand have the same bytes as those of kio's schemas, in every spoken version."""

from __future__ import annotations

import asyncio
import random
import struct
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_reader

from klamm.errors import ErrorCode
from klamm.kafka_types.writer import KafkaWriter
from klamm.model import TopicPartition
from klamm_broker.handlers.fetch import FetchQuery
from klamm_broker.handlers.produce import Produce, Produced
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX
from klamm_broker.kafka.api import WHOLE_ITEMS_MAX, ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.schemas import response_schema
from klamm_broker.kafka.codec.wire import MalformedRequestError, Part
from klamm_broker.kafka.cold.features import LEVELS
from klamm_broker.kafka.hot.api_versions import api_versions
from klamm_broker.kafka.hot.fetch import Fetch
from klamm_broker.kafka.hot.fetch import _read as read_fetch
from klamm_broker.kafka.hot.fetch_sessions import FetchSessions
from klamm_broker.kafka.hot.leader_hints import node_endpoints
from klamm_broker.kafka.hot.produce import _read as read_produce
from klamm_broker.kafka.hot.produce import produce
from klamm_broker.kafka.net.connection import Answer, UnansweredError
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.kafka.served_apis import SPOKEN
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_broker.replica.fetch_reader import PartitionAnswer
from klamm_broker.replica.reader_watch import ReaderWatch
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.waiting import Waiting
from tests.support.kafka_requests import (
    CLUSTER,
    FLIGHTS,
    SECOND_NODE,
    TOPIC_IDS,
    UNKNOWN,
    bytes_of,
    decoded,
    joined,
    request_of,
    versions_of,
)


class ScriptedProduce:
    """A handler that records its requests and gives prepared answers."""

    def __init__(self, answers: list[Produced], *, in_time: bool = False) -> None:
        self.answers = answers
        self.in_time = in_time
        self.given: Produce | None = None

    def serve(self, produce: Produce) -> list[Produced] | Waiting[list[Produced]]:
        self.given = produce
        return Waiting(self._later()) if self.in_time else self.answers

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
    assert isinstance(answer, Waiting) is in_time
    if isinstance(answer, Waiting):
        answer = asyncio.run(answer.work)
    assert handler.given is not None
    assert handler.given[:3] == (-1, 1_500, "tx")
    assert handler.given.verify_only is (version < 12)
    assert [(partition.topic_partition, bytes(partition.records)) for partition in handler.given.partitions] == [
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


@pytest.mark.parametrize("in_time", [False, True])
def test_a_produce_without_acknowledgement_that_fails_ends_the_connection(in_time: bool) -> None:
    """The client then asks for new metadata, as with Kafka."""
    fields = {"transactional_id": None, "acks": 0, "timeout": 1, "topic_data": []}
    request = request_of(ApiKey.PRODUCE, 9, fields)
    moved = Produced(TopicPartition("flights", 1), ErrorCode.NOT_LEADER_OR_FOLLOWER, "it moved")

    async def served() -> Answer:
        answer = produce(request, ScriptedProduce([moved], in_time=in_time), CLUSTER, TOPIC_IDS)
        return await answer if isinstance(answer, Waiting) else answer

    with pytest.raises(UnansweredError, match="partition=flights-1 error=NOT_LEADER_OR_FOLLOWER: it moved"):
        asyncio.run(served())


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
    assert not isinstance(answer, Waiting)
    (topic,) = decoded(request, joined(answer)).responses
    assert topic.partition_responses[0].error_code == code


class ScriptedFetch:
    """A handler that records its requests and gives prepared answers, at once or later."""

    def __init__(self, answers: Sequence[PartitionAnswer], records: Sequence[bytes], *, waits: bool = False) -> None:
        self.answers, self.records, self._waits = answers, records, waits
        self.wanted: FetchQuery | None = None

    def begin(self, wanted: FetchQuery) -> tuple[Any, Sequence[bytes] | None]:
        self.wanted = wanted
        if wanted.context is not None:
            wanted.cursors = wanted.context.cursors(wanted.terms)
        return SimpleNamespace(answers=self.answers), None if self._waits else self.records

    async def finish(self, wanted: FetchQuery, begun: Any) -> tuple[Any, Sequence[bytes]]:
        assert wanted is self.wanted
        return begun, self.records


def fetched_of(kafka_fetch: Fetch, request: Request) -> bytes:
    """Returns the answer, also if it comes later."""
    answer = kafka_fetch.fetch(request)

    async def in_time() -> list[Part]:
        return await answer if isinstance(answer, Waiting) else answer

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
    sessions = FetchSessions(ReaderWatch(), slots=1, eviction_ms=0, rng=random.Random(1))
    kafka_fetch = Fetch(handler, CLUSTER, TOPIC_IDS, sessions, SystemClock())
    written = fetched_of(kafka_fetch, request)
    wanted = handler.wanted
    assert wanted is not None
    assert (wanted.max_wait_ms, wanted.min_bytes, wanted.max_bytes) == (500, 1, 50_000)
    assert wanted.terms == (True, "b" if version >= 11 else "")
    assert [(cursor.topic_partition, cursor.offset, cursor.max_bytes) for cursor in wanted.cursors] == [
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
    sessions = FetchSessions(ReaderWatch(), slots=1, eviction_ms=0, rng=random.Random(1))
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
    assert [(cursor.topic_partition, cursor.offset) for cursor in handler.wanted.cursors] == [
        (("flights", 0), 9),
        (("flights", 1), 9),
    ]
    for late, code in ((ask(session_id, 1, []), 71), (ask(session_id % 1000 + 7, 1, []), 70)):
        assert fetched_of(kafka_fetch, late) == expected(late, code, 0, [])


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
    assert bytes_of(api_versions(request, SPOKEN, 70_000, "cluster", 1)) == messages.encode(request, fields)


def test_a_newer_version_of_api_versions_is_answered_in_version_0_with_the_range() -> None:
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 9, 1, -1) + b"\x00"
    answer = bytes_of(api_versions(parse_request(memoryview(frame), ""), SPOKEN, 1, "cluster", 1))
    assert answer == struct.pack(">hihhh", 35, 1, 18, 0, SPOKEN[ApiKey.API_VERSIONS].max)


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


def test_a_produce_of_many_partitions_is_served_in_a_later_turn() -> None:
    handler = ScriptedProduce(
        [Produced(TopicPartition("t", number), base_offset=number) for number in range(TURN_PARTITIONS_MAX + 1)]
    )
    numbers = range(TURN_PARTITIONS_MAX + 1)
    topics = [{"name": "t", "partition_data": [{"index": number, "records": b"r"} for number in numbers]}]
    fields = {"transactional_id": None, "acks": 1, "timeout": 1_500, "topic_data": topics}
    answer = produce(request_of(ApiKey.PRODUCE, 9, fields), handler, CLUSTER, TOPIC_IDS)
    assert handler.given is None
    assert isinstance(answer, Waiting)
    decoded, _ = entity_reader(response_schema(ApiKey.PRODUCE, 9))(
        memoryview(b"".join(asyncio.run(answer.work) or ())), 0
    )
    (topic,) = decoded.responses
    assert [partition_response.base_offset for partition_response in topic.partition_responses] == list(numbers)


@pytest.mark.parametrize("waits", [False, True])
def test_a_fetch_of_many_partitions_is_served_in_a_later_turn(waits: bool) -> None:
    count = TURN_PARTITIONS_MAX + 1
    handler = ScriptedFetch([PartitionAnswer(TopicPartition("t", n), n, n, 0) for n in range(count)], [], waits=waits)
    sessions = FetchSessions(ReaderWatch(), slots=0, eviction_ms=0, rng=random.Random(1))
    kafka_fetch = Fetch(handler, CLUSTER, TOPIC_IDS, sessions, SystemClock())
    answer = kafka_fetch.fetch(many_partitions(ApiKey.FETCH, 1, count))
    assert handler.wanted is None
    assert isinstance(answer, Waiting)
    decoded, _ = entity_reader(response_schema(ApiKey.FETCH, 12))(memoryview(b"".join(asyncio.run(answer.work))), 0)
    (topic,) = decoded.responses
    assert [partition.high_watermark for partition in topic.partitions] == list(range(count))


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
        (ApiKey.PRODUCE, 1, WHOLE_ITEMS_MAX + 1, 0),
        (ApiKey.PRODUCE, 2, WHOLE_ITEMS_MAX // 2 + 1, 0),
        (ApiKey.PRODUCE, WHOLE_ITEMS_MAX + 1, 0, 0),
        (ApiKey.FETCH, 2, WHOLE_ITEMS_MAX // 2 + 1, 0),
        (ApiKey.FETCH, WHOLE_ITEMS_MAX + 1, 0, 0),
        (ApiKey.FETCH, 1, 1, WHOLE_ITEMS_MAX + 1),
    ],
)
def test_the_partitions_of_a_produce_or_fetch_have_a_limit(
    api_key: ApiKey, topics: int, by_topic: int, forgotten: int
) -> None:
    with pytest.raises(MalformedRequestError, match="expected at most 10000"):
        read_of(many_partitions(api_key, topics, by_topic, forgotten))


def test_a_fetch_may_forget_many_partitions() -> None:
    read_of(many_partitions(ApiKey.FETCH, 3, 5, 1_000))


def read_of(request: Request) -> object:
    read: Any = read_produce if request.api_key is ApiKey.PRODUCE else read_fetch
    return read(request, TOPIC_IDS)
