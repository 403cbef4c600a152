"""Programs of users, as mypy sees them. Each mistake is found in its line, and the correct program has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.waiting import patience

ORDERS: Final = """
from dataclasses import dataclass

from klamm import Admin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer


@dataclass
class Order:
    total: int


def to_order(data: bytes) -> Order:
    return Order(len(data))


def from_order(order: Order) -> bytes:
    return bytes(order.total)

"""
CORRECT: Final = """
with Producer(
    bootstrap_servers="localhost:9094", linger_ms=20, acks="all", compression_type="zstd", value_serializer=from_order
) as producer:
    producer.send("orders", Order(1)).get(timeout=10).offset
with Consumer(
    bootstrap_servers=["localhost:9094"], group_id="g", auto_offset_reset="earliest", value_deserializer=to_order
) as consumer:
    consumer.subscribe(["orders"])
    for record in consumer:
        total: int = record.value.total + record.offset
from_mapping = Consumer[str, Order]({"bootstrap.servers": "localhost:9094", "group.id": "g"})
key: str = next(from_mapping).key


async def main() -> None:
    async with AsyncConsumer(group_id="g", value_deserializer=to_order) as reader:
        async for one in reader:
            print(one.value.total)
"""
PLANTED: Final = {
    'Producer(bootstrap_server="localhost:9094")': 'Unexpected keyword argument "bootstrap_server"',
    'Producer("localhost:9094")': 'Argument 1 to "Producer" has incompatible type "str"',
    'Producer(linger_ms="20")': 'Argument "linger_ms" to "Producer" has incompatible type "str"; expected "int"',
    'Producer(compression_type="zst")': 'Argument "compression_type" to "Producer" has incompatible type',
    "Producer(acks=2)": 'Argument "acks" to "Producer" has incompatible type',
    'Producer(value_serializer=from_order).send("orders", b"1")': 'Argument 2 to "send" of "Producer" has incompatible',
    'Consumer(group="g")': 'Unexpected keyword argument "group"',
    'Consumer(isolation_level="read-committed")': 'Argument "isolation_level" to "Consumer" has incompatible type',
    "next(Consumer(value_deserializer=to_order)).value.totl": '"Order" has no attribute "totl"',
    "next(Consumer[str, Order]()).offsets": '"ConsumerRecord[str, Order]" has no attribute "offsets"',
    'Admin(client_di="a")': 'Unexpected keyword argument "client_di"',
    'AsyncProducer(transaction_id="t")': 'Unexpected keyword argument "transaction_id"',
    'Producer().send("orders", vlaue=b"1")': 'Unexpected keyword argument "vlaue"',
}
"""A line of a program with a mistake, and mypy's error."""


def test_mypy_finds_each_misspelt_or_wrong_setting_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "correct.py").write_text(ORDERS + CORRECT)
    for number, line in enumerate(PLANTED):
        (tmp_path / f"planted{number}.py").write_text(f"{ORDERS}{line}\n")
    line_number = ORDERS.count("\n") + 1
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--config-file=", "--cache-dir=cache", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    errors = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert [error for error in errors if error.startswith("correct.py")] == []
    for number, message in enumerate(PLANTED.values()):
        assert any(error.startswith(f"planted{number}.py:{line_number}: error: {message}") for error in errors), (
            run.stdout
        )
    assert len(errors) == len(PLANTED), run.stdout
