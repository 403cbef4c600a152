"""Encodes and decodes Raft's messages (proto/klamm/v1/raft.proto). All messages from other controllers are validated
here, and only here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from klamm.errors import ConfigError, KlammError
from klamm.wire.v1 import raft_pb2 as pb
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    AttachRequest,
    AttachResponse,
    EntryKind,
    LogEntry,
    Message,
    ReplicaKey,
    SnapshotChunkRequest,
    SnapshotChunkResponse,
    SnapshotId,
    TimeoutNowRequest,
    VoteRequest,
    VoteResponse,
)
from klamm_server.config.server_config import parse_server
from klamm_server.net.listeners import Listener
from klamm_server.net.listeners import decode as decode_listeners
from klamm_server.net.listeners import encode as encode_listeners


class MalformedMessageError(KlammError):
    """Raised for a message that no controller of this version would send."""


def encode(message: Message) -> pb.RaftMessage:
    """Encodes a message."""
    envelope = pb.RaftMessage(
        sender=encode_key(message.sender), receiver=encode_key(message.receiver), term=message.term
    )
    match message:
        case VoteRequest():
            envelope.vote_request.CopyFrom(
                pb.VoteRequest(pre_vote=message.pre_vote, end_index=message.end_index, last_term=message.last_term)
            )
        case VoteResponse():
            envelope.vote_response.CopyFrom(
                pb.VoteResponse(pre_vote=message.pre_vote, granted=message.granted, leader=_optional(message.leader))
            )
        case AppendRequest():
            envelope.append_request.CopyFrom(_append_request(message))
        case AppendResponse():
            envelope.append_response.CopyFrom(
                pb.AppendResponse(
                    rejected=message.rejected,
                    base_index=message.base_index,
                    end_index=message.end_index,
                    last_term=message.last_term,
                    read_round=message.read_round,
                )
            )
        case SnapshotChunkRequest():
            envelope.snapshot_chunk_request.CopyFrom(_chunk_request(message))
        case SnapshotChunkResponse():
            envelope.snapshot_chunk_response.CopyFrom(
                pb.SnapshotChunkResponse(
                    snapshot=_snapshot(message.snapshot), position=message.position, read_round=message.read_round
                )
            )
        case TimeoutNowRequest():
            envelope.timeout_now_request.SetInParent()
        case AttachRequest():
            envelope.attach_request.CopyFrom(pb.AttachRequest(end_index=message.end_index))
        case AttachResponse():
            envelope.attach_response.CopyFrom(pb.AttachResponse(leader=_optional(message.leader)))
        case _:
            assert_never(message)
    return envelope


def decode(envelope: pb.RaftMessage) -> Message:
    """Decodes and validates a message. Raises MalformedMessageError."""
    kind = envelope.WhichOneof("kind")
    if kind is None:
        raise MalformedMessageError("the message has an unknown kind")
    body = getattr(envelope, kind)
    _check_numbers(kind, body)
    head = {
        "sender": decode_key(envelope.sender),
        # The sender of an AttachRequest may know the receiver only by its address, and then sends a made-up negative
        # id.
        "receiver": ReplicaKey(envelope.receiver.node_id, envelope.receiver.directory_id),
        "term": _at_least_zero(kind, "term", envelope.term),
    }
    return _DECODERS[kind](head, body)


def encode_address(key: ReplicaKey, address: str, listeners: Sequence[Listener]) -> pb.ReplicaAddress:
    """Encodes a replica's address, and the listeners that its clients dial."""
    return pb.ReplicaAddress(replica=encode_key(key), address=address, listeners=encode_listeners(listeners))


def decode_address(where: pb.ReplicaAddress) -> tuple[ReplicaKey, str, tuple[Listener, ...]]:
    """Returns a replica, its host:port, and the listeners that its clients dial. Raises MalformedMessageError."""
    return decode_key(where.replica), check_address(where.address), decode_listeners(where.listeners)


def check_address(address: str) -> str:
    """Returns the address. Raises MalformedMessageError unless it is host:port."""
    try:
        parse_server("the address of a controller", address)
    except ConfigError as error:
        raise MalformedMessageError(str(error)) from error
    return address


def _append_request(message: AppendRequest) -> pb.AppendRequest:
    return pb.AppendRequest(
        base_index=message.base_index,
        prev_term=message.prev_term,
        entries=[pb.RaftEntry(term=entry.term, kind=entry.kind, payload=entry.payload) for entry in message.entries],
        high_watermark=message.high_watermark,
        read_round=message.read_round,
    )


def _chunk_request(message: SnapshotChunkRequest) -> pb.SnapshotChunkRequest:
    return pb.SnapshotChunkRequest(
        snapshot=_snapshot(message.snapshot),
        voters=message.voters,
        position=message.position,
        data=message.data,
        is_last=message.is_last,
        read_round=message.read_round,
    )


def encode_key(key: ReplicaKey) -> pb.ReplicaKey:
    """Encodes the key of a replica."""
    return pb.ReplicaKey(node_id=key.node_id, directory_id=key.directory_id)


def _optional(key: ReplicaKey | None) -> pb.ReplicaKey | None:
    return None if key is None else encode_key(key)


def _snapshot(snapshot: SnapshotId) -> pb.SnapshotId:
    return pb.SnapshotId(end_index=snapshot.end_index, term=snapshot.term)


def _decode_vote_request(head: dict[str, Any], body: pb.VoteRequest) -> VoteRequest:
    return VoteRequest(**head, pre_vote=body.pre_vote, end_index=body.end_index, last_term=body.last_term)


def _decode_vote_response(head: dict[str, Any], body: pb.VoteResponse) -> VoteResponse:
    return VoteResponse(**head, pre_vote=body.pre_vote, granted=body.granted, leader=_decode_optional(body))


def _decode_append_request(head: dict[str, Any], body: pb.AppendRequest) -> AppendRequest:
    return AppendRequest(
        **head,
        base_index=body.base_index,
        prev_term=body.prev_term,
        entries=_decode_entries(body, head["term"]),
        high_watermark=body.high_watermark,
        read_round=body.read_round,
    )


def _decode_entries(body: pb.AppendRequest, term: int) -> tuple[LogEntry, ...]:
    """Decodes the entries of an append request. Raises MalformedMessageError if their terms decrease or exceed the
    leader's term."""
    entries = []
    last_term = body.prev_term
    for offset, entry in enumerate(body.entries):
        if not last_term <= entry.term <= term:
            raise MalformedMessageError(f"entry {body.base_index + offset} has term {entry.term} after {last_term}")
        last_term = entry.term
        try:
            kind = EntryKind(entry.kind)
            if kind is EntryKind.VOTERS:
                VoterSet.from_bytes(entry.payload)
        except ValueError as error:
            raise MalformedMessageError(f"entry {body.base_index + offset}: {error}") from error
        entries.append(LogEntry(body.base_index + offset, entry.term, kind, entry.payload))
    return tuple(entries)


def _decode_append_response(head: dict[str, Any], body: pb.AppendResponse) -> AppendResponse:
    return AppendResponse(
        **head,
        rejected=body.rejected,
        base_index=body.base_index,
        end_index=body.end_index,
        last_term=body.last_term,
        read_round=body.read_round,
    )


def _decode_chunk_request(head: dict[str, Any], body: pb.SnapshotChunkRequest) -> SnapshotChunkRequest:
    try:
        VoterSet.from_bytes(body.voters)
    except ValueError as error:
        raise MalformedMessageError(f"a snapshot chunk has malformed voters: {error}") from error
    if not body.data and not body.is_last:
        raise MalformedMessageError("a snapshot chunk is empty but not the last")
    return SnapshotChunkRequest(
        **head,
        snapshot=_decode_snapshot(body.snapshot),
        voters=body.voters,
        position=body.position,
        data=body.data,
        is_last=body.is_last,
        read_round=body.read_round,
    )


def _decode_chunk_response(head: dict[str, Any], body: pb.SnapshotChunkResponse) -> SnapshotChunkResponse:
    return SnapshotChunkResponse(
        **head, snapshot=_decode_snapshot(body.snapshot), position=body.position, read_round=body.read_round
    )


def _decode_timeout_now(head: dict[str, Any], body: pb.TimeoutNowRequest) -> TimeoutNowRequest:
    return TimeoutNowRequest(**head)


def _decode_attach_request(head: dict[str, Any], body: pb.AttachRequest) -> AttachRequest:
    return AttachRequest(**head, end_index=body.end_index)


def _decode_attach_response(head: dict[str, Any], body: pb.AttachResponse) -> AttachResponse:
    return AttachResponse(**head, leader=_decode_optional(body))


_DECODERS: dict[str, Callable[[dict[str, Any], Any], Message]] = {
    "vote_request": _decode_vote_request,
    "vote_response": _decode_vote_response,
    "append_request": _decode_append_request,
    "append_response": _decode_append_response,
    "snapshot_chunk_request": _decode_chunk_request,
    "snapshot_chunk_response": _decode_chunk_response,
    "timeout_now_request": _decode_timeout_now,
    "attach_request": _decode_attach_request,
    "attach_response": _decode_attach_response,
}

_NUMBERS: Sequence[str] = (
    "base_index",
    "end_index",
    "high_watermark",
    "last_term",
    "position",
    "prev_term",
    "read_round",
)


def _check_numbers(kind: str, body: Any) -> None:
    for name in _NUMBERS:
        _at_least_zero(kind, name, getattr(body, name, 0))


def _at_least_zero(kind: str, name: str, value: int) -> int:
    if value < 0:
        raise MalformedMessageError(f"{kind} has {name}={value}, expected at least 0")
    return value


def decode_key(key: pb.ReplicaKey) -> ReplicaKey:
    """Decodes the key of a replica. Raises MalformedMessageError if the node id is negative."""
    return ReplicaKey(_at_least_zero("replica", "node_id", key.node_id), key.directory_id)


def _decode_optional(body: pb.VoteResponse | pb.AttachResponse) -> ReplicaKey | None:
    return decode_key(body.leader) if body.HasField("leader") else None


def _decode_snapshot(snapshot: pb.SnapshotId) -> SnapshotId:
    return SnapshotId(
        end_index=_at_least_zero("snapshot", "end_index", snapshot.end_index),
        term=_at_least_zero("snapshot", "term", snapshot.term),
    )
