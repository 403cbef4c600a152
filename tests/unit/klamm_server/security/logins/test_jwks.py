"""Tests keys in files and at a test's own HTTPS server."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from klamm_server.security.logins import jwks
from klamm_server.security.logins.jwks import MAX_BYTES, JwksError, read_jwks
from tests.support import certificates

Answer = Callable[[BaseHTTPRequestHandler], None]
DOCUMENT = b'{"keys":[]}'


def said(status: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, text in headers.items():
            request.send_header(name, text)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


class Issuer:
    """An HTTPS server with one answer per path. `asked` has the paths in order."""

    def __init__(self, directory: Path) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.answers[self.path](self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("localhost", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        stores = certificates.write_stores(directory, certificates.server())
        context.load_cert_chain(stores.keystore)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    def url(self, path: str) -> str:
        return f"https://localhost:{self.server.server_address[1]}{path}"


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    made = Issuer(tmp_path)
    trusted = tmp_path / "ca.pem"
    trusted.write_text(certificates.ca().signed.certificate_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "the keys.json"
    path.write_bytes(DOCUMENT)
    assert read_jwks(path.as_uri()) == DOCUMENT
    with pytest.raises(JwksError, match="No such file"):
        read_jwks((tmp_path / "none").as_uri())


def test_an_endless_key_file_is_refused() -> None:
    with pytest.raises(JwksError, match=f"more than {MAX_BYTES} bytes"):
        read_jwks("file:///dev/zero")


def test_keys_are_read_over_https(issuer: Issuer) -> None:
    issuer.answers["/keys"] = said(200, DOCUMENT)
    assert read_jwks(issuer.url("/keys")) == DOCUMENT


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_of_the_jwks_endpoint_is_not_followed(issuer: Issuer, status: int) -> None:
    issuer.answers = {"/keys": said(status, Location=issuer.url("/other")), "/other": said(200, DOCUMENT)}
    with pytest.raises(JwksError, match=f"status {status}"):
        read_jwks(issuer.url("/keys"))
    assert issuer.asked == ["/keys"]


def test_an_invalid_response_of_the_jwks_endpoint_is_an_error(issuer: Issuer) -> None:
    issuer.answers = {
        "/broken": said(500),
        "/large": said(200, b" " * (MAX_BYTES + 1)),
        "/nonsense": lambda request: request.wfile.write(b"nonsense\r\n\r\n") and None,
    }
    for path, why in (("/broken", "status 500"), ("/large", "more than"), ("/nonsense", "cannot read the keys")):
        with pytest.raises(JwksError, match=why):
            read_jwks(issuer.url(path))


def test_a_response_of_the_jwks_endpoint_that_takes_too_long_is_an_error(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.flush()
        gone.wait(60)

    issuer.answers["/slow"] = answer
    monkeypatch.setattr(jwks, "TIMEOUT_S", 0.2)
    try:
        with pytest.raises(JwksError, match="cannot read the keys"):
            read_jwks(issuer.url("/slow"))
    finally:
        gone.set()


def test_a_jwks_server_with_an_untrusted_certificate_is_not_asked(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_text(certificates.ca("Other CA").signed.certificate_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with pytest.raises(JwksError, match="CERTIFICATE_VERIFY_FAILED"):
        read_jwks(issuer.url("/keys"))
    assert not issuer.asked
