"""Reads the keys that tokens are signed by (JWKS, RFC 7517) from a file or over HTTPS. Blocks."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

from klamm.errors import KlammError

MAX_BYTES: Final = 256 * 1024
TIMEOUT_S: Final = 5.0
_CHUNK_BYTES: Final = 16 * 1024


class JwksError(KlammError):
    """The keys could not be read. The text names the URL and says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because only the configured address may be read."""

    def redirect_request(self, *_: Any) -> None:
        return None


def is_file(url: str) -> bool:
    """Returns whether the keys are in a file, which must exist when the server starts."""
    return urlsplit(url).scheme == "file"


def read_jwks(url: str) -> bytes:
    """Returns the document at an https:// or file:// URL. Raises JwksError."""
    try:
        if is_file(url):
            with Path(unquote(urlsplit(url).path)).open("rb") as file:
                return _read(url, file)
        # Read the CAs each time, because they may have changed.
        over_tls = urllib.request.HTTPSHandler(context=ssl.create_default_context())
        with urllib.request.build_opener(_NoRedirect, over_tls).open(url, timeout=TIMEOUT_S) as response:
            return _read(url, response)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise JwksError(f"cannot read the keys of tokens at {url}: {_reason(error)}") from None


def _read(url: str, source: IO[bytes]) -> bytes:
    deadline_s = time.monotonic() + TIMEOUT_S
    data = bytearray()
    while chunk := source.read(_CHUNK_BYTES):
        data += chunk
        if len(data) > MAX_BYTES:
            raise JwksError(f"the keys of tokens at {url} have more than {MAX_BYTES} bytes")
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the answer took longer than {TIMEOUT_S:.0f} s")
    return bytes(data)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"status {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__
