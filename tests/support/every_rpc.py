"""Every RPC of the contracts, from their descriptors. Makes a request for each, about things with one name, and calls
it as any gRPC client does."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import klamm.wire.v1
from tests.support import certificates
from tests.support.waiting import patience

_ID: Final = bytes(range(16))
"""The value of every bytes field. It is no existing id."""
_BY_NAME: Final = {"records": b"", "replica_id": -1, "acks": -1}
_DEPTH_MAX: Final = 4


class Rpc(NamedTuple):
    """One call of a contract."""

    path: str
    """The path of the RPC, for example `/klamm.v1.Broker/Produce`."""
    descriptor: MethodDescriptor

    def request(self, name: str) -> bytes:
        """Returns a request in which every text is `name`, every list has one element, and numbers are 0. A fetch
        request is a consumer's. A produce request has no records, and requires an answer."""
        return self.message(name).SerializeToString()

    def message(self, name: str) -> Message:
        """Returns the message of `request`."""
        message = GetMessageClass(self.descriptor.input_type)()
        _fill(message, name, _DEPTH_MAX)
        return message

    def answer(self, data: bytes) -> Message:
        """Returns the message of an answer."""
        return GetMessageClass(self.descriptor.output_type).FromString(data)


def every_rpc() -> Iterator[Rpc]:
    """Yields every RPC, in the order of the contracts."""
    for module in pkgutil.iter_modules(klamm.wire.v1.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"klamm.wire.v1.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                for method in service.methods:
                    yield Rpc(f"/{service.full_name}/{method.name}", method)


def _fill(message: Message, name: str, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        is_another_of_one = field.containing_oneof is not None and field.containing_oneof.fields[0] is not field
        if depth and not is_another_of_one:
            _fill_field(message, field, name, depth - 1)


def _fill_field(message: Message, field: Any, name: str, depth: int) -> None:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return
        value: Any = getattr(message, field.name)
        _fill(value.add() if field.is_repeated else value, name, depth)
        return
    scalar = _scalar(field, name)
    if field.is_repeated:
        getattr(message, field.name).append(scalar)
    elif scalar:
        setattr(message, field.name, scalar)


def _scalar(field: Any, name: str) -> object:
    if field.name in _BY_NAME:
        return _BY_NAME[field.name]
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return name
        case FieldDescriptor.TYPE_BYTES:
            return _ID
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return 0.0
        case _:
            return 0


class Caller:
    """A client of one server. It has a certificate if `stores` is not None, and sends `metadata` with each call."""

    def __init__(
        self, address: str, stores: certificates.Stores | None, metadata: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        if stores is None:
            self._channel = grpc.insecure_channel(address)
        else:
            keystore = stores.keystore.read_bytes()
            credentials = grpc.ssl_channel_credentials(stores.truststore.read_bytes(), keystore, keystore)
            self._channel = grpc.secure_channel(address, credentials)
        self._metadata = tuple(metadata)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, rpc: Rpc, request: bytes) -> Message:
        """Returns the answer of a call, or the first answer of a stream. Raises grpc.RpcError."""
        answer = self.first_answer(rpc, request)
        assert answer is not None, f"{rpc.path} ended without an answer"
        return answer

    def first_answer(self, rpc: Rpc, request: bytes, metadata: Sequence[tuple[str, bytes]] = ()) -> Message | None:
        """Returns the answer of a call with more `metadata`, or the first answer of a stream, or None if the stream
        ends before. Raises grpc.RpcError."""
        if not rpc.descriptor.server_streaming:
            return rpc.answer(self._begin(rpc, request, metadata))
        stream = self.stream(rpc, request, metadata)
        try:
            return next(stream, None)
        finally:
            stream.close()

    def stream(
        self, rpc: Rpc, request: bytes, metadata: Sequence[tuple[str, bytes]] = ()
    ) -> Generator[Message, None, None]:
        """Yields the answers of a stream until the caller closes it. Raises grpc.RpcError."""
        answers = self._begin(rpc, request, metadata)
        try:
            yield from map(rpc.answer, answers)
        finally:
            answers.cancel()

    def _begin(self, rpc: Rpc, request: bytes, metadata: Sequence[tuple[str, bytes]] = ()) -> Any:
        method = rpc.descriptor
        kind = "_".join("stream" if many else "unary" for many in (method.client_streaming, method.server_streaming))
        asked = iter([request]) if method.client_streaming else request
        call = getattr(self._channel, kind)(rpc.path)
        return call(asked, timeout=patience(), metadata=(*self._metadata, *metadata), wait_for_ready=True)


def codes_of(message: Message) -> set[int]:
    """Returns all error codes of an answer, at any depth."""
    found: set[int] = set()
    for field, value in message.ListFields():
        if field.name.endswith("error_code"):
            found.add(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else (value,):
                found |= codes_of(one)
    return found
