"""Tests that frames leave the buffer as they were sent, in whatever pieces their bytes arrive."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.net.frame_buffer import BUSY_BUFFER_BYTES, FIRST_BUFFER_BYTES, FrameBuffer, NotKafkaError
from klamm_server.net.wrong_protocol import ClientProtocol

MAX_BYTES = 10 * BUSY_BUFFER_BYTES


def sent(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(frames: FrameBuffer, data: bytes) -> int:
    """Takes as many bytes as there is room for, and returns their number."""
    taken = data[: len(frames.room) - frames.filled]
    frames.room[frames.filled : frames.filled + len(taken)] = taken
    frames.filled += len(taken)
    return len(taken)


def served(frames: FrameBuffer) -> list[bytes]:
    """Removes and returns the complete frames, and makes room for the next one, as a connection does."""
    was_full = frames.filled == frames.capacity
    bodies = []
    while (frame := frames.next_frame(MAX_BYTES)) is not None:
        bodies.append(bytes(frame))
        frames.drop_frame(len(frame))
    if size := frames.pack(was_full):
        frames.grow(size)
    return bodies


@given(st.lists(st.integers(1, 3 * BUSY_BUFFER_BYTES), max_size=12), st.lists(st.integers(1, 100_000), min_size=1))
def test_frames_leave_the_buffer_as_they_were_sent_in_pieces_of_any_size(sizes: list[int], pieces: list[int]) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(sent, bodies))
    frames = FrameBuffer()
    found: list[bytes] = []
    turn = 0
    while data:
        data = data[feed(frames, data[: pieces[turn % len(pieces)]]) :]
        found += served(frames)
        turn += 1
    assert found == bodies
    frames.trim()
    assert (frames.capacity, frames.filled) == (FIRST_BUFFER_BYTES, 0)


@pytest.mark.parametrize("size", [0, -1, MAX_BYTES + 1])
def test_a_frame_with_an_invalid_size_is_refused(size: int) -> None:
    frames = FrameBuffer()
    feed(frames, struct.pack(">i", size))
    with pytest.raises(MalformedRequestError, match=f"a frame of {size} bytes"):
        frames.next_frame(MAX_BYTES)


def test_another_protocol_is_recognized_only_in_the_first_bytes_of_a_connection() -> None:
    stranger = b"GET /topics HTTP/1.1\r\n\r\n"
    frames = FrameBuffer()
    feed(frames, stranger)
    with pytest.raises(NotKafkaError) as found:
        frames.next_frame(MAX_BYTES)
    assert found.value.protocol is ClientProtocol.HTTP
    frames = FrameBuffer()
    feed(frames, sent(b"ab") + stranger)
    frames.drop_frame(2)
    with pytest.raises(MalformedRequestError):
        frames.next_frame(MAX_BYTES)
