"""Requests to change the voters that wait for their entry to commit."""

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
    """(index, term) of the voter set, once it is appended."""


class VoterRequests:
    """The requests that wait, by request id. Each ends as its entry does: committed, replaced by another leader's
    (NOT_CONTROLLER: no effect), or unknown (REQUEST_TIMED_OUT)."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def add(self, request_id: int) -> asyncio.Future[None]:
        """What to await."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = _Waiting(done=done)
        return done

    def discard(self, request_id: int) -> None:
        """Drops a request for which no caller waits any more."""
        self._waiting.pop(request_id, None)

    def on_reply(self, reply: Appended | Rejected) -> None:
        """The core answered a request, which need not be one of these."""
        waiting = self._waiting.get(reply.request_id)
        if waiting is None:
            return
        if isinstance(reply, Appended):
            waiting.entry = (reply.base_index, reply.term)
        else:
            _fail(waiting, reply.code)

    def on_committed(self, entry: LogEntry) -> None:
        """An entry is committed; called in the order of the log."""
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
