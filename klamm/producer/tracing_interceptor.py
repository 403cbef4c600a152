"""Carries traces through the log, in the headers of records."""

from __future__ import annotations

from klamm import tracing
from klamm.producer.interceptors import ProducerInterceptor
from klamm.producer.record import ProducerRecord


class TracingInterceptor(ProducerInterceptor):
    """Adds the context of the current span to each record, as header `traceparent` (W3C Trace Context). A consumer can
    continue the trace from it.

    Raises ConfigError without OpenTelemetry, as soon as it is made."""

    def __init__(self) -> None:
        tracing.inject({})

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        carrier: dict[str, str] = {}
        tracing.inject(carrier)
        headers = [(name, value.encode()) for name, value in carrier.items()]
        return record._replace(headers=[*(record.headers or ()), *headers])
