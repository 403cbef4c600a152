"""Describes the events of a replica and its reactions in words, for the golden stories and for seeds that fail."""

from __future__ import annotations

from klamm_controller.raft.effects import Appended, Effects, Persist, ReadReady, Rejected, Reply
from klamm_controller.raft.events import (
    AddVoter,
    DeadlinePassed,
    Event,
    LogPersisted,
    Propose,
    Read,
    RemoveVoter,
    SnapshotChunkLoaded,
    SnapshotSaved,
    TransferLeadership,
    UpdateVoter,
)
from klamm_controller.raft.messages import EntryKind, LogEntry


def describe_effects(effects: Effects) -> list[str]:
    """Returns the effects that a replica requests, a line each."""
    lines: list[str] = []
    if effects.leadership is not None:
        lines.append(f"  leader of term {effects.leadership.term}: {effects.leadership.leader}")
    if effects.persist is not None:
        lines.append(f"  writes {_describe_persist(effects.persist)}")
    if effects.restore is not None:
        lines.append(f"  restores {effects.restore}")
    if effects.committed:
        lines.append(f"  delivers {' '.join(map(_describe_entry, effects.committed))}")
    lines += [f"  answers {_describe_reply(reply)}" for reply in effects.replies]
    lines += [f"  -> {message.receiver} {message.describe()}" for message in effects.messages]
    return lines


def _describe_entry(entry: LogEntry) -> str:
    text = entry.payload.decode() if entry.kind is EntryKind.DATA else entry.kind.name
    return f"{entry.index}/{entry.term}:{text}"


def describe_event(event: Event) -> str:
    """Describes an event of a replica."""
    match event:
        case LogPersisted():
            return f"persisted #{event.persist_id}"
        case Propose():
            return f"is asked to append {b' '.join(event.payloads).decode()}"
        case SnapshotChunkLoaded():
            return f"loaded {event.snapshot} at {event.position}"
        case SnapshotSaved():
            return f"saved {event.snapshot}"
        case DeadlinePassed() | Read() | AddVoter() | RemoveVoter() | UpdateVoter() | TransferLeadership():
            return type(event).__name__
        case _:
            return f"<- {event.sender} term={event.term} {event.describe()}"


def _describe_persist(persist: Persist) -> str:
    parts = [f"#{persist.persist_id}"]
    if persist.hard_state is not None:
        parts.append(f"term={persist.hard_state.term} vote={persist.hard_state.voted_for}")
    if persist.snapshot_chunk is not None:
        chunk = persist.snapshot_chunk
        parts.append(f"snapshot {chunk.snapshot} bytes={chunk.position}..{chunk.position + len(chunk.data)}")
    if persist.log_end_index is not None:
        parts.append(f"cut from {persist.log_end_index}")
    parts.extend(map(_describe_entry, persist.entries))
    if persist.log_start_index is not None:
        parts.append(f"cut below {persist.log_start_index}")
    return " ".join(parts)


def _describe_reply(reply: Reply) -> str:
    match reply:
        case Appended():
            return f"{reply.request_id}: appended {reply.base_index}..{reply.end_index} in term {reply.term}"
        case ReadReady():
            return f"{reply.request_id}: read from {reply.end_index}"
        case Rejected():
            return f"{reply.request_id}: {reply.code.name}, leader {reply.leader}"
