"""What happens to a group member of either protocol (events), and what is to be done about it (effects).

Each protocol has more of its own; its membership module says when each comes and goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.consumer.group.identity import Identity
from klamm.errors import ErrorCode

# --- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The user polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """A deadline may have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """OffsetCommit answered a code that says something about this membership."""

    identity: Identity
    code: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequested:
    """The user unsubscribes or closes. A static member leaves only when `static` says so."""

    reason: str
    static: bool = False


# --- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetCoordinator:
    """Look it up again before the next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakePoll:
    """The next poll has something to do; one that waits should go on now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Raise this from the next poll."""

    error: Exception
