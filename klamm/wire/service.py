"""Descriptions of gRPC methods, made from the contracts. Stubs call these methods and servers register them.

Both sides are built from the service descriptors in proto/; only their types are generated code. The three framed
messages (klamm/wire/framed.py) travel as plain bytes; all others as protobuf objects."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

_FRAMED = frozenset({"klamm.v1.ProduceRequest", "klamm.v1.FetchResponse", "klamm.v1.ReplicaFetchResponse"})
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One RPC. A (de)serializer of None means that the message is bytes."""

    name: str
    """The method's name in snake_case, which stubs and servicers use for it."""
    path: str
    """The path of the method, for example `/klamm.v1.Broker/Produce`."""
    client_streaming: bool
    server_streaming: bool
    request_serializer: Callable[[Any], bytes] | None
    request_deserializer: Callable[[bytes], Any] | None
    response_serializer: Callable[[Any], bytes] | None
    response_deserializer: Callable[[bytes], Any] | None


def methods(service: ServiceDescriptor) -> list[Method]:
    """Returns every RPC of `service`, in the order of the contract."""
    return [
        Method(
            name=_WORD.sub("_", method.name).lower(),
            path=f"/{service.full_name}/{method.name}",
            client_streaming=method.client_streaming,
            server_streaming=method.server_streaming,
            request_serializer=_serializer(method.input_type),
            request_deserializer=_deserializer(method.input_type),
            response_serializer=_serializer(method.output_type),
            response_deserializer=_deserializer(method.output_type),
        )
        for method in service.methods
    ]


def _serializer(message: Descriptor) -> Callable[[Any], bytes] | None:
    if message.full_name in _FRAMED:
        return None
    serialize = GetMessageClass(message).SerializeToString
    # Without the argument, each process writes map entries in its own order. The argument costs 0.3 us per message.
    return functools.partial(serialize, deterministic=True) if has_map(message) else serialize


def has_map(message: Descriptor) -> bool:
    """Returns whether the message, or one in it, has a field of type map."""
    seen: set[str] = set()
    waiting = [message]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name in seen:
            continue
        if descriptor.GetOptions().map_entry:
            return True
        seen.add(descriptor.full_name)
        waiting += [field.message_type for field in descriptor.fields if field.message_type is not None]
    return False


def _deserializer(message: Descriptor) -> Callable[[bytes], Any] | None:
    return None if message.full_name in _FRAMED else GetMessageClass(message).FromString
