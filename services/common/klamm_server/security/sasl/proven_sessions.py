"""Sessions by the credential with which they logged in.

If a user's credential is deleted or replaced, the user's sessions end at once; in Kafka they continue. Pure, except for
the calls that end sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klamm.ordered_set import OrderedSet
from klamm.security.sasl.scram_keys import ScramCredential
from klamm_server.metadata.image import CredentialKey

REASON: Final = "the user's credential was changed or deleted"


class ProvenSession:
    """One session; `end` is called at most once, with the reason."""

    __slots__ = ("credential", "end", "key")

    def __init__(self, key: CredentialKey, credential: ScramCredential, end: Callable[[str], None]) -> None:
        self.key = key
        self.credential = credential
        self.end = end


class ProvenSessions:
    """All sessions of a server that a credential can end.

    Invariant: a user without sessions takes no room."""

    def __init__(self) -> None:
        self._credentials: Mapping[CredentialKey, ScramCredential] = {}
        self._by_key: dict[CredentialKey, OrderedSet[ProvenSession]] = {}

    def __len__(self) -> int:
        """Returns the number of sessions."""
        return sum(map(len, self._by_key.values()))

    def begin(self, session: ProvenSession) -> bool:
        """Adds a session. Returns False if its credential was changed during the login, so that the session must not
        begin."""
        if self._credentials.get(session.key) != session.credential:
            return False
        self._by_key.setdefault(session.key, OrderedSet()).add(session)
        return True

    def forget(self, session: ProvenSession) -> None:
        """Removes a session that has ended. A second call has no effect."""
        sessions = self._by_key.get(session.key)
        if sessions is None:
            return
        sessions.discard(session)
        if not sessions:
            del self._by_key[session.key]

    def on_credentials(self, credentials: Mapping[CredentialKey, ScramCredential]) -> None:
        """Ends the sessions whose credential is not among these, which are all current credentials."""
        if credentials is self._credentials:
            return
        self._credentials = credentials
        ended = [
            session
            for key, sessions in self._by_key.items()
            for session in sessions
            if credentials.get(key) != session.credential
        ]
        for session in ended:
            self.forget(session)
            session.end(REASON)
