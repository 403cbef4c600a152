"""Joins queued messages to one controller into fewer messages with the same effect.

Append requests with consecutive entries become one request, the same that the leader would have sent for all these
entries. Of several accepting responses, the last one covers the others. So under load, one round trip carries all
queued messages, and the receiver handles, writes and answers them at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from klamm_controller.raft.messages import AppendRequest, AppendResponse, Message

JOINED_BYTES_MAX: Final = 1 << 20
"""The most bytes of entries in a joined request, as in RaftSettings.append_bytes_max."""


def joined(first: Message, second: Message) -> Message | None:
    """Returns one message that replaces two messages to the same receiver, or None if both must be sent."""
    if (first.sender, first.receiver, first.term) != (second.sender, second.receiver, second.term):
        return None
    match first, second:
        case AppendRequest(), AppendRequest():
            return _joined_requests(first, second)
        case AppendResponse(), AppendResponse():
            return _joined_responses(first, second)
    return None


def _joined_requests(first: AppendRequest, second: AppendRequest) -> AppendRequest | None:
    last_term = first.entries[-1].term if first.entries else first.prev_term
    if (second.base_index, second.prev_term) != (first.base_index + len(first.entries), last_term):
        return None
    entries = first.entries + second.entries
    if first.entries and second.entries and sum(entry.size_bytes for entry in entries) > JOINED_BYTES_MAX:
        return None
    return replace(
        first,
        entries=entries,
        high_watermark=max(first.high_watermark, second.high_watermark),
        read_round=max(first.read_round, second.read_round),
    )


def _joined_responses(first: AppendResponse, second: AppendResponse) -> AppendResponse | None:
    if first.rejected or second.rejected or second.end_index < first.end_index:
        return None
    return replace(second, read_round=max(first.read_round, second.read_round))
