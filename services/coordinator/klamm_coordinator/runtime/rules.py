"""What a kind of shard has to be, so that `ShardRuntime` can run it: rules, and the state that they keep.

What is promised changes by `replay` of acknowledged records alone, live (`end_write`) and at start-up (`replayer`).
Everything else follows events, is built again at `start`, and is lost with the process.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from klamm.errors import ErrorCode
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.replayer import Replayer
from klamm_coordinator.runtime.timers import Timers
from klamm_coordinator.runtime.write_queue import PendingWrite


class Rules(Protocol):
    """One shard's. A turn is a `Turn` of the kind's settings and records."""

    @property
    def write_timeout_ms(self) -> int:
        """How long a write may take before its requesters get an error with which they retry."""

    @property
    def waiting_count(self) -> int:
        """Requests that wait for a write before they want one themselves; they count as writes where too many wait."""

    # Loading

    def replayer(self) -> Replayer:
        """Returns the object that loads the shard from its log."""

    def summary(self) -> str:
        """What the shard has, for the log."""

    def start(self, turn: Any) -> None:
        """Everything is loaded."""

    # Events

    def passes_when_full(self, request: Any) -> bool:
        """Whether a request is taken although too many writes wait for the log."""

    def handle(self, event: Any, turn: Any) -> None:
        """Handles a request, or another event of this kind of shard."""

    def on_timer(self, timer: Any, turn: Any) -> None:
        """A deadline that the rules set is due."""

    # Writes

    def begin_write(self, write: LogWrite[Any]) -> None:
        """The write is under way from now on."""

    def end_write(self, write: LogWrite[Any], *, is_appended: bool) -> None:
        """Notes that a write has ended. If it was appended, its records are now part of the shard's durable state."""

    def refused(self, reply: Any, broker_error: ErrorCode) -> Any:
        """Returns the answer instead of `reply`, because the requester's write failed or takes too long."""

    def follow(self, then: Any, broker_error: ErrorCode, turn: Any) -> None:
        """Does what was to follow a write: without an error it was appended, else it failed or takes too long."""

    def resume(self, pending: PendingWrite[Any], broker_error: ErrorCode, turn: Any) -> None:
        """Continues the requests that waited for a write, after it was decided and answered."""

    def check_invariants(self, timers: Timers[Any], writes: Collection[LogWrite[Any]]) -> None:
        """Asserts what the rules promise of their state; `writes` are those under way."""
