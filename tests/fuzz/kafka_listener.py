"""A coverage-guided fuzzer of the Kafka listener: any bytes, into a real connection of a real broker on a real log dir.

Run: make fuzz, or python tests/fuzz/kafka_listener.py [--inputs 10000000] [--corpus DIRECTORY]

Only the socket is not real: bytes go straight into the connection, answers are dropped. The controller follows a
script. It stops at the first input that breaks something: an exception that is not a refusal, a connection that does
not end, bytes that stay accounted for, or memory that grows. The input is left in the working directory, to be run
again with `--again FILE`. Its first byte says how the rest is packed (`unpack`), or few would get past a checksum.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import logging
import pathlib
import shutil
import struct
import sys
import tempfile
import typing
from collections.abc import AsyncIterator, Iterator
from typing import Any

import atheris

with atheris.instrument_imports(include=["klamm_broker", "klamm.kafka_types"]):
    from klamm_broker.kafka.api import ApiKey
    from klamm_broker.kafka.codec import messages
    from klamm_broker.kafka.net.connection import KafkaConnection
    from klamm_broker.kafka.net.listener import KafkaListener
    from klamm_broker.kafka.served_apis import SPOKEN
    from klamm_broker.server import BrokerServer

import crc32c
from kio.serial import entity_writer

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm_broker.kafka.codec.schemas import request_schema
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.net.listeners import plain_listeners
from tests.fuzz.fuzzed_connection import Target, framed
from tests.support.broker_harness import CLUSTER_ID, ScriptedController, batch, serving
from tests.support.waiting import until

APIS = sorted(SPOKEN)
FRAME_MAX_BYTES = 1_000_000
_LENGTH, _CRC, _CHECKED = 8, 17, 21
_BATCH_BYTES_MIN = 61


async def refuse(rpc: Any, request: object, *, timeout_ms: int) -> Any:
    """The controller's part in administration: nothing that an input asks for is done."""
    raise ErrorCode.POLICY_VIOLATION.exception(rpc.__name__)


def request(api_key: ApiKey, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 7, 4) + b"fuzz"
    return framed(header + (b"\x00" if version >= SPOKEN[api_key].flexible else b"") + body)


def sealed(records: bytes) -> bytes:
    """The bytes as a batch whose length, magic and checksum are right."""
    made = bytearray(records.ljust(_BATCH_BYTES_MIN, b"\0"))
    struct.pack_into(">i", made, _LENGTH, len(made) - 12)
    made[16] = 2
    struct.pack_into(">I", made, _CRC, crc32c.crc32c(made[_CHECKED:]))
    return bytes(made)


def unpack(data: bytes) -> Iterator[bytes]:
    """What the client sends, piece by piece."""
    kind, rest = data[:1], data[1:]
    if kind == b"r":
        step = 1 + (rest[0] if rest else 0) ** 2
        yield from (rest[start : start + step] for start in range(1, len(rest), step))
    elif kind == b"p" and len(rest) > 2:
        produce = ">hhi iihi hii"
        records = sealed(rest[2:])
        acks = rest[1] % 3 - 1
        body = struct.pack(produce.replace(" ", ""), -1, acks, 10, 1, 0, 0, 0, 0, 0, 0)[:8]
        body += struct.pack(">i", 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iii", 1, rest[0] % 3, len(records))
        yield request(ApiKey.PRODUCE, 3 + rest[1] % 6, body + records)
    else:
        while len(rest) > 3:
            size = rest[2] << 4 | rest[3] & 15
            api_key = APIS[rest[0] % len(APIS)]
            spoken = SPOKEN[api_key]
            yield request(api_key, spoken.min + rest[1] % (spoken.max - spoken.min + 1), rest[4 : 4 + size])
            rest = rest[4 + size :]


def pack(number: int, version: int, body: bytes) -> bytes:
    """One request for `unpack`; its size is rounded, so the rest becomes part of the next one."""
    size = min(len(body), 4095)
    return bytes([number, version, size >> 4, size & 15]) + body[:size]


def seeds() -> Iterator[bytes]:
    """A plausible request of each version of each API, and batches."""
    for number, api_key in enumerate(APIS):
        spoken = SPOKEN[api_key]
        for version in range(spoken.min, spoken.max + 1):
            schema = request_schema(api_key, version)
            buffer = io.BytesIO()
            entity_writer(schema)(buffer, messages._make(schema, plausible(schema)))
            packed = pack(number, version - spoken.min, buffer.getvalue())
            yield b"f" + packed
            yield b"f" + packed + packed
            yield b"r\x10" + request(api_key, version, buffer.getvalue())
    for count in (1, 3, 100):
        yield b"p\x00\x01" + batch(count)


def plausible(schema: type) -> dict[str, Any]:
    """Fields of a message, one item in each array."""
    hints = typing.get_type_hints(schema)
    return {name: plausible_value(name, hints[name]) for name in schema.__dataclass_fields__}  # type: ignore[attr-defined]


def plausible_value(name: str, hint: Any) -> Any:
    arguments = [argument for argument in typing.get_args(hint) if argument not in (type(None), Ellipsis)]
    if typing.get_origin(hint) is tuple:
        return (plausible_value(name, arguments[0]),)
    if arguments:
        return plausible_value(name, arguments[0])
    if hasattr(hint, "__dataclass_fields__"):
        return plausible(hint)
    base = next((each for each in getattr(hint, "__mro__", ()) if each in (bool, int, str, bytes)), None)
    if base is str or name in ("topic", "name"):
        return "t"
    if base is bytes:
        return batch(1) if name == "records" else b""
    if name.endswith("id") and base is None:
        return None
    return False if base is bool else 1 if name.startswith(("timeout", "max")) else 0


@contextlib.asynccontextmanager
async def started_listener(directory: pathlib.Path) -> AsyncIterator[KafkaListener]:
    """The listener of a broker that leads topic t with two partitions, one of them with records, and the internal
    topics."""
    controller = ScriptedController(CLUSTER_ID)
    async with serving({CONTROLLER: controller, ADMIN: controller}) as port:
        properties = {
            "node.id": "1",
            "listeners": "GRPC://localhost:1,KAFKA://localhost:0",
            "controller.quorum.bootstrap.servers": f"localhost:{port}",
            "log.dirs": str(directory),
            "socket.request.max.bytes": str(FRAME_MAX_BYTES),
            "auto.create.topics.enable": "false",
            "producer.ids.per.partition.max": "100",
            "log.segment.bytes": "1048576",
            "log.retention.bytes": "4194304",
            "log.retention.check.interval.ms": "5000",
        }
        server = BrokerServer(load(BrokerConfig, properties))
        server._kafka._controller.ask = refuse
        await server.open()
        await server.start(plain_listeners("localhost", 1))
        for name in ("t", "__consumer_offsets", "__transaction_state"):
            await controller.create_topic(name, 2)
        await until(lambda: len(server._replicas) == 6)
        try:
            (listener,) = server._kafka._by_name.values()
            yield listener
        finally:
            await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--corpus", type=pathlib.Path, default=pathlib.Path("build/fuzz/kafka_listener"))
    parser.add_argument("--again", type=pathlib.Path, help="runs one input again")
    options = parser.parse_args()
    options.corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (options.corpus / f"seed-{number:04}").write_bytes(seed)
    # A connection that is refused is no news here.
    logging.getLogger().setLevel(logging.ERROR)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="klamm-fuzz-"))
    try:
        # Never left: atheris ends the process.
        started = started_listener(directory)
        listener = loop.run_until_complete(started.__aenter__())
        target = Target(listener, loop, connect=lambda: KafkaConnection(listener), unpack=unpack)
        if options.again:
            target(options.again.read_bytes())
            return
        flags = [
            f"-runs={options.inputs}",
            "-timeout=30",
            "-rss_limit_mb=2048",
            "-max_len=2000",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *flags, str(options.corpus)], target)
        atheris.Fuzz()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
