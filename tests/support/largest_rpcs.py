"""The largest request of each RPC that a client may make: one for each of its lists, with as many items as it may
have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from klamm_server.rpc.item_limits import ITEMS_MAX
from tests.support.every_rpc import Rpc

_NUMBERS: Final = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
Path = tuple[str, ...]
"""The names of the fields that lead to a list."""


class LargestRpc(NamedTuple):
    """A request with one list that is as long as it may be."""

    rpc: Rpc
    list_name: str
    items: int
    request: bytes


def largest_rpcs(rpc: Rpc, name: str) -> Iterator[LargestRpc]:
    """Yields the largest requests of an RPC, about things with that name and others."""
    example = rpc.message(name)
    for path in _lists(example):
        request = rpc.message(name)
        items = _lengthen(request, path)
        yield LargestRpc(rpc, ".".join(path), items, request.SerializeToString())


def _lists(message: Message, before: Path = ()) -> Iterator[Path]:
    """Yields the lists with an item, which may have lists of its own."""
    for field, value in message.ListFields():
        if field.is_repeated:
            yield (*before, field.name)
        if field.message_type is not None:
            yield from _lists(value[0] if field.is_repeated else value, (*before, field.name))


def _lengthen(request: Message, path: Path) -> int:
    """Adds items to a list until the request has as many as it may have. Returns the length of the list."""
    parent: Any = request
    for name in path[:-1]:
        parent = getattr(parent, name)
        parent = parent if isinstance(parent, Message) else parent[0]
    items = getattr(parent, path[-1])
    others = _count(request)
    each = 1 + (_count(items[0]) if isinstance(items[0], Message) else 0)
    length = 1 + (ITEMS_MAX - others) // each
    for number in range(1, length):
        if isinstance(items[0], Message):
            added = items.add()
            added.CopyFrom(items[0])
            _number(added, number)
        else:
            items.append(_another(items[0], number))
    return length


def _count(message: Message) -> int:
    count = 0
    for field, value in message.ListFields():
        each = list(value) if field.is_repeated else [value]
        count += len(each) if field.is_repeated else 0
        count += sum(_count(one) for one in each) if field.message_type is not None else 0
    return count


def _number(message: Message, number: int) -> None:
    """Makes a message differ from others by its first text or number, at any depth."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.type == FieldDescriptor.TYPE_STRING or field.type in _NUMBERS:
            setattr(message, field.name, _another(getattr(message, field.name), number))
            return
        if field.message_type is not None and message.HasField(field.name):
            _number(getattr(message, field.name), number)
            return


def _another(item: Any, number: int) -> Any:
    match item:
        case str():
            return f"{item}-{number}"
        case int():
            return number
    return item
