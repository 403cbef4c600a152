"""Requests OAUTHBEARER tokens from a server, with a client's credentials (RFC 6749, section 4.4; KIP-768).

In Kafka, a URL in a configuration could make servers read files and call hosts of their own network (CVE-2025-27817).
So only URLs that the environment names are called. The size of the answer is bounded, and redirects are not followed.
Errors show neither the secret nor the answer."""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final, NamedTuple

from klamm.errors import ConfigError, KlammError
from klamm.secret import Secret

ALLOWED_URLS: Final = "KLAMM_OAUTHBEARER_ALLOWED_URLS"
ANSWER_BYTES_MAX: Final = 65_536
_NAME: Final = "sasl.oauthbearer.token.endpoint.url"


class TokenEndpointError(KlammError):
    """The server gave out no token. With `is_passing`, the next attempt may succeed."""

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class GivenToken(NamedTuple):
    """A token that the server gave out."""

    token: Secret
    lifetime_s: float
    """The token's lifetime from now in seconds, or 0 if the answer has none."""


def check_allowed(url: str) -> None:
    """Raises ConfigError for a URL that the environment does not name, or that is not http or https."""
    allowed = [allowed_url.strip() for allowed_url in os.environ.get(ALLOWED_URLS, "").split(",")]
    if url not in allowed:
        raise ConfigError(f"{_NAME}={url} is not asked for tokens: {ALLOWED_URLS} in the environment does not name it")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"{_NAME}={url} is not valid, expected https://")


def fetch_token(url: str, client_id: str, client_secret: Secret, scope: str, *, timeout_s: float) -> GivenToken:
    """Requests a token and waits for the answer. Raises TokenEndpointError."""
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    credentials = base64.b64encode(f"{client_id}:{client_secret.reveal()}".encode()).decode()
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
    )
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            body = answer.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise TokenEndpointError(f"{url}: status {error.code}", is_passing=error.code >= 500) from None
    except OSError as error:
        raise TokenEndpointError(f"{url}: {getattr(error, 'reason', error)}", is_passing=True) from None
    return _parse(url, body)


def _parse(url: str, body: bytes) -> GivenToken:
    try:
        answer: Any = json.loads(body) if len(body) <= ANSWER_BYTES_MAX else None
        token = answer["access_token"]
        lifetime_s = float(answer.get("expires_in", 0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        token, lifetime_s = None, 0.0
    if not isinstance(token, str) or not token:
        raise TokenEndpointError(f"{url}: the answer has no access_token", is_passing=False)
    return GivenToken(Secret(token), lifetime_s)


class _NotFollowed(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because only the configured URL is allowed."""

    def redirect_request(self, *_: Any) -> None:
        return None


# Use no proxy from the environment. With http, it would see the client's secret.
_OPENER: Final = urllib.request.build_opener(_NotFollowed, urllib.request.ProxyHandler({}))
