"""The interface of a shard's rules, which `ShardRuntime` runs.

The durable state changes only by the replay of acknowledged records: live in `end_write`, and at start-up in
`replayer`. All other state follows events. The process loses it when it ends, and `start` builds it again.
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
    """The rules of one shard, with their state. Each `context` is an `EventContext` with the settings and records of
    this kind of shard."""

    @property
    def write_timeout_ms(self) -> int:
        """How long a write may take, in ms. After that, its requests get an error with which the clients retry."""

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for an earlier write. They also count against
        `coordinator.pending.writes.max`."""

    # Loading

    def replayer(self) -> Replayer:
        """Returns the object that loads the shard from its log."""

    def summary(self) -> str:
        """Returns a text for the program's log that says what the shard contains."""

    def start(self, context: Any) -> None:
        """Builds the state that is not stored, and sets timers, after all records were loaded."""

    def close(self) -> None:
        """Gives back what the shard shares with others, because the coordinator drops it. The rules get no further
        call."""

    # Events

    def passes_when_full(self, request: Any) -> bool:
        """Returns True if the request is accepted even while too many writes wait for the log."""

    def on_refused(self, request: Any, context: Any) -> None:
        """Notes a request that the shard refuses because too many writes wait for the log."""

    def handle(self, event: Any, context: Any) -> None:
        """Handles a request, or another event of this kind of shard."""

    def on_timer(self, timer: Any, context: Any) -> None:
        """Handles a timer that the rules set and that is now due."""

    # Writes

    def begin_write(self, write: LogWrite[Any]) -> None:
        """Notes that the write was handed to the log."""

    def end_write(self, write: LogWrite[Any], *, is_appended: bool) -> None:
        """Notes that a write has ended. If it was appended, its records are now part of the shard's durable state."""

    def refused(self, reply: Any, broker_error: ErrorCode) -> Any:
        """Returns the answer instead of `reply`, because the requester's write failed or takes too long."""

    def follow(self, then: Any, broker_error: ErrorCode, context: Any) -> None:
        """Carries out `then` after a write was appended. With an error, the write failed or takes too long."""

    def resume(self, pending: PendingWrite[Any], broker_error: ErrorCode, context: Any) -> None:
        """Continues the requests that waited for a write, after the write was decided and its own requests were
        answered."""

    def check_invariants(self, timers: Timers[Any], writes: Collection[LogWrite[Any]]) -> None:
        """Asserts the invariants of the rules. `writes` are the writes that the log has not decided yet."""
