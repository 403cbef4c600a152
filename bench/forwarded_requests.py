"""How long OffsetFetch and JoinGroup take, which a broker passes on to a coordinator, beside Apache Kafka.

    python bench/forwarded_requests.py [--rounds 5] [--before DIRECTORY]

One plain socket sends prepared requests, one at a time. Each JoinGroup is the first of its group, without a member id.
The servers (`klamm up` and one Kafka node) take turns, in random order. `--before` adds the server of another checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench.peer_servers import Peer, kafka, klamm
from bench.peer_workload import create_topic, first_produce
from klamm_broker.kafka.api import ApiKey
from tests.support.cold_requests import request_of
from tests.support.kafka_wire import KafkaWire

TOPIC, GROUP = "forwarded", "forwarded"
READY_S = 60
REQUESTS = {ApiKey.OFFSET_FETCH: 1_000, ApiKey.JOIN_GROUP: 300}
"""The requests of a round."""


class Run(NamedTuple):
    """The time of one request, and the processor time of the server for it."""

    took_us: float
    cpu_us: float


def requests(api_key: ApiKey, round_number: int) -> list[bytes]:
    """Returns the frames of a round, each with its size."""
    numbers = range(REQUESTS[api_key])
    if api_key is ApiKey.OFFSET_FETCH:
        partitions = [{"name": TOPIC, "partition_indexes": [0]}]
        group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": partitions}
        return [_framed(api_key, 8, {"groups": [group], "require_stable": True})] * len(numbers)
    member = {
        "session_timeout": 6_000,
        "rebalance_timeout": 6_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
        "reason": None,
    }
    return [_framed(api_key, 9, {"group_id": f"g{round_number}-{number}", **member}) for number in numbers]


def _framed(api_key: ApiKey, version: int, fields: dict[str, object]) -> bytes:
    frame = bytes(request_of(api_key, version, fields).frame)
    return len(frame).to_bytes(4, "big") + frame


def measure(peer: Peer, frames: Sequence[bytes]) -> Run:
    with KafkaWire(peer.bootstrap) as wire:
        cpu_s, began_s = peer.cpu_s(), time.perf_counter()
        for frame in frames:
            wire.ask_frame(frame)
        took_s = time.perf_counter() - began_s
        return Run(took_s * 1e6 / len(frames), (peer.cpu_s() - cpu_s) * 1e6 / len(frames))


def prepare(peer: Peer) -> None:
    """Waits until the server answers for groups, and commits the offset that is fetched."""
    first_produce(peer.bootstrap, "ready", READY_S)
    create_topic(peer.bootstrap, TOPIC, 1, 1)
    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    consumer.close()
    for number in range(-3, 0):
        for api_key in REQUESTS:
            measure(peer, requests(api_key, number))


@contextlib.contextmanager
def servers(directory: pathlib.Path, before: pathlib.Path | None) -> Iterator[dict[str, Peer]]:
    with contextlib.ExitStack() as stack:
        peers = {"klamm": stack.enter_context(klamm(directory / "klamm"))}
        if before is not None:
            peers["before"] = stack.enter_context(klamm(directory / "before", checkout=before))
        (directory / "kafka").mkdir()
        peers["kafka"] = stack.enter_context(kafka(directory / "kafka"))
        yield peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=pathlib.Path, help="another checkout, in which gRPC's code is built")
    options = parser.parse_args()
    runs: dict[tuple[ApiKey, str], list[Run]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-", ignore_cleanup_errors=True) as scratch,
        servers(pathlib.Path(scratch), options.before) as peers,
    ):
        for peer in peers.values():
            prepare(peer)
        for number in range(options.rounds):
            for name in random.sample(list(peers), len(peers)):
                for api_key in REQUESTS:
                    run = measure(peers[name], requests(api_key, number))
                    runs.setdefault((api_key, name), []).append(run)
    for (api_key, name), found in sorted(runs.items()):
        took, cpu = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{api_key.name:<13}{name:<7} {took:5.0f} us, {cpu:5.0f} us of the server's processor time")


if __name__ == "__main__":
    main()
