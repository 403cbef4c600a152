"""Captures the changes of an SQLite table into a compacted topic, and keeps the latest value of each key."""

import contextlib
import json
import sqlite3
import sys
import time

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.errors import TopicAlreadyExistsError

PAUSE_S = 0.2


class Capture:
    """Moves changes from the table to the topic. A change leaves its queue when the topic has acknowledged it."""

    def __init__(self, servers: str, database: str, table: str, topic: str) -> None:
        self._database = sqlite3.connect(database)
        self._producer = Producer(bootstrap_servers=servers)
        self._topic = topic
        with Admin(bootstrap_servers=servers) as admin, contextlib.suppress(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic, partition_count=1, configs={"cleanup.policy": "compact"})])
        columns = [row[1] for row in self._database.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(f"'{name}', NEW.{name}" for name in columns)
        script = "CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, id, value);"
        for event in ("INSERT", "UPDATE"):
            script += f"""CREATE TRIGGER IF NOT EXISTS {table}_{event} AFTER {event} ON {table}
                BEGIN INSERT INTO changes (id, value) VALUES (NEW.id, json_object({values})); END;"""
        script += f"""CREATE TRIGGER IF NOT EXISTS {table}_DELETE AFTER DELETE ON {table}
            BEGIN INSERT INTO changes (id, value) VALUES (OLD.id, NULL); END;"""
        self._database.executescript(script)

    def step(self) -> int:
        """Sends the changes that exist, and returns their number."""
        changes = self._database.execute("SELECT number, id, value FROM changes ORDER BY number LIMIT 1000").fetchall()
        sent = [
            self._producer.send(self._topic, None if value is None else value.encode(), key=str(key).encode())
            for _, key, value in changes
        ]
        for future in sent:
            future.result()
        if changes:
            with self._database:
                self._database.execute("DELETE FROM changes WHERE number <= ?", (changes[-1][0],))
        return len(changes)

    def close(self) -> None:
        self._producer.close()
        self._database.close()


class LatestValues:
    """The newest row of each key, from the topic alone."""

    def __init__(self, servers: str, topic: str) -> None:
        self.rows: dict[str, dict[str, object]] = {}
        self._partition = TopicPartition(topic, 0)
        self._consumer = Consumer(bootstrap_servers=servers)
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning()

    def catch_up(self) -> None:
        """Reads all that the topic has now."""
        end = self._consumer.end_offsets([self._partition])[self._partition]
        while self._consumer.position(self._partition) < end:
            for records in self._consumer.poll(1_000).values():
                for record in records:
                    if record.value is None:
                        self.rows.pop(record.key.decode(), None)
                    else:
                        self.rows[record.key.decode()] = json.loads(record.value)

    def close(self) -> None:
        self._consumer.close()


if __name__ == "__main__":
    capture = Capture(*sys.argv[1:4], topic=f"{sys.argv[3]}-changes")
    while True:
        if not capture.step():
            time.sleep(PAUSE_S)
