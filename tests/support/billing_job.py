"""A program that tests kill: it adds the amounts of a topic's records to a SQLite table, each once.

`python -m tests.support.billing_job BOOTSTRAP TOPIC DATABASE offsets|ids`. It prints a line within
each transaction and after it, and runs until it is killed."""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

from klamm import Consumer, ConsumerRecord
from klamm.idempotence import ProcessedIds, ProcessedOffsets

GROUP = "billing"


def apply(cursor: sqlite3.Cursor, record: ConsumerRecord[Any, Any]) -> None:
    """Adds the amount of a record to the balance, and keeps its number. Nothing in the tables refuses a second time."""
    cursor.execute("UPDATE balance SET total = total + ?", (int(record.value),))
    print("half", flush=True)
    cursor.execute("INSERT INTO applied VALUES (?)", (int(record.value),))
    print("whole", flush=True)


def main(bootstrap: str, topic: str, database: str, mark: str) -> None:
    connection = sqlite3.connect(database, timeout=600)
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        # The next process takes the partitions over at once, although this one was killed.
        group_instance_id="billing-1",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
    )
    processed: ProcessedOffsets | ProcessedIds
    if mark == "offsets":
        processed = ProcessedOffsets(connection, group=GROUP)
        consumer.subscribe([topic], listener=processed.listener(consumer))
    else:
        processed = ProcessedIds(connection, group=GROUP, id_of=lambda record: record.value.decode())
        consumer.subscribe([topic])
    print("ready", flush=True)
    with consumer:
        for record in consumer:
            if processed.process(apply, record):
                print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
