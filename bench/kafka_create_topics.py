"""How soon a Kafka client that creates a topic finds it: ms from CreateTopics to a Metadata that knows it.

    python bench/kafka_create_topics.py [--topics 200] [--brokers 3] [--bootstrap HOST:PORT]

Starts `klamm up` on a fresh directory, or asks the cluster at `--bootstrap`, which may be Kafka's. One connection
sends CreateTopics, and when that is answered Metadata for the topic, again and again without a pause until the topic
is there. Prints how many topics the first Metadata missed, and medians and maxima: of CreateTopics' answer, and until
the topic is known.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from kio.serial import entity_reader, entity_writer

from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.codec.schemas import request_schema, response_schema

TIMEOUT_MS = 30_000
VERSIONS = {ApiKey.CREATE_TOPICS: 7, ApiKey.METADATA: 12}
"""All flexible."""


class Seen(NamedTuple):
    """The times of one topic."""

    answered_ms: float
    known_ms: float
    missed: bool


class Client:
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, api_key: ApiKey, fields: Fields) -> Any:
        version = VERSIONS[api_key]
        schema = request_schema(api_key, version)
        body = io.BytesIO()
        entity_writer(schema)(body, messages._make(schema, fields))
        frame = struct.pack(">hhihx", api_key, version, 1, -1) + body.getvalue()
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read(4))
        answer, _ = entity_reader(response_schema(api_key, version))(memoryview(self._read(size)), 5)
        return answer

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            some = self.socket.recv(size - len(data))
            assert some, "the broker closed the connection"
            data += some
        return data


@contextlib.contextmanager
def klamm(brokers: int) -> Iterator[str]:
    """The Kafka listeners of a cluster."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "klamm", "up", "--data-dir", f"{directory}/data", "--port", "0"]
        process = subprocess.Popen([*command, "--brokers", str(brokers)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            ready = re.search(r"Kafka clients at (\S+), data", process.stdout.readline())
            assert ready, "klamm up did not get ready"
            yield ready[1]
        finally:
            process.terminate()
            process.wait()


def create_and_look(client: Client) -> Seen:
    name = f"topic-{uuid.uuid4().hex}"
    topic = {"name": name, "num_partitions": 3, "replication_factor": -1, "assignments": [], "configs": []}
    began_s = time.perf_counter()
    created = client.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False})
    answered_s = time.perf_counter()
    assert created.topics[0].error_code == 0, created
    asked = {
        "topics": [{"name": name, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    missed = 0
    while client.ask(ApiKey.METADATA, asked).topics[0].error_code != 0:
        missed += 1
    known_s = time.perf_counter()
    return Seen(1_000 * (answered_s - began_s), 1_000 * (known_s - began_s), missed > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--bootstrap")
    options = parser.parse_args()
    cluster = contextlib.nullcontext(options.bootstrap) if options.bootstrap else klamm(options.brokers)
    with cluster as bootstrap:
        client = Client(bootstrap)
        seen = [create_and_look(client) for _ in range(options.topics)]
    answered, known = [one.answered_ms for one in seen], [one.known_ms for one in seen]
    print(f"missed by the first Metadata: {sum(one.missed for one in seen)} of {len(seen)}")
    print(f"CreateTopics answered: median {statistics.median(answered):.1f} ms, max {max(answered):.0f} ms")
    print(f"known on the same connection: median {statistics.median(known):.1f} ms, max {max(known):.0f} ms")


if __name__ == "__main__":
    main()
