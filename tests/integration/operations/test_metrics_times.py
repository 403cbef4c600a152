"""Tests that the metrics endpoint closes a connection whose client does not ask or does not read in time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from klamm_server.metrics import metrics_server
from klamm_server.metrics.metrics_server import MetricsServer
from tests.support.waiting import patience, wait_until

HOST = "127.0.0.1"


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer(HOST, 0)
    yield made
    made.close()


def connect(server: MetricsServer, first: bytes) -> socket.socket:
    connection = socket.create_connection((HOST, server.port), timeout=patience())
    connection.sendall(first)
    return connection


def is_ended(connection: socket.socket) -> bool:
    """Returns True after the server has ended the connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("first", [b"", b"GE", b"GET /metrics HTTP/1.1\r\nHost:"])
def test_a_metrics_connection_without_a_whole_request_is_closed(
    first: bytes, monkeypatch: pytest.MonkeyPatch, server: MetricsServer
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 0.05)
    with connect(server, first) as connection:
        assert is_ended(connection)


def test_a_metrics_connection_that_does_not_read_the_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch, server: MetricsServer
) -> None:
    asked = threading.Event()

    def answer(_: object, start: Callable[..., object]) -> list[bytes]:
        start("200 OK", [])
        asked.set()
        # The answer is larger than the buffers of the socket.
        return [b"x" * 50_000_000]

    monkeypatch.setattr(metrics_server, "ANSWER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(server, "_app", answer)
    with connect(server, b"GET /metrics HTTP/1.1\r\n\r\n"):
        assert asked.wait(patience())
        wait_until(lambda: not server._connections)
