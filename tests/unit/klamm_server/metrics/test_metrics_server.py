"""Tests the metrics endpoint against hostile clients, and with a port that is in use."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
from collections.abc import Iterator

import grpc
import pytest

from klamm.errors import KlammError
from klamm_server.metrics.instruments import Readings, counter
from klamm_server.metrics.metrics_server import CONNECTIONS_MAX, MetricsServer

HOST = "127.0.0.1"
DEADLINE_S = 60


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer(HOST, 0)
    yield made
    made.close()


def ask(server: MetricsServer, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def connect(server: MetricsServer, first: bytes = b"") -> socket.socket:
    connection = socket.create_connection((HOST, server.port), timeout=DEADLINE_S)
    connection.sendall(first)
    return connection


def is_ended(connection: socket.socket) -> bool:
    """Waits until the server ends the connection, by a close or a reset. Returns True."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_the_metrics_server_listens_only_at_its_host_and_refuses_a_port_in_use(server: MetricsServer) -> None:
    """A listener with the same port at another address may be in the same process."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=DEADLINE_S)
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            KlammError, match=rf"^metrics\.port={port}: cannot listen on {HOST}:{port}: Address already"
        ):
            MetricsServer(HOST, port)
        with pytest.raises(KlammError, match=rf"^metrics\.port={port}: cannot listen on :{port}: Address already"):
            MetricsServer("", port)


def test_the_metrics_are_served_in_the_format_that_prometheus_requests(server: MetricsServer) -> None:
    counter("klamm_metrics_server_test", "Of this test.").inc(3)
    status, headers, body = ask(server, "GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert headers["content-length"] == str(len(body))
    assert b"\nklamm_metrics_server_test_total 3.0\n" in body
    _, headers, body = ask(
        server, "GET", "/metrics?x=y", Accept="application/openmetrics-text;version=1.0.0", Accept_Encoding="gzip"
    )
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert gzip.decompress(body).endswith(b"# EOF\n")
    status, headers, body = ask(server, "HEAD", "/metrics")
    assert (status, body, int(headers["content-length"]) > 0) == (200, b"", True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/", 404), ("GET", "/favicon.ico", 404), ("POST", "/metrics", 405)],
)
def test_other_paths_and_methods_of_the_metrics_port_are_refused(
    server: MetricsServer, method: str, path: str, status: int
) -> None:
    found, _, body = ask(server, method, path)
    assert found == status
    assert b"klamm_" not in body


def test_an_endless_request_to_the_metrics_port_is_refused(server: MetricsServer) -> None:
    with connect(server, b"GET /metrics HTTP/1.1\r\n" + b"x" * 20_000) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 431 ")
        assert is_ended(connection)


def test_a_connection_to_the_metrics_port_without_http_is_closed(server: MetricsServer) -> None:
    with connect(server, b"\0" * 20) as connection:
        assert is_ended(connection)


def test_idle_connections_do_not_block_a_scrape(server: MetricsServer) -> None:
    """The server closes the connection that has waited longest. It needs one thread for any number of connections."""
    before = set(threading.enumerate())
    idle = [connect(server) for _ in range(3 * CONNECTIONS_MAX)]
    try:
        assert ask(server, "GET", "/metrics")[0] == 200
        assert set(threading.enumerate()) <= before
        assert len(server._connections) <= CONNECTIONS_MAX
        assert all(is_ended(one) for one in idle[:CONNECTIONS_MAX])
        idle[-1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert idle[-1].recv(4096).startswith(b"HTTP/1.1 200 ")
    finally:
        for one in idle:
            one.close()


def test_a_failing_reading_is_logged_and_the_next_scrape_works(server: MetricsServer, caplog) -> None:
    readings = Readings("klamm_metrics_server_test_readings", "Of this test.", ("a",))
    readings.set_function(lambda: [(("b",), 1 / 0)])
    try:
        assert ask(server, "GET", "/metrics")[0] == 500
        assert "could not render the metrics" in caplog.text
    finally:
        readings.set_function(list)
    assert ask(server, "GET", "/metrics")[0] == 200


def test_a_client_of_another_protocol_at_the_metrics_port_is_logged_once(server: MetricsServer, caplog) -> None:
    kafka = b"\0\0\0\x20\0\x12\0\3\0\0\0\1"
    for first in (kafka, kafka, b"\x16\x03\x01\x02\0\1\0", kafka):
        with connect(server, first) as connection:
            assert is_ended(connection)
    kafka_line, tls_line = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert kafka_line == (
        f"a Kafka client from 127.0.0.1 connected to the metrics port {server.port}: this is a metrics port of"
        " Klamm, for"
        " Prometheus (GET /metrics); clients dial the server's listeners"
    )
    assert tls_line.startswith("a TLS client from 127.0.0.1 connected")


def test_a_grpc_client_at_the_metrics_port_gets_an_error_message(server: MetricsServer, caplog) -> None:
    with grpc.insecure_channel(f"{HOST}:{server.port}") as channel:
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary("/klamm.v1.Server/DescribeServer")(b"", timeout=DEADLINE_S)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert refused.value.details().startswith("this is a metrics port of Klamm, for Prometheus")
    assert [record.getMessage()[:32] for record in caplog.records if record.levelname == "WARNING"] == [
        "a gRPC client from 127.0.0.1 con"
    ]
