"""Limits the items of a gRPC request, because one turn of the event loop serves them.

Kafka clients have the same limits at the Kafka listener. Calls between servers have none, because a broker may have any
number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import Message

from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method

ITEMS_MAX: Final = 10_000
"""The most items of all lists of a request together."""


def with_item_limit(method: Method, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a servicer's function with the check before it."""
    if method.client_streaming or method.request_deserializer is None:
        # ProduceRpc checks the messages that travel as bytes.
        return answer

    def call(request: Message, context: Any) -> Any:
        check_items(request)
        return answer(request, context)

    return call


def check_items(request: Message) -> None:
    """Raises CallFailed with INVALID_ARGUMENT if the request has more than `ITEMS_MAX` items."""
    # An item has at least one byte.
    if request.ByteSize() > ITEMS_MAX and _count(request) > ITEMS_MAX:
        raise CallFailed(
            Status.INVALID_ARGUMENT,
            f"the request has more than {ITEMS_MAX} items, which is the most: divide it into several requests",
        )


def _count(message: Message) -> int:
    """Returns the number of items of all lists, or a smaller number above `ITEMS_MAX`."""
    count = 0
    for field, value in message.ListFields():
        if not field.is_repeated:
            if field.message_type is not None:
                count += _count(value)
            continue
        count += len(value)
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for item in value:
            if count > ITEMS_MAX:
                return count
            count += _count(item)
    return count
