"""Hooks around every record (KIP-42). What they raise is logged and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.producer.record import ProducerRecord, RecordMetadata

log = logging.getLogger(__name__)


class ProducerInterceptor:
    """Override what you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before serialization, on the thread that calls `send`; returns the record to send instead."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """When the record's outcome is known, on the producer's own loop, before `on_delivery`: be quick."""


class InterceptorChain:
    """The configured interceptors, in order. Each one gets the record that the previous one returned."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = interceptors

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
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                log.exception("interceptor=%r hook=on_acknowledgement failed", interceptor)
