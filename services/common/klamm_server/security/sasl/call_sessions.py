"""The logins and sessions of callers over gRPC, where a server sees calls and no connections.

A call's metadata `authorization` identifies the caller: `Klamm TOKEN`, which is valid only on the connection that
logged in, or `Bearer JWT`, which is valid for any caller that has it. gRPC does not report that a connection has
closed, so the numbers of logins and sessions are bounded. A caller whose session was dropped logs in again. Where a
bound is reached, the one with the most of them loses one: the connection, the address, or the user. So no
client can keep others out. Pure; times are milliseconds of one clock for logins, and of the wall clock for sessions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

LOGINS_MAX: Final = 1_024
"""The maximum number of logins under way at a listener."""
LOGINS_MAX_BY_CONNECTION: Final = 2
"""The maximum number of logins under way of one connection. A client that logs in again may have two."""
LOGIN_MS: Final = 30_000
"""The time limit of a login."""
SESSIONS_MAX: Final = 10_000
"""The maximum number of sessions at a listener. Beyond it, a session of the user with the most sessions ends."""
SESSIONS_MAX_BY_CONNECTION: Final = 4
"""The maximum number of sessions of one connection. A client that logs in again may still have calls of its earlier
sessions under way. Beyond it, the connection's oldest session ends."""

LoginT = TypeVar("LoginT")


@dataclass(slots=True)
class _UnderWay(Generic[LoginT]):
    login: LoginT
    peer: str
    address: str
    ends_ms: int
    is_taken: bool = False


class LoginsUnderWay(Generic[LoginT]):
    """Logins that have begun. Each is known by the id that its handshake gave, at the connection of that handshake."""

    def __init__(self, on_late: Callable[[LoginT], None] = lambda _: None) -> None:
        """`on_late` is called with a login that has timed out while it waited for a message."""
        self._on_late = on_late
        self._by_id: dict[bytes, _UnderWay[LoginT]] = {}
        """The logins, the oldest first. All have the same time limit."""
        self._of_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """Returns the number of logins."""
        return len(self._by_id)

    def begin(self, handshake_id: bytes, login: LoginT, *, peer: str, address: str, now_ms: int) -> None:
        """Adds a login. If there are too many already, ends the oldest login of the connection, or of the address with
        the most logins."""
        self.end_late(now_ms)
        own = [known_id for known_id, under_way in self._by_id.items() if under_way.peer == peer]
        if len(own) >= LOGINS_MAX_BY_CONNECTION:
            self.end(own[0])
        elif len(self._by_id) >= LOGINS_MAX:
            [(fullest, _)] = self._of_address.most_common(1)
            self.end(next(known_id for known_id, under_way in self._by_id.items() if under_way.address == fullest))
        self._by_id[handshake_id] = _UnderWay(login, peer, address, now_ms + LOGIN_MS)
        self._of_address[address] += 1

    def take(self, handshake_id: bytes, peer: str, now_ms: int) -> LoginT | None:
        """Returns the login for one message. Afterwards the login continues (`put_back`) or ends. Returns None if the
        connection has no login of that id, or if another message of it is being checked."""
        self.end_late(now_ms)
        found = self._by_id.get(handshake_id)
        if found is None or found.is_taken or found.peer != peer:
            return None
        found.is_taken = True
        return found.login

    def put_back(self, handshake_id: bytes) -> None:
        """Allows the login's next message. The login may have timed out since `take`."""
        if handshake_id in self._by_id:
            self._by_id[handshake_id].is_taken = False

    def end(self, handshake_id: bytes) -> None:
        """Ends a login. A second call has no effect."""
        found = self._by_id.pop(handshake_id, None)
        if found is None:
            return
        self._of_address[found.address] -= 1
        if not self._of_address[found.address]:
            del self._of_address[found.address]

    def end_late(self, now_ms: int) -> None:
        """Ends the logins whose time is over."""
        while self._by_id:
            oldest, late = next(iter(self._by_id.items()))
            if late.ends_ms > now_ms:
                return
            self.end(oldest)
            if not late.is_taken:
                self._on_late(late.login)


class CallSession:
    """The session of a caller that has logged in, until `end`."""

    __slots__ = ("_on_end", "expires_ms", "is_over", "peer", "user")

    def __init__(self, user: str = "", *, peer: str | None, expires_ms: int | None = None) -> None:
        """Makes a session. `peer` is the only connection for which it is valid, or None for any connection."""
        self.user = user
        self.expires_ms = expires_ms
        self.is_over = False
        self.peer = peer
        self._on_end: dict[Callable[[], None], None] = {}

    def is_good(self, peer: str, now_ms: int) -> bool:
        """Returns whether a call of that connection may belong to this session now."""
        return not self.is_over and self.peer in (None, peer) and (self.expires_ms is None or now_ms < self.expires_ms)

    def end(self) -> None:
        """Ends the session, so that no call belongs to it. A second call has no effect."""
        self.is_over = True
        on_end, self._on_end = self._on_end, {}
        for function in on_end:
            function()

    def on_end(self, function: Callable[[], None]) -> None:
        """Calls `function` when the session ends, unless `forget` was called before."""
        self._on_end[function] = None

    def forget(self, function: Callable[[], None]) -> None:
        """Removes a function that was passed to `on_end`."""
        self._on_end.pop(function, None)


class CallSessions:
    """The sessions by a digest of their `authorization`, so that the time of a look-up reveals nothing about other
    tokens."""

    def __init__(self, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._by_digest: dict[bytes, CallSession] = {}
        """The sessions by digest, the one that was unused for the longest time first."""
        self._of_user: Counter[str] = Counter()
        self._of_peer: dict[str | None, list[bytes]] = {}
        """The digests of each connection's sessions, the oldest first."""

    def __len__(self) -> int:
        """Returns the number of sessions, including some that may have ended."""
        return len(self._by_digest)

    def begin(self, authorization: str, session: CallSession) -> None:
        """Adds a session. From now on, calls with this `authorization` belong to it. Beyond a maximum, the session that
        was unused for the longest time ends: of the connection, or of the user with the most sessions."""
        digest = _digest(authorization)
        self._end(digest)
        of_peer = self._of_peer.setdefault(session.peer, [])
        if session.peer is not None and len(of_peer) >= SESSIONS_MAX_BY_CONNECTION:
            self._end(of_peer[0])
            of_peer = self._of_peer.setdefault(session.peer, [])
        of_peer.append(digest)
        self._by_digest[digest] = session
        self._of_user[session.user] += 1
        if len(self._by_digest) > self._sessions_max:
            [(user, _)] = self._of_user.most_common(1)
            self._end(next(known for known, other in self._by_digest.items() if other.user == user))

    def _end(self, digest: bytes) -> None:
        session = self._by_digest.pop(digest, None)
        if session is None:
            return
        session.end()
        self._of_user[session.user] -= 1
        if not self._of_user[session.user]:
            del self._of_user[session.user]
        of_peer = self._of_peer[session.peer]
        of_peer.remove(digest)
        if not of_peer:
            del self._of_peer[session.peer]

    def find(self, authorization: str) -> CallSession | None:
        """Returns the session, or None. The caller must check with `is_good` whether it is valid for a call."""
        digest = _digest(authorization)
        session = self._by_digest.pop(digest, None)
        if session is not None:
            self._by_digest[digest] = session
        return session

    def sweep(self, now_ms: int) -> None:
        """Ends expired sessions, and removes all that have ended."""
        for digest, session in list(self._by_digest.items()):
            if session.is_over or (session.expires_ms is not None and now_ms >= session.expires_ms):
                self._end(digest)


def _digest(authorization: str) -> bytes:
    return hashlib.sha256(authorization.encode(errors="surrogatepass")).digest()
