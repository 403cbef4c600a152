"""A Kafka client on one connection, which sends any message of any version, encoded by kio."""

from __future__ import annotations

import io
import socket
import ssl
import struct
from collections import deque
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue

from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.codec.schemas import request_schema, response_schema
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.message_reader import MessageReader
from tests.support.waiting import patience


class KafkaWire:
    """A connection to a broker, as a context. `ask` sends one request and returns its answer as kio's dataclass."""

    def __init__(
        self, bootstrap: str, *, source: str = "", timeout_s: float | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        timeout_s = patience() if timeout_s is None else timeout_s
        self._socket = socket.create_connection((host, int(port)), timeout_s, (source, 0) if source else None)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0
        self._unanswered: deque[int] = deque()
        """The correlation ids of the requests whose answers are not received yet."""

    def __enter__(self) -> KafkaWire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api_key: ApiKey, version: int, fields: Fields) -> Any:
        """Sends a request, and returns its answer. Fields that the version does not have are left out. Raises
        ConnectionError if the broker closes the connection."""
        self.send(api_key, version, fields)
        return self.receive(api_key, version)

    def send(self, api_key: ApiKey, version: int, fields: Fields) -> None:
        """Sends a request whose answer the caller gets from `receive`. May be called again before."""
        self._correlation_id += 1
        self._unanswered.append(self._correlation_id)
        schema = request_schema(api_key, version)
        body = io.BytesIO()
        entity_writer(schema)(body, messages._make(schema, fields))
        tags = b"\x00" if version >= SPOKEN[api_key].flexible else b""
        frame = struct.pack(">hhih", api_key, version, self._correlation_id, 4) + b"wire" + tags + body.getvalue()
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, api_key: ApiKey, version: int) -> Any:
        """Returns the answer to the first request that has none yet."""
        answer = self._read(struct.unpack(">i", self._read(4))[0])
        assert struct.unpack_from(">i", answer) == (self._unanswered.popleft(),)
        start = 5 if version >= SPOKEN[api_key].flexible and api_key is not ApiKey.API_VERSIONS else 4
        message, end = _read_message(response_schema(api_key, version), memoryview(answer), start)
        assert end == len(answer), f"{len(answer) - end} bytes after the answer"
        return message

    def ask_frame(self, frame: bytes) -> bytes:
        """Sends a whole frame with its size, and returns the answer after its size."""
        self._socket.sendall(frame)
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (some := self._socket.recv(size - len(data))):
                raise ConnectionError("the broker closed the connection")
            data += some
        return data


def _read_message(schema: Any, answer: memoryview, start: int) -> tuple[Any, int]:
    """Returns the message, and the position after it."""
    try:
        message, size = entity_reader(schema)(answer, start)
    except OutOfBoundValue:
        reader = MessageReader(answer, start, flexible=schema.__flexible__)
        return reader.entity(schema), reader.position
    return message, start + size
