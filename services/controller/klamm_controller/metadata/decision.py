"""What a handler answers: the records to append and the reply to release when they are committed.

A handler `handle_x(request, image, ...)` changes nothing. It refuses what it cannot do by raising `Refusal`
inside, which ends as an error code in the reply, never as an exception at the caller.
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
    """Appended as one batch, so all of it happens or nothing."""

    records: tuple[MetadataRecord, ...] = ()
    reply: ReplyT
    sweep: Sweep | None = None
    """The changes that follow in later events. The reply does not wait for them."""
    is_last: bool = True
    """Otherwise the handler wants another event, and the reply to that is the one that counts."""


class Refusal(Exception):
    """A part of a request cannot be done. The error has Kafka's code, and a text with the wrong value."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
