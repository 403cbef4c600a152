"""The record codec against aiokafka's (Cython) and kafka-python's (pure Python), in one run.

    python bench/records_codec.py

One core, best of many repetitions by the clock on the wall, whose least reading can be
trusted where that of a CPU clock can be too small. The
yardstick is 1000 records with values of 100 bytes, no key, no compression (a batch of 110 KB); the other
shapes show what leaving it costs.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from klamm.records import (
    CompressionType,
    RawRecord,
    decode_batch,
    encode_batch,
    validate_batch,
    validate_records,
)
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.segment.record_set import AppendOrigin, check_produced

RECORD_COUNT = 1000
START_MS = 1_700_000_000_000
BUILDER_FIELDS = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}


def shapes() -> dict[str, list[RawRecord]]:
    rng = random.Random(1)
    numbers = range(RECORD_COUNT)
    return {
        "100 B values": [(START_MS, None, rng.randbytes(100), ()) for _ in numbers],
        "  a new ms every 5 records": [(START_MS + n // 5, None, rng.randbytes(100), ()) for n in numbers],
        "  8 B keys": [(START_MS, rng.randbytes(8), rng.randbytes(100), ()) for _ in numbers],
        "50-150 B values": [(START_MS + n // 5, None, rng.randbytes(rng.randint(50, 150)), ()) for n in numbers],
        "  4-12 B keys": [
            (START_MS + n // 5, rng.randbytes(rng.randint(4, 12)), rng.randbytes(rng.randint(50, 150)), ())
            for n in numbers
        ],
        "  and one header": [
            (START_MS + n // 5, rng.randbytes(8), rng.randbytes(rng.randint(50, 150)), (("trace", b"0123"),))
            for n in numbers
        ],
    }


def best_us(call: Callable[[], object], seconds: float = 0.4) -> float:
    """The least time of one call, of as many as fit into `seconds`."""
    best_ns = float("inf")
    deadline_ns = time.perf_counter_ns() + seconds * 1e9
    while (start_ns := time.perf_counter_ns()) < deadline_ns:
        call()
        best_ns = min(best_ns, time.perf_counter_ns() - start_ns)
    return best_ns / 1000


def rate(call: Callable[[], object]) -> str:
    spent_us = best_us(call)
    return f"{spent_us:8.0f} us {RECORD_COUNT / spent_us:6.2f} M rec/s"


def encode_elsewhere(builder_type: type[AiokafkaBuilder] | type[KafkaPythonBuilder], records: list[RawRecord]) -> bytes:
    builder = builder_type(magic=2, compression_type=0, batch_size=1 << 24, **BUILDER_FIELDS)
    for offset, (timestamp_ms, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp=timestamp_ms, key=key, value=value, headers=list(headers))
    return bytes(builder.build())


def decode_elsewhere(
    reader_type: type[AiokafkaRecords] | type[KafkaPythonRecords], batch: bytes
) -> list[tuple[int, int, bytes | None, bytes | None, object]]:
    """Decodes a batch to the same five values per record as `decode_batch`, and verifies the checksum."""
    opened = reader_type(batch).next_batch()
    assert opened.validate_crc()
    return [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in opened]


def compare_codecs() -> None:
    for name, records in shapes().items():
        batch = encode_batch(records)
        assert [record[1:] for record in decode_batch(batch)] == records
        print(f"{name} ({len(batch):,} bytes)")
        for label, call in (
            ("encode  klamm", functools.partial(encode_batch, records)),
            ("        aiokafka", functools.partial(encode_elsewhere, AiokafkaBuilder, records)),
            ("        kafka-python", functools.partial(encode_elsewhere, KafkaPythonBuilder, records)),
            ("decode  klamm", functools.partial(decode_batch, batch)),
            ("        klamm, validate", functools.partial(validate_records, batch)),
            ("        aiokafka", functools.partial(decode_elsewhere, AiokafkaRecords, batch)),
            ("        kafka-python", functools.partial(decode_elsewhere, KafkaPythonRecords, batch)),
        ):
            print(f"  {label:24} {rate(call)}")


def compare_compressions(records: list[RawRecord]) -> None:
    print("compression of 100 B values, random bytes (the codec's own part of the time is as above)")
    for compression in CompressionType:
        batch = encode_batch(records, compression=compression)
        encoded = rate(functools.partial(encode_batch, records, compression=compression))
        decoded = rate(functools.partial(decode_batch, batch))
        print(f"  {compression.config_name:7} encode {encoded}   decode {decoded}")


def broker_hot_path() -> None:
    print("what a broker checks: header and checksum, and all with the timestamps of the records")
    for name, records in shapes().items():
        for compression in (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD):
            batch = encode_batch(records, compression=compression)
            header_us = best_us(functools.partial(validate_batch, batch))
            produced_us = best_us(
                functools.partial(
                    check_produced, batch, LogConfig(), now_ms=START_MS + RECORD_COUNT, origin=AppendOrigin.CLIENT
                )
            )
            print(
                f"  {name:30} {compression.config_name:5} {len(batch):7,} B {header_us:6.1f} us {produced_us:7.1f} us"
            )


def main() -> None:
    yardstick = next(iter(shapes().values()))
    broker_hot_path()
    compare_codecs()
    compare_compressions(yardstick)


if __name__ == "__main__":
    main()
