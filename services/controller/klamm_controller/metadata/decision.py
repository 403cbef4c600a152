"""The result of a handler: the records to append, and the reply to send once they have committed.

A handler `handle_x(request, image, ...)` changes no state. Inside, it raises `Refusal` for a request that it cannot
carry out. The handler catches it and puts its error code in the reply, so a Refusal never reaches the handler's caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from klamm.errors import ErrorCode
from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.sweep import Sweep

ReplyT = TypeVar("ReplyT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[ReplyT]):
    """The decision on a request. Its records are appended as one batch, so all or none of them commit."""

    records: tuple[MetadataRecord, ...] = ()
    reply: ReplyT
    sweep: Sweep | None = None
    """The changes that later events make, or None. The reply does not wait for them."""
    is_last: bool = True
    """True if the request is done. If False, the handler must be called again in another event, and only its last reply
    counts."""


class Refusal(Exception):
    """Raised inside a handler if a part of a request cannot be carried out. It has Kafka's error code, and a text with
    the wrong value."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
