"""Tests the traces of real servers, as an OpenTelemetry collector receives them over OTLP."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple

import grpc
import pytest
from confluent_kafka import Producer as KafkaProducer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.producer.tracing_interceptor import TracingInterceptor
from tests.support.klamm_process import KlammProcess
from tests.support.waiting import patience

PRODUCE = "/klamm.v1.Broker/Produce"


class Span(NamedTuple):
    service: str
    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """A collector that keeps every span."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._news = threading.Condition()
        self._threads = futures.ThreadPoolExecutor(2)
        self._server = grpc.server(self._threads)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request, context):
        with self._news:
            for resource in request.resource_spans:
                (service,) = (
                    attribute.value.string_value
                    for attribute in resource.resource.attributes
                    if attribute.key == "service.name"
                )
                self.spans += [
                    Span(service, span.name, span.trace_id, span.span_id, span.parent_span_id)
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]
            self._news.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def wait_for(self, *chain: tuple[str, str]) -> list[Span]:
        """Waits for a chain of spans with these services and names.

        Each span is the parent of the next, the first has no parent.
        """
        with self._news:
            spans = self._news.wait_for(lambda: self._chain(chain, b""), patience())
        assert spans, f"no spans {chain}; there are {sorted({span[:2] for span in self.spans})}"
        return spans

    def _chain(self, chain: Sequence[tuple[str, str]], parent_id: bytes) -> list[Span]:
        for span in self.spans:
            if span[:2] == chain[0] and span.parent_id == parent_id:
                rest = self._chain(chain[1:], span.span_id) if chain[1:] else []
                if len(rest) == len(chain) - 1:
                    return [span, *rest]
        return []

    def stop(self) -> None:
        self._server.stop(None).wait()
        self._threads.shutdown()


@pytest.fixture(scope="module")
def collector():
    running = Collector()
    provider = TracerProvider(resource=Resource.create({"service.name": "application"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(running.endpoint, insecure=True)))
    trace.set_tracer_provider(provider)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def cluster(collector, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        running = KlammProcess(tmp_path_factory.mktemp("traced"), {"tracing.enable": "true"})
        running.start()
    with Admin(bootstrap_servers=running.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 1)])
    yield running
    running.stop()


def test_the_brokers_spans_are_in_the_trace_of_the_clients_call(cluster, collector):
    with Producer(bootstrap_servers=cluster.bootstrap, tracing_enable=True) as producer:
        producer.send("t", b"value")
    spans = collector.wait_for(("application", PRODUCE), ("klamm", PRODUCE), ("klamm", "append"))
    assert len({span.trace_id for span in spans}) == 1


def test_the_first_produce_of_a_transaction_has_spans_at_the_coordinator(cluster, collector):
    with Producer(bootstrap_servers=cluster.bootstrap, tracing_enable=True, transactional_id="traced") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"value")
    added = "/klamm.v1.Coordinator/AddPartitionsToTxn"
    collector.wait_for(("application", PRODUCE), ("klamm", PRODUCE), ("klamm", added))


def test_a_produce_of_a_kafka_client_is_a_trace_of_its_own(cluster, collector):
    producer = KafkaProducer({"bootstrap.servers": cluster.kafka_bootstrap})
    producer.produce("t", b"value")
    assert producer.flush(patience()) == 0
    collector.wait_for(("klamm", "Produce"), ("klamm", "append"))


def test_a_record_carries_the_trace_context_of_its_sender_in_a_header(cluster):
    settings = {"bootstrap_servers": cluster.bootstrap, "interceptor_classes": [TracingInterceptor()]}
    with Producer(**settings) as producer, trace.get_tracer("test").start_as_current_span("sends") as span:
        sent = producer.send("t", b"value", headers=[("mine", b"1")]).result(patience())
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), sent.offset)
        ((record,),) = consumer.poll(int(patience() * 1_000)).values()
    context = span.get_span_context()
    (mine, (name, value)) = record.headers
    assert (mine, name) == (("mine", b"1"), "traceparent")
    assert value.split(b"-")[1:3] == [f"{context.trace_id:032x}".encode(), f"{context.span_id:016x}".encode()]


def test_no_heartbeat_is_a_span(cluster, collector):
    assert not [span for span in collector.spans if "eartbeat" in span.name]
