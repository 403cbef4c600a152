"""Requests of Kafka clients by kio's schemas, and the cluster that these clients see."""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from kio.serial import entity_reader, entity_writer

from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    ClusterRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.schemas import request_schema, response_schema
from klamm_broker.kafka.codec.wire import AnswerWriter
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.kafka.served_apis import SPOKEN
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay

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
CLUSTER = ListenerMetadata(image, 1, "KAFKA")
SECOND_NODE = {"node_endpoints": [{"node_id": 2, "host": "kafka2", "port": 9102, "rack": None}]}


def decoded(request: Request, answer: bytes) -> Any:
    schema = response_schema(request.api_key, request.version)
    found, size = entity_reader(schema)(answer, 0)
    assert size == len(answer)
    return found
