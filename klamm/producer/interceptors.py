"""Interceptors of every record (KIP-42). Their exceptions are logged and otherwise ignored, but see `user_calls.py`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.producer.record import ProducerRecord, RecordMetadata
from klamm.producer.user_calls import UserCalls

log = logging.getLogger(__name__)


class ProducerInterceptor:
    """The base class of interceptors. Override the methods that you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns the record to send instead of `record`. Called before serialization, on the thread that calls
        `send`.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Called when the record's outcome is known, before `on_delivery`. It runs on the producer's own loop, so it
        must be quick."""


class InterceptorChain:
    """The configured interceptors, in order. Each one gets the record that the previous one returned."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor], calls: UserCalls) -> None:
        self._interceptors = interceptors
        self._calls = calls

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                log.exception("interceptor=%r hook=on_send topic=%s failed", interceptor, record.topic)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        for interceptor in self._interceptors:
            what = f"interceptor={interceptor!r} hook=on_acknowledgement"
            self._calls.call(what, interceptor.on_acknowledgement, metadata, error)
