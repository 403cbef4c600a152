"""Selects the login of a client from its settings."""

from __future__ import annotations

from klamm.config import ClientConfig
from klamm.rpc.login import SaslSource
from klamm.security.client_settings import PasswordLogin


def client_sasl(config: ClientConfig) -> SaslSource | None:
    """Returns the source of a client's logins, or None if it does not log in. Raises ConfigError."""
    if not config.logs_in:
        return None
    from klamm.rpc.sasl_sources import PasswordSource, TokenSource

    login = config.login()
    if isinstance(login, PasswordLogin):
        assert config.sasl_mechanism is not None, "a client that logs in has a mechanism"
        return PasswordSource(config.sasl_mechanism, login)
    return TokenSource(login, timeout_s=config.sasl_login_connect_timeout_ms / 1000)
