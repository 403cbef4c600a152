"""Tokens of OAUTHBEARER at one listener: checked in threads, by keys that are read again while the server runs.

A token whose key is not there waits for the keys to be read, if that is allowed just then (`KeyRefresh`). Loaded only
where OAUTHBEARER is enabled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from klamm.errors import ConfigError, KlammError
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.runtime.clock import Clock
from klamm_server.security.logins.checks import Checks
from klamm_server.security.logins.jwks import JwksError, is_file, read_jwks
from klamm_server.security.sasl.key_refresh import KeyRefresh
from klamm_server.security.sasl.oauthbearer_server import OAuthBearerServer
from klamm_server.security.sasl.server import Verification
from klamm_server.security.sasl.token_rules import KeySet, TokenRules, UnknownKeyError, ValidToken

log = logging.getLogger(__name__)


class Tokens:
    """`run` until it is cancelled, then `close`. Raises ConfigError for a file that has no keys; keys at other
    addresses may come later."""

    def __init__(
        self, settings: ListenerSaslSettings, clock: Clock, *, read: Callable[[str], bytes] = read_jwks
    ) -> None:
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        assert url is not None, "the settings are checked"
        self._url = url
        self._clock = clock
        self._read = read
        self._rules = _rules_of(settings)
        self._refresh = KeyRefresh(
            refresh_ms=settings.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            retry_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            retry_max_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        )
        self._checks = Checks("token")
        self._reading: asyncio.Task[None] | None = None
        self._keys: KeySet | None = None
        if is_file(url):
            self._take(self._read_keys())

    def server(self) -> OAuthBearerServer:
        """Makes the server's side of one login."""
        return OAuthBearerServer(self._validate)

    async def check(self, verification: Verification[Any]) -> Any:
        """Returns the result of the check. If the token's key is unknown, reads newer keys and checks again. Raises
        ChecksBusyError."""
        before = self._keys
        found = await self._checks.run(verification.check)
        if isinstance(found, UnknownKeyError) and await self._has_others_than(before):
            found = await self._checks.run(verification.check)
        return found

    async def run(self) -> None:
        """Reads the keys whenever that is due, for ever."""
        while True:
            due_ms = self._refresh.due_ms
            wait_ms = 0 if due_ms is None else due_ms - self._clock.monotonic_ms()
            if wait_ms <= 0:
                await self._read_once()
            else:
                await asyncio.sleep(wait_ms / 1000)

    def close(self) -> None:
        """Ends the threads."""
        if self._reading is not None:
            self._reading.cancel()
        self._checks.close()

    def _validate(self, token: str) -> ValidToken:
        keys = self._keys
        if keys is None:
            raise UnknownKeyError("the keys of tokens are not loaded yet")
        return self._rules.validate(token, keys, self._clock.wall_ms() / 1000)

    async def _has_others_than(self, before: KeySet | None) -> bool:
        """Returns whether there are newer keys than `before`. Reads them if necessary and allowed at this time."""
        if self._keys is before and (
            self._reading is not None or self._refresh.on_unknown_key(self._clock.monotonic_ms())
        ):
            await self._read_once()
        return self._keys is not before

    async def _read_once(self) -> None:
        """Reads the keys, once for all logins that ask for them at the same time."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_anew(), name="read-jwks")
        await asyncio.shield(self._reading)

    async def _read_anew(self) -> None:
        try:
            keys = await asyncio.to_thread(self._read_keys)
        except KlammError as error:
            self._refresh.failed(self._clock.monotonic_ms())
            log.warning("could not read the keys of tokens: %s", error)
        else:
            self._take(keys)
        finally:
            self._reading = None

    def _read_keys(self) -> KeySet:
        """Raises ConfigError or JwksError."""
        try:
            return KeySet(self._read(self._url))
        except JwksError as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None
        except ConfigError as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error} at {self._url}") from None

    def _take(self, keys: KeySet) -> None:
        self._keys = keys
        self._refresh.loaded(self._clock.monotonic_ms())


def _rules_of(settings: ListenerSaslSettings) -> TokenRules:
    audience = settings.sasl_oauthbearer_expected_audience
    return TokenRules(
        expected_issuer=settings.sasl_oauthbearer_expected_issuer,
        expected_audience=frozenset(audience) if audience else None,
        clock_skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
        sub_claim_name=settings.sasl_oauthbearer_sub_claim_name,
        scope_claim_name=settings.sasl_oauthbearer_scope_claim_name,
    )
