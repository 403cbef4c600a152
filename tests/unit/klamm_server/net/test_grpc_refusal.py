"""Tests the error of a gRPC client at a port that does not speak gRPC."""

from __future__ import annotations

import socket
import threading

import grpc
import pytest

from klamm_server.net.grpc_refusal import PREFACE, GrpcRefusal

SETTINGS, SETTINGS_ACK = bytes(3) + b"\x04\0" + bytes(4), bytes(3) + b"\x04\x01" + bytes(4)
DEADLINE_S = 60


@pytest.mark.parametrize("message", ["short", "it is 100% elsewhere: ü\n", "long " * 3_000])
def test_refused_grpc_calls_end_with_the_message(message: str) -> None:
    """The client is gRPC's own, and makes one call after the other."""

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        refusal = GrpcRefusal(message)
        with connection:
            while data := connection.recv(7):
                connection.sendall(refusal.answer(data))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        options = [("grpc.max_metadata_size", 100_000), ("grpc.absolute_max_metadata_size", 100_000)]
        with grpc.insecure_channel(f"127.0.0.1:{listening.getsockname()[1]}", options=options) as channel:
            for body in (b"", b"x" * 30_000):
                with pytest.raises(grpc.RpcError) as refused:
                    channel.unary_unary("/klamm.v1.Server/Describe")(body, timeout=DEADLINE_S)
                assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
                assert refused.value.details() == message
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_a_grpc_refusal_acknowledges_pings_and_settings_and_drops_bodies() -> None:
    refusal = GrpcRefusal("no")
    assert refusal.answer(PREFACE[:10]) == SETTINGS
    assert refusal.answer(PREFACE[10:] + SETTINGS) == SETTINGS_ACK
    ping = b"\0\0\x08\x06\0" + bytes(4)
    assert refusal.answer(ping + b"1234") == b""
    assert refusal.answer(b"5678" + SETTINGS_ACK) == b"\0\0\x08\x06\x01" + bytes(4) + b"12345678"
    data = b"\xff\xff\xff\0\0\0\0\0\1"
    assert refusal.answer(data + b"x" * 100_000) == b""
    assert not refusal._buffer
    assert refusal.answer(b"x" * (0xFFFFFF - 100_000) + SETTINGS) == SETTINGS_ACK
