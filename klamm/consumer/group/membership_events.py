"""The events and effects of a group member that both group protocols share.

Each protocol has more of its own. Its membership module says when each event arrives and when each effect is returned.
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
    """The user unsubscribes, or closes the consumer. A static member leaves only if `static` is set."""

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
