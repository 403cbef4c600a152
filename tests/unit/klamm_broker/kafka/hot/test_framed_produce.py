"""Tests KLAMM_PRODUCE: the requests of Klamm's own client at a Kafka listener."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records.encoder import encode_batch
from klamm.wire.framed import encode_framed
from klamm.wire.record_frames import PRODUCE, VERSION, request_start
from klamm.wire.v1.broker_pb2 import ProduceHeader, ProducePartition, ProduceResponse, WriterFence
from klamm.wire.v1.common_pb2 import Endpoint
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX
from klamm_broker.kafka.hot.framed_produce import FramedProduce
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.messages.nodes import BrokerNodes
from klamm_server.metadata.entities import BrokerImage
from klamm_server.net.listeners import DEFAULT_NAME, plain_listeners
from klamm_server.runtime.waiting import Waiting
from tests.support.led_partition import NAME, OTHER, LedPartition, led_by

BATCH = encode_batch([(0, b"k", b"v", ())])


def request_of(header: ProduceHeader, *records: bytes) -> Request:
    body = encode_framed(header, records)
    return parse_request(memoryview(request_start(PRODUCE, VERSION, 5, "me", len(body)) + body)[4:], "here")


def header_of(*names: TopicPartition, acks: int = 1, **options: Any) -> ProduceHeader:
    parts = [
        ProducePartition(topic=name.topic, partition=name.partition, records_bytes=len(BATCH), **options)
        for name in names
    ]
    return ProduceHeader(acks=acks, timeout_ms=60_000, partitions=parts)


class Api:
    """A broker with one partition that it leads."""

    def __init__(self, directory: Path) -> None:
        self.broker = LedPartition(directory)
        self.broker.replicas.brokers.images = {
            OTHER: BrokerImage(
                broker_id=OTHER,
                broker_epoch=1,
                incarnation_id=b"",
                host="other",
                port=9094,
                rack="",
                fenced=False,
                in_controlled_shutdown=False,
                log_dir_ids=(),
                static_configs={},
                listeners=plain_listeners("other", 9094),
            )
        }
        nodes = BrokerNodes(self.broker.replicas.brokers, {})
        self.api = FramedProduce(self.broker.handler, nodes, DEFAULT_NAME, request_timeout_ms=60_000)

    async def ask(self, header: ProduceHeader, *records: bytes) -> ProduceResponse:
        answer = self.api.produce(request_of(header, *records))
        parts = await answer if isinstance(answer, Waiting) else answer
        return ProduceResponse.FromString(b"".join(parts))


def run(directory: Path, *requests: tuple[ProduceHeader, list[bytes]]) -> list[ProduceResponse]:
    async def ask_all() -> list[ProduceResponse]:
        api = Api(directory)
        answers = [await api.ask(header, *records) for header, records in requests]
        api.broker.close()
        return answers

    return asyncio.run(ask_all())


def test_records_are_appended_and_answered(tmp_path: Path) -> None:
    answers = run(tmp_path, (header_of(NAME), [BATCH]), (header_of(NAME), [BATCH]))
    assert [answer.partitions[0].base_offset for answer in answers] == [0, 1]
    assert {answer.partitions[0].error_code for answer in answers} == {0}


def test_acks_0_is_answered_with_the_failures_only(tmp_path: Path) -> None:
    missing = TopicPartition("missing", 0)
    answers = run(tmp_path, (header_of(NAME, acks=0), [BATCH]), (header_of(missing, acks=0), [BATCH]))
    assert [[part.topic for part in answer.partitions] for answer in answers] == [[], ["missing"]]


def test_a_produce_with_acks_all_waits_for_the_other_replica(tmp_path: Path) -> None:
    async def scenario() -> ProduceResponse:
        api = Api(tmp_path)
        asking = asyncio.ensure_future(api.ask(header_of(NAME, acks=-1), BATCH))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not asking.done()
        api.broker.replicas.apply(api.broker.partition, led_by(OTHER, 2))
        answer = await asking
        api.broker.close()
        return answer

    answer = asyncio.run(scenario())
    (part,) = answer.partitions
    assert (part.error_code, part.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, OTHER)
    assert [(node_endpoint.node_id, node_endpoint.endpoint) for node_endpoint in answer.node_endpoints] == [
        (OTHER, Endpoint(host="other", port=9094))
    ]


def test_many_partitions_are_answered_in_order(tmp_path: Path) -> None:
    names = [TopicPartition("missing", number) for number in range(TURN_PARTITIONS_MAX + 1)]
    (answer,) = run(tmp_path, (header_of(*names, NAME), [BATCH] * (len(names) + 1)))
    assert [part.partition for part in answer.partitions] == [*range(len(names)), NAME.partition]
    assert answer.partitions[-1].base_offset == 0


@pytest.mark.parametrize(
    ("header", "records", "why"),
    [
        (header_of(NAME), [BATCH, b"more"], "the header speaks of"),
        (header_of(NAME, NAME), [BATCH, BATCH], "names a partition twice"),
        (header_of(NAME, writer=WriterFence(producer_id=1)), [BATCH], "coordinators send them over gRPC"),
    ],
)
def test_wrong_requests_are_refused(tmp_path: Path, header: ProduceHeader, records: list[bytes], why: str) -> None:
    with pytest.raises(BrokerError, match=why) as caught:
        run(tmp_path, (header, records))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
