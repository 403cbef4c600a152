"""Passes Kafka requests to their handlers as the listener does, and reads the answers as a client does, with kio."""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kio.serial import entity_reader, entity_writer

from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import MetadataRecord, RegisterBrokerRecord, TopicRecord
from klamm_broker.kafka.api import APIS, ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.codec.schemas import request_schema, response_schema
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.kafka.served_apis import SPOKEN
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay

_BROKER = RegisterBrokerRecord(broker_id=1, kafka_endpoint=Endpoint(host="kafka", port=9092))
_IMAGE = replay(MetadataImage.empty(), [MetadataRecord(register_broker=_BROKER)], 1)
FLIGHTS, UNKNOWN = uuid.UUID(int=7), uuid.UUID(int=9)
"""The id of the topic `flights`, and an id that no topic has."""


def _flights() -> MetadataImage:
    records = [MetadataRecord(topic=TopicRecord(name="flights", topic_id=FLIGHTS.bytes))]
    return replay(MetadataImage.empty(), records, len(records))


TOPIC_IDS = TopicIds(_flights)
ALONE = ListenerMetadata(lambda: _IMAGE, 1, "KAFKA")
"""The cluster as its only broker sees it."""

Handler = Callable[[Request, Any], Awaitable[Fields]]


def request_of(api_key: ApiKey, version: int, fields: Fields) -> Request:
    """Returns the request as a client sends it. Fields that the version does not have are left out."""
    schema = request_schema(api_key, version)
    body = io.BytesIO()
    entity_writer(schema)(body, messages._make(schema, fields))
    tags = b"\x00" if version >= SPOKEN[api_key].flexible else b""
    frame = struct.pack(">hhih", api_key, version, 1, 4) + b"test" + tags + body.getvalue()
    return parse_request(memoryview(frame), "10.0.0.1")


async def answer_of(handler: Handler, api_key: ApiKey, version: int, fields: Fields) -> Any:
    """Passes a request to its handler, and returns the answer as kio's dataclass."""
    request = request_of(api_key, version, fields)
    fields_of_answer = await APIS[api_key].answer(handler, request, messages.decode(request))
    answer = messages.encode(request, fields_of_answer)
    message, size = entity_reader(response_schema(api_key, version))(memoryview(answer), 0)
    assert size == len(answer)
    return message


class ScriptedCoordinators:
    """Replaces the connections to coordinators. It records each request, and answers with the test's function for that
    call."""

    def __init__(self, answers: Mapping[str, Callable[[Any], Any]]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, Any]] = []
        """The name and the request of each call, in order."""

    async def ask(self, topic: str, key: str, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        self.asked.append((rpc.__name__, request))
        return self._answers[rpc.__name__](request)

    async def ask_owner(self, topic: str, shard: int, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        self.asked.append((rpc.__name__, request))
        return self._answers[rpc.__name__](request)

    async def ask_all(self, rpc: Any, request: Any, *, timeout_ms: int) -> list[Any]:
        self.asked.append((rpc.__name__, request))
        return [self._answers[rpc.__name__](request)]
