"""The requests to change the voters that wait for their entry to commit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_controller.raft.effects import Appended, Rejected
from klamm_controller.raft.messages import LogEntry


@dataclass(slots=True, kw_only=True)
class _Waiting:
    done: asyncio.Future[None]
    entry: tuple[int, int] | None = None
    """The (index, term) of the entry with the new voter set, or None until it is appended."""


class VoterRequests:
    """The waiting requests, by request id.

    A request succeeds when its entry commits. It fails with NOT_CONTROLLER if another leader's entry replaces its
    entry, and then had no effect. It fails with REQUEST_TIMED_OUT if the outcome is unknown."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def add(self, request_id: int) -> asyncio.Future[None]:
        """Adds a request. Returns the future of its outcome."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = _Waiting(done=done)
        return done

    def discard(self, request_id: int) -> None:
        """Drops a request for which no caller waits any more."""
        self._waiting.pop(request_id, None)

    def on_reply(self, reply: Appended | Rejected) -> None:
        """Handles a reply of the Raft node. Ignores replies to requests that are not in this object."""
        waiting = self._waiting.get(reply.request_id)
        if waiting is None:
            return
        if isinstance(reply, Appended):
            waiting.entry = (reply.base_index, reply.term)
        else:
            _fail(waiting, reply.code)

    def on_committed(self, entry: LogEntry) -> None:
        """Completes the requests whose entry has committed, or was replaced by `entry`. Must be called in the order of
        the log."""
        for waiting in self._waiting.values():
            if waiting.entry is not None and waiting.entry[0] == entry.index:
                if waiting.entry[1] != entry.term:
                    _fail(waiting, ErrorCode.NOT_CONTROLLER)
                elif not waiting.done.done():
                    waiting.done.set_result(None)

    def give_up(self) -> None:
        """Fails all requests, because the fate of their entries will stay unknown."""
        for waiting in self._waiting.values():
            _fail(waiting, ErrorCode.REQUEST_TIMED_OUT)


def _fail(waiting: _Waiting, code: ErrorCode) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(code.exception())
