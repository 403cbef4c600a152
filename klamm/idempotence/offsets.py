"""Marks by position: one row for each partition of a group, with the offset after the last processed record."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from klamm.consumer.record import ConsumerRecord
from klamm.consumer.sync_consumer import Consumer
from klamm.errors import IllegalStateError
from klamm.idempotence.database import Connection, Cursor, Database, Effect
from klamm.model import TopicPartition

TABLE: Final = "klamm_processed_offsets"
_COLUMNS: Final = (
    "group_id TEXT NOT NULL, topic TEXT NOT NULL, partition_id INTEGER NOT NULL, next_offset BIGINT NOT NULL,"
    " PRIMARY KEY (group_id, topic, partition_id)"
)
_MARK: Final = (
    f"INSERT INTO {TABLE} (group_id, topic, partition_id, next_offset)"
    " VALUES (:group_id, :topic, :partition_id, :next_offset)"
    " ON CONFLICT (group_id, topic, partition_id) DO UPDATE SET next_offset = excluded.next_offset"
    f" WHERE {TABLE}.next_offset < excluded.next_offset"
)
_SELECT: Final = f"SELECT topic, partition_id, next_offset FROM {TABLE} WHERE group_id = :group_id"
_DELETE: Final = f"DELETE FROM {TABLE} WHERE group_id = :group_id AND topic = :topic"


class ProcessedOffsets:
    """Applies the effect of each record once, by the offset after the last processed record of each partition.

    The offset is stored in the transaction of the effect, so a crash keeps both or none. A record below the stored
    offset is skipped. A row for each partition is all that is stored. The row is locked until the commit. So if a
    consumer has lost a partition without knowing, it cannot apply a record that the new owner has applied.

    Process the records of a partition in the order of their offsets. A record that comes after a later one is skipped.
    Subscribe with `listener(consumer)`, so that a consumer continues where the database is, not where the group has
    committed.

    A topic that is deleted and created again begins at offset 0. Call `forget` for it, or its records are skipped."""

    def __init__(self, connection: Connection, *, group: str, paramstyle: str | None = None) -> None:
        """Creates the table `klamm_processed_offsets` if it is missing.

        connection: used by this object alone while `process` runs. group: the name of the work, usually the consumer's
        group.id. Each group applies its own effects. paramstyle: by default that of the driver's module.
        Raises ConfigError if the connection commits automatically or its paramstyle is not known."""
        self._database = Database(connection, paramstyle)
        self._group = group
        self._mark_row = self._database.statement(_MARK)
        self._select_rows = self._database.statement(_SELECT)
        self._delete_rows = self._database.statement(_DELETE)
        self._rolled_back: dict[TopicPartition, int] = {}
        """The first offset of each partition that was rolled back and has not been processed since."""
        self._database.require_table(TABLE, _COLUMNS)

    def process(self, effect: Effect, *records: ConsumerRecord[Any, Any]) -> int:
        """Calls `effect(cursor, record)` for each record that was not processed before. Commits effects and marks in
        one transaction, and returns the number of these records.

        records: in the order of their offsets. After an exception, none of them is processed.
        The exception is raised. Then process these records again before later ones of their partitions: start the
        program again, or `seek` the consumer. Raises IllegalStateError for later records before that, for an open
        transaction of the connection, and for an effect that ends the transaction."""
        first = {record.topic_partition: record.offset for record in reversed(records)}
        self._require_no_gap(first)
        try:
            count = self._database.apply(effect, records, mark=self._mark)
        except BaseException:
            for tp, offset in first.items():
                self._rolled_back[tp] = min(offset, self._rolled_back.get(tp, offset))
            raise
        for tp in first:
            self._rolled_back.pop(tp, None)
        return count

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Returns the offset after the last processed record of each partition that has one."""
        with self._database.transaction() as cursor:
            cursor.execute(self._select_rows.text, self._select_rows.arguments({"group_id": self._group}))
            return {TopicPartition(topic, partition): offset for topic, partition, offset in cursor.fetchall()}

    def seek(self, consumer: Consumer[Any, Any], partitions: Iterable[TopicPartition]) -> None:
        """Moves the consumer to the stored offset of each of `partitions`, which must be assigned. Partitions without
        one keep their position.

        It does not matter whether the group has committed an earlier or a later offset. Raises IllegalStateError if a
        stored offset is after the end of the log. Then the topic was created again or its log was truncated."""
        stored = self.next_offsets()
        found = {tp: stored[tp] for tp in partitions if tp in stored}
        ends = consumer.end_offsets(found) if found else {}
        for tp, offset in found.items():
            if offset > ends[tp]:
                raise IllegalStateError(
                    f"group {self._group!r} has processed {tp} up to offset {offset}, but its log ends at {ends[tp]}:"
                    f" the topic was created again or its log was truncated. forget({tp.topic!r}) processes the records"
                    " that the topic has now"
                )
        for tp, offset in found.items():
            consumer.seek(tp, offset)

    def listener(self, consumer: Consumer[Any, Any]) -> SeekingListener:
        """Returns a rebalance listener that calls `seek` for the partitions that the consumer gets:
        `consumer.subscribe(topics, listener=processed.listener(consumer))`."""
        return SeekingListener(self, consumer)

    def forget(self, topic: str) -> None:
        """Deletes the stored offsets of a topic, so that its records are processed again."""
        with self._database.transaction() as cursor:
            arguments = self._delete_rows.arguments({"group_id": self._group, "topic": topic})
            cursor.execute(self._delete_rows.text, arguments)
        for tp in [tp for tp in self._rolled_back if tp.topic == topic]:
            del self._rolled_back[tp]

    def _mark(self, cursor: Cursor, record: ConsumerRecord[Any, Any]) -> bool:
        """Stores the offset after the record. Returns False if it was processed before."""
        values = {
            "group_id": self._group,
            "topic": record.topic,
            "partition_id": record.partition,
            "next_offset": record.offset + 1,
        }
        cursor.execute(self._mark_row.text, self._mark_row.arguments(values))
        return cursor.rowcount == 1

    def _require_no_gap(self, first: dict[TopicPartition, int]) -> None:
        """Raises IllegalStateError if records before `first` were rolled back, and no process has processed them
        since."""
        gaps = [tp for tp, offset in first.items() if self._rolled_back.get(tp, offset) < offset]
        if not gaps:
            return
        stored = self.next_offsets()
        for tp in gaps:
            rolled_back = self._rolled_back[tp]
            if stored.get(tp, 0) <= rolled_back:
                raise IllegalStateError(
                    f"the record at offset {rolled_back} of {tp} was rolled back and is not processed yet; offset"
                    f" {first[tp]} would skip it. Seek the consumer to offset {rolled_back}"
                )
            del self._rolled_back[tp]


class SeekingListener:
    """A rebalance listener that moves a consumer to the stored offsets."""

    def __init__(self, processed: ProcessedOffsets, consumer: Consumer[Any, Any]) -> None:
        self._processed = processed
        self._consumer = consumer

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Does nothing: the offsets are stored."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Moves the consumer to the stored offsets."""
        self._processed.seek(self._consumer, partitions)
