"""How long DuckDB takes for a sum over the records of a topic, beside the same sum over a Parquet file of them.

Run: python bench/arrow_sum.py [--records 10000000] [--rounds 5]

The topic has four partitions and is written with `send_arrow`. A value has 100 bytes, of which the first eight are a
number. "read" is `read_arrow` alone, "topic" is DuckDB's query over its reader, "table" the query over a table that is
in memory, and "file" the query over the file. The sides take turns, and a first round warms up.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import klamm
from bench.servers import klamm_up
from bench.turns import rounds
from klamm import Admin, NewTopic, Producer

PARTITIONS = 4
SLICE_RECORDS = 500_000
VALUE_BYTES = 100
SUM = "SELECT sum(decode(value[1:8])::BIGINT) AS total, count(*) AS records FROM source"


def values(first: int, count: int) -> pa.Table:
    numbers = [b"%08d" % number + b"x" * (VALUE_BYTES - 8) for number in range(first, first + count)]
    return pa.table({"value": pa.array(numbers, pa.binary())})


def fill(bootstrap: str, records: int) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("numbers", PARTITIONS)])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for first in range(0, records, SLICE_RECORDS):
            producer.send_arrow("numbers", values(first, min(SLICE_RECORDS, records - first)))
        producer.flush()


def query(source: object) -> tuple[int, int]:
    connection = duckdb.connect()
    connection.register("source", source)
    total, count = connection.execute(SUM).fetchall()[0]
    return int(total), int(count)


def query_file(path: pathlib.Path) -> tuple[int, int]:
    total, count = duckdb.connect().execute(SUM.replace("source", f"'{path}'")).fetchall()[0]
    return int(total), int(count)


def timed(work: Callable[[], object]) -> tuple[float, object]:
    began_s = time.perf_counter()
    result = work()
    return time.perf_counter() - began_s, result


def measure(bootstrap: str, path: pathlib.Path, records: int, round_count: int) -> None:
    def reader() -> pa.RecordBatchReader:
        return klamm.read_arrow("numbers", bootstrap_servers=bootstrap, columns=["value"])

    table = reader().read_all()
    pq.write_table(table, path)
    sides: dict[str, Callable[[], object]] = {
        "read": lambda: sum(batch.num_rows for batch in reader()),
        "topic": lambda: query(reader()),
        "table": lambda: query(table),
        "file": lambda: query_file(path),
    }
    expected = (records * (records - 1) // 2, records)
    took: dict[str, list[float]] = {name: [] for name in sides}
    for number, order in enumerate(rounds(list(sides), round_count + 1)):
        for name in order:
            took_s, result = timed(sides[name])
            assert result == (records if name == "read" else expected), (name, result)
            if number:
                took[name].append(took_s)
    for name, times in took.items():
        middle_s = statistics.median(times)
        print(f"{name:6} {middle_s:6.2f} s  {records / middle_s / 1e6:6.1f} M records/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder, klamm_up() as server:
        fill(server.bootstrap, options.records)
        measure(server.bootstrap, pathlib.Path(folder, "numbers.parquet"), options.records, options.rounds)


if __name__ == "__main__":
    main()
