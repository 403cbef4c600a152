from __future__ import annotations

import pytest

from klamm.wire.v1 import raft_pb2 as pb
from klamm_controller.io.raft_codec import MalformedMessageError, decode, encode
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    AttachRequest,
    AttachResponse,
    EntryKind,
    LogEntry,
    ReplicaKey,
    SnapshotChunkRequest,
    SnapshotChunkResponse,
    SnapshotId,
    TimeoutNowRequest,
    Voter,
    VoteRequest,
    VoteResponse,
)

ONE, TWO = ReplicaKey(1, ""), ReplicaKey(2, "dir")
HEAD = {"sender": ONE, "receiver": TWO, "term": 7}
VOTERS = VoterSet([Voter(ONE, "a:1"), Voter(TWO, "b:2")])
SNAPSHOT = SnapshotId(end_index=9, term=6)
ENTRIES = (
    LogEntry(4, 5, EntryKind.DATA, b"data"),
    LogEntry(5, 7, EntryKind.NO_OP, b""),
    LogEntry(6, 7, EntryKind.VOTERS, VOTERS.to_bytes()),
)
APPEND = AppendRequest(**HEAD, base_index=4, prev_term=5, entries=ENTRIES, high_watermark=3, read_round=2)
CHUNK = SnapshotChunkRequest(
    **HEAD, snapshot=SNAPSHOT, voters=VOTERS.to_bytes(), position=3, data=b"abc", is_last=True, read_round=1
)

MESSAGES = [
    VoteRequest(**HEAD, pre_vote=True, end_index=4, last_term=3),
    VoteResponse(**HEAD, pre_vote=False, granted=True, leader=None),
    VoteResponse(**HEAD, pre_vote=True, granted=False, leader=TWO),
    APPEND,
    AppendRequest(**HEAD, base_index=0, prev_term=0, entries=(), high_watermark=0, read_round=0),
    AppendResponse(**HEAD, rejected=True, base_index=4, end_index=3, last_term=2, read_round=1),
    CHUNK,
    SnapshotChunkResponse(**HEAD, snapshot=SNAPSHOT, position=8, read_round=1),
    TimeoutNowRequest(**HEAD),
    AttachRequest(**HEAD, end_index=4),
    AttachResponse(**HEAD, leader=ONE),
    AttachResponse(**HEAD, leader=None),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_each_raft_message_round_trips(message):
    wire = encode(message).SerializeToString()
    assert decode(pb.RaftMessage.FromString(wire)) == message


def changed(message, change):
    envelope = encode(message)
    change(envelope)
    return envelope


@pytest.mark.parametrize(
    ("message", "change", "said"),
    [
        (APPEND, lambda e: e.ClearField("append_request"), "an unknown kind"),
        (APPEND, lambda e: setattr(e, "term", -1), "term=-1"),
        (APPEND, lambda e: setattr(e.sender, "node_id", -1), "node_id=-1"),
        (APPEND, lambda e: setattr(e.append_request, "base_index", -4), "base_index=-4"),
        (APPEND, lambda e: setattr(e.append_request, "high_watermark", -1), "high_watermark=-1"),
        (APPEND, lambda e: setattr(e.append_request.entries[1], "term", 4), "entry 5 has term 4 after 5"),
        (APPEND, lambda e: setattr(e.append_request.entries[2], "term", 8), "entry 6 has term 8 after 7"),
        (APPEND, lambda e: setattr(e.append_request.entries[0], "kind", 9), "entry 4: 9 is not a valid"),
        (APPEND, lambda e: setattr(e.append_request.entries[2], "payload", b"x"), "entry 6: .*not a voter set"),
        (CHUNK, lambda e: setattr(e.snapshot_chunk_request, "voters", b"x"), "not a voter set"),
        (CHUNK, lambda e: setattr(e.snapshot_chunk_request.snapshot, "term", -1), "term=-1"),
        (
            CHUNK,
            lambda e: _empty(e.snapshot_chunk_request),
            "empty but not the last",
        ),
    ],
)
def test_a_malformed_raft_message_is_refused(message, change, said):
    with pytest.raises(MalformedMessageError, match=said):
        decode(changed(message, change))


def _empty(chunk):
    chunk.data = b""
    chunk.is_last = False
