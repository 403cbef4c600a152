"""The types of keys and values in records, for type checkers.

A `Consumer[str, Order]` returns a `ConsumerRecord[str, Order]`. A type checker finds the types by itself if
`key_deserializer` and `value_deserializer` are functions. Otherwise they are `Any`. A null key or value is None,
whatever its type is, because deserializers do not get nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # In `typing` since Python 3.13.

    KeyT = TypeVar("KeyT", default=Any)
    ValueT = TypeVar("ValueT", default=Any)
else:
    from typing import TypeVar

    KeyT = TypeVar("KeyT")
    ValueT = TypeVar("ValueT")
