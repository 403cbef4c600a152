"""What a client may do with a resource, as a bit field (KIP-430): all that the resource supports, for there is no
authorizer. Bits and sets are Kafka's `AclOperation` and `AclEntry.supportedOperations`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

NOT_ASKED_FOR: Final = -(2**31)


class _Operation(IntEnum):
    """Numbers of bits."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(operations: Iterable[_Operation]) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS: Final = (_Operation.DESCRIBE_CONFIGS, _Operation.ALTER_CONFIGS)
CLUSTER: Final = _bits(
    (
        *(_Operation.CREATE, _Operation.ALTER, _Operation.DESCRIBE, *_CONFIGS),
        *(_Operation.CLUSTER_ACTION, _Operation.IDEMPOTENT_WRITE),
    )
)
TOPIC: Final = _bits(
    (
        *(_Operation.READ, _Operation.WRITE, _Operation.CREATE, _Operation.DELETE, _Operation.ALTER),
        *(_Operation.DESCRIBE, *_CONFIGS),
    )
)
GROUP: Final = _bits((_Operation.READ, _Operation.DELETE, _Operation.DESCRIBE, *_CONFIGS))


def when_asked(operations: int, is_asked_for: bool) -> int:
    """The operations for a client that asks for them."""
    return operations if is_asked_for else NOT_ASKED_FOR
