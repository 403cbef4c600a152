"""The metrics of a producer, under Kafka's names."""

from __future__ import annotations


class ProducerMetrics:
    """The totals of one producer. Only the producer's loop changes them."""

    def __init__(self) -> None:
        self.records_acknowledged = 0
        self.records_failed = 0
        self.records_sent = 0
        self.bytes_sent = 0
        self.batches_sent = 0
        self.requests_sent = 0
        self.requests_in_flight = 0
        self.retries = 0
        self.splits = 0
        self._latency_total_ms = 0
        self._latency_max_ms = 0
        self._requests_done = 0

    def request_sent(self, *, batches: int, records: int, size_bytes: int) -> None:
        """Counts a request that was sent."""
        self.requests_sent += 1
        self.batches_sent += batches
        self.records_sent += records
        self.bytes_sent += size_bytes

    def request_done(self, latency_ms: int) -> None:
        """Counts a request that was answered or has failed."""
        self.requests_in_flight -= 1
        self._requests_done += 1
        self._latency_total_ms += latency_ms
        self._latency_max_ms = max(self._latency_max_ms, latency_ms)

    def snapshot(self) -> dict[str, float]:
        """Returns totals and averages since the start."""
        return {
            "record-send-total": self.records_acknowledged,
            "record-error-total": self.records_failed,
            "record-retry-total": self.retries,
            "batch-split-total": self.splits,
            "byte-total": self.bytes_sent,
            "request-total": self.requests_sent,
            "batch-size-avg": self.bytes_sent / max(1, self.batches_sent),
            "records-per-request-avg": self.records_sent / max(1, self.requests_sent),
            "request-latency-avg": self._latency_total_ms / max(1, self._requests_done),
            "request-latency-max": self._latency_max_ms,
            "requests-in-flight": self.requests_in_flight,
        }
