"""How long the largest request of each Kafka API keeps other clients waiting.

    python bench/longest_turns.py [--only FETCH,CREATE_TOPICS]

Sends the requests of `tests/support/largest_requests.py` to `klamm up`, where controller, broker and coordinator share
one event loop. Meanwhile, another process asks for ApiVersions every millisecond, which needs one short turn of the
loop. The table has the time of each request, and the longest and the 99th percentile of the other client's waits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import socket
import struct
import tempfile
import time
from multiprocessing.connection import Connection

from bench.peer_servers import klamm
from klamm_broker.kafka.api import ApiKey
from tests.clients.scenarios import create_topic
from tests.support.kafka_wire import KafkaWire
from tests.support.largest_requests import largest_requests, size_of_answer

TOPIC = "large"
PARTITIONS = 1_000
READY_S = 60
PAUSE_S = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of APIs, with commas")
    only = {name for name in parser.parse_args().only.split(",") if name}
    with tempfile.TemporaryDirectory() as directory, klamm(pathlib.Path(directory)) as peer:
        host, port = peer.bootstrap.split(":")
        address = (host, int(port))
        _await_ready(address)
        with KafkaWire(peer.bootstrap) as wire:
            create_topic(wire, TOPIC, PARTITIONS)
        here, there = multiprocessing.Pipe()
        other = multiprocessing.get_context("spawn").Process(target=_ask_always, args=(address, there), daemon=True)
        other.start()
        here.recv()
        print(f"{'API':32}{'array':34}{'items':>7}{'MB':>7}{'s':>8}{'longest ms':>12}{'p99 ms':>9}")
        for request in largest_requests(TOPIC):
            if only and request.api_key.name not in only:
                continue
            _waits(here)
            began_s = time.monotonic()
            size_of_answer(address, request)
            took_s = time.monotonic() - began_s
            longest_ms, p99_ms = _waits(here)
            print(
                f"{request.api_key.name:32}{request.array:34}{request.items:7}{len(request.frame) / 1e6:7.2f}"
                f"{took_s:8.2f}{longest_ms:12.1f}{p99_ms:9.1f}",
                flush=True,
            )
        other.kill()


def _await_ready(address: tuple[str, int]) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection(address).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def _waits(other: Connection) -> tuple[float, float]:
    """Returns the longest wait of the other client since the last call, and the 99th percentile, in milliseconds."""
    other.send(None)
    waits_s = sorted(other.recv())
    return waits_s[-1] * 1000, waits_s[len(waits_s) * 99 // 100] * 1000


def _ask_always(address: tuple[str, int], owner: Connection) -> None:
    """Asks for ApiVersions again and again. Sends the owner all waits, in seconds, for each message of it."""
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, 5) + b"other"
    waits_s: list[float] = []
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        owner.send(None)
        while True:
            began_s = time.perf_counter()
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            connection.recv(size, socket.MSG_WAITALL)
            waits_s.append(time.perf_counter() - began_s)
            if owner.poll(PAUSE_S):
                owner.recv()
                owner.send(waits_s)
                waits_s = []


if __name__ == "__main__":
    main()
