"""Tests the client of a token server over a real socket, and unexpected servers at its address."""

from __future__ import annotations

import base64
import contextlib
import http.server
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.token_endpoint import (
    ALLOWED_URLS,
    ANSWER_BYTES_MAX,
    GivenToken,
    TokenEndpointError,
    check_allowed,
    fetch_token,
)

CANARY = "canary-s3cret"
SHUTDOWN_CHECK_S = 0.001
"""How often the server of the test looks whether it is to end."""


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers each POST with the test's answer, and keeps the requests."""

    def __init__(self, status: int, body: bytes, location: str) -> None:
        self.status, self.body, self.location = status, body, location
        self.heard: list[tuple[str, dict[str, list[str]]]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.heard.append((self.headers["Authorization"], parse_qs(body)))
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        # The client may have closed the connection after it had read enough.
        with contextlib.suppress(OSError):
            self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Keeps the tests' output quiet."""


@contextlib.contextmanager
def endpoint(status: int, body: bytes, location: str = "") -> Iterator[Endpoint]:
    with Endpoint(status, body, location) as server:
        thread = threading.Thread(target=server.serve_forever, args=[SHUTDOWN_CHECK_S], daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def fetch(url: str, scope: str = "") -> GivenToken:
    return fetch_token(url, "id", Secret(CANARY), scope, timeout_s=30)


def test_client_credentials_are_exchanged_for_a_token() -> None:
    with endpoint(200, b'{"access_token": "t0ken", "expires_in": 300}') as server:
        assert fetch(server.url, "kafka") == GivenToken(Secret("t0ken"), 300.0)
        assert fetch(server.url).token == Secret("t0ken")
    basic = "Basic " + base64.b64encode(f"id:{CANARY}".encode()).decode()
    assert server.heard == [
        (basic, {"grant_type": ["client_credentials"], "scope": ["kafka"]}),
        (basic, {"grant_type": ["client_credentials"]}),
    ]


@pytest.mark.parametrize(
    ("status", "body", "told", "is_passing"),
    [
        (401, b"", "status 401", False),
        (503, b"", "status 503", True),
        (200, b"not JSON", "the answer has no access_token", False),
        (200, b"[]", "the answer has no access_token", False),
        (200, b'{"access_token": 5}', "the answer has no access_token", False),
        (200, b'{"access_token": "t0ken", "expires_in": "soon"}', "the answer has no access_token", False),
        (200, b'{"access_token": "%s"}' % (b"t" * ANSWER_BYTES_MAX), "the answer has no access_token", False),
    ],
)
def test_any_other_answer_is_an_error_without_the_answers_text(
    status: int, body: bytes, told: str, is_passing: bool
) -> None:
    with endpoint(status, body) as server, pytest.raises(TokenEndpointError) as failed:
        fetch(server.url)
    assert str(failed.value) == f"{server.url}: {told}"
    assert failed.value.is_passing is is_passing


def test_a_redirect_is_not_followed() -> None:
    with endpoint(200, b'{"access_token": "stolen"}') as other, endpoint(302, b"", other.url) as server:
        with pytest.raises(TokenEndpointError, match="status 302"):
            fetch(server.url)
        assert not other.heard


def test_a_refused_connection_is_a_retriable_error() -> None:
    with endpoint(200, b"") as server:
        url = server.url
    with pytest.raises(TokenEndpointError, match="Connection refused") as failed:
        fetch(url)
    assert failed.value.is_passing


def test_only_token_urls_allowed_by_the_environment_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://idp.example/token"
    monkeypatch.delenv(ALLOWED_URLS, raising=False)
    with pytest.raises(ConfigError, match=f"{ALLOWED_URLS} in the environment does not name it"):
        check_allowed(url)
    monkeypatch.setenv(ALLOWED_URLS, f"https://other.example, {url}")
    check_allowed(url)
    with pytest.raises(ConfigError):
        check_allowed(f"{url}/more")
    monkeypatch.setenv(ALLOWED_URLS, "file:///etc/passwd")
    with pytest.raises(ConfigError, match="expected https://"):
        check_allowed("file:///etc/passwd")
