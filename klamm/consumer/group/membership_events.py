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
    """The user has called poll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """A deadline may have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """OffsetCommit returned an error code about this membership."""

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
    """The caller looks the coordinator up again before the next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakePoll:
    """The next poll has work to do. A waiting poll continues now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The next poll raises this error."""

    error: Exception
