"""The logins at the listeners of a server: made from its settings and from the users in its metadata.

Each protocol of a server has one, and uses it for each connection. The server passes every metadata image to it. Before
the first image, no user can log in. For all listeners together, at most two passwords are checked at a time."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.security.sasl.scram_keys import ScramMechanism
from klamm_server.config.sasl_settings import OAUTHBEARER, PLAIN, ListenerSaslSettings
from klamm_server.config.server_config import ServiceConfig
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import SecurityProtocol
from klamm_server.runtime.clock import Clock
from klamm_server.security.auditor import Auditor
from klamm_server.security.logins.checks import Checks
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.failed_logins import FailedLogins
from klamm_server.security.sasl.known_passwords import KnownPasswords
from klamm_server.security.sasl.plain_server import PlainServer
from klamm_server.security.sasl.proven_sessions import ProvenSessions
from klamm_server.security.sasl.sasl_authenticator import SaslAuthenticator
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import SaslServer, Verification

if TYPE_CHECKING:
    from klamm_server.security.logins.tokens import Tokens

_NONCE_BYTES = 24


class Users:
    """The users of the newest metadata, and the state of their logins. The listeners of a server share it."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.clock = clock
        self.rng = rng
        """The source of nonces, keys and session tokens. A server's is `random.SystemRandom`."""
        self.passwords = Checks("password")
        self.known = KnownPasswords(rng.randbytes(32))
        self.failures = FailedLogins()
        self.sessions = ProvenSessions()
        self.store = CredentialStore.of(MetadataImage.empty())
        self.are_known = False
        """True from the first image on. Before that, no user can log in, and no client may be told that it is
        unknown."""

    def on_image(self, image: MetadataImage) -> None:
        """Uses the users of a newer image (`Logins.on_image`)."""
        self.store = CredentialStore.of(image, self.store)
        self.sessions.on_credentials(image.scram_credentials)
        self.are_known = True


class ListenerLogins:
    """The logins at one listener."""

    def __init__(
        self, listener: str, settings: ListenerSaslSettings, users: Users, auditor: Auditor | None = None
    ) -> None:
        self.listener = listener
        self.auditor = auditor
        self.settings = settings
        self.users = users
        self.tokens: Tokens | None = None
        """The checks of tokens, or None if OAUTHBEARER is not enabled."""
        self._servers: Mapping[str, Callable[[], SaslServer]] = {
            name: self._server_of(name) for name in settings.sasl_enabled_mechanisms
        }

    def new_authenticator(self) -> SaslAuthenticator:
        """Makes the login of one connection."""
        return SaslAuthenticator(self._servers, max_reauth_ms=self.settings.max_reauth_ms)

    async def check(self, mechanism: str, verification: Verification[Any]) -> Any:
        """Returns the result of the check that a login with that mechanism needs. Raises ChecksBusyError."""
        if mechanism == OAUTHBEARER and self.tokens is not None:
            return await self.tokens.check(verification)
        return await self.users.passwords.run(verification.check)

    def _server_of(self, name: str) -> Callable[[], SaslServer]:
        if name == OAUTHBEARER:
            # Import here, because few listeners need it, and PyJWT and cryptography load slowly.
            from klamm_server.security.logins.tokens import Tokens

            self.tokens = Tokens(self.settings, self.users.clock)
            return self.tokens.server
        if name == PLAIN:
            return self._plain_server
        mechanism = ScramMechanism.of_name(name)
        assert mechanism is not None, name
        return partial(self._scram_server, mechanism)

    def _plain_server(self) -> SaslServer:
        return PlainServer(self.users.store, self.users.known, self.users.clock.monotonic_ms())

    def _scram_server(self, mechanism: ScramMechanism) -> SaslServer:
        nonce = base64.urlsafe_b64encode(self.users.rng.randbytes(_NONCE_BYTES)).decode()
        return ScramServer(mechanism, self.users.store, nonce=nonce)


class Logins:
    """The logins at all listeners of one protocol. Call `on_image` with each image, run `run` until it is cancelled,
    then call `close`. `settings` are by listener.

    Raises ConfigError if the keys of tokens should be in a file that does not exist."""

    def __init__(
        self,
        settings: Mapping[str, ListenerSaslSettings],
        clock: Clock,
        rng: random.Random,
        auditor: Auditor | None = None,
    ) -> None:
        self._users = Users(clock, rng)
        self._by_listener = {
            name: ListenerLogins(name, setting, self._users, auditor) for name, setting in settings.items()
        }

    @classmethod
    def of(
        cls,
        config: ServiceConfig,
        protocol: SecurityProtocol,
        clock: Clock,
        rng: random.Random,
        auditor: Auditor | None = None,
    ) -> Logins:
        """Returns the logins at the listeners of one protocol, of a server with that config. `auditor` records them."""
        listeners = (listener for listener in config.resolved_listeners().of(protocol) if listener.security.wants_sasl)
        return cls({listener.name: config.sasl_settings(listener.name) for listener in listeners}, clock, rng, auditor)

    @property
    def are_wanted(self) -> bool:
        """True if clients log in at any listener."""
        return bool(self._by_listener)

    def at(self, listener: str) -> ListenerLogins | None:
        """Returns the logins of a listener, or None if clients do not log in there."""
        return self._by_listener.get(listener)

    def on_image(self, image: MetadataImage) -> None:
        """Uses the users of the image from now on. Ends sessions whose credential it lacks."""
        self._users.on_image(image)

    async def run(self) -> None:
        """Keeps the keys of tokens up to date until it is cancelled."""
        await asyncio.gather(*(tokens.run() for tokens in self._tokens()))

    def close(self) -> None:
        """Ends the threads of the checks."""
        self._users.passwords.close()
        for tokens in self._tokens():
            tokens.close()

    def _tokens(self) -> list[Tokens]:
        return [logins.tokens for logins in self._by_listener.values() if logins.tokens is not None]
