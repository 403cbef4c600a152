"""Questions about records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm.records.compression import CompressionType
from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.side import TIME_MS, TIMEOUT_MS, Ask, Case, Cases, TransactionalProducer, batch, since

Fields = Mapping[str, Any]
NOBODY = TransactionalProducer("nobody", 987_654, 0)


def produce(ask: Ask, *parts: tuple[str, int, bytes | None], **changes: Any) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for topic, partition, records in parts:
        topics.setdefault(topic, []).append({"index": partition, "records": records})
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": TIMEOUT_MS,
        "topic_data": [
            {"name": topic, "topic_id": ask.topic_id(topic), "partition_data": data} for topic, data in topics.items()
        ],
        **changes,
    }


def changed(records: bytes, position: int, value: bytes) -> bytes:
    """The batch with other bytes at a place."""
    return records[:position] + value + records[position + len(value) :]


def with_sequence(ask: Ask, base_sequence: int, **settings: Any) -> Fields:
    """Returns a batch of an idempotent producer. Its producer id has no earlier batch."""
    made = batch(base_sequence=base_sequence, producer=NOBODY, is_transactional=False, **settings)
    return produce(ask, (ask.topic(), 0, made))


def in_transaction(ask: Ask, producer: TransactionalProducer, topic: str = "empty", **settings: Any) -> Fields:
    made = batch(producer=producer, **settings)
    return produce(ask, (topic, 0, made), transactional_id=producer.transactional_id)


PRODUCE = {
    "nothing": lambda ask: produce(ask),
    "a batch": lambda ask: produce(ask, (ask.topic(), 0, batch())),
    "acks 1": lambda ask: produce(ask, (ask.topic(), 0, batch(3)), acks=1),
    "acks 2": lambda ask: produce(ask, (ask.topic(), 0, batch()), acks=2),
    "negative acks": lambda ask: produce(ask, (ask.topic(), 0, batch()), acks=-2),
    "no time": lambda ask: produce(ask, (ask.topic(), 0, batch()), timeout=0),
    "negative time": lambda ask: produce(ask, (ask.topic(), 0, batch()), timeout=-1),
    "an unknown topic": lambda ask: produce(ask, ("unknown", 0, batch())),
    "an illegal topic": lambda ask: produce(ask, ("no/name", 0, batch())),
    "an empty topic name": lambda ask: produce(ask, ("", 0, batch())),
    "an unknown partition": lambda ask: produce(ask, ("empty", 7, batch())),
    "a negative partition": lambda ask: produce(ask, ("empty", -1, batch())),
    "a partition twice": lambda ask: produce(ask, (ask.topic(), 0, batch()), (ask.name, 0, batch())),
    "known and unknown": lambda ask: produce(ask, (ask.topic(), 0, batch()), ("unknown", 0, batch())),
    "no records": lambda ask: produce(ask, ("empty", 0, b"")),
    "null records": Case(lambda ask: produce(ask, ("empty", 0, None)), until=3),
    "half a batch": lambda ask: produce(ask, ("empty", 0, batch()[:40])),
    "a cut batch": lambda ask: produce(ask, ("empty", 0, batch()[:-1])),
    "two batches": lambda ask: produce(ask, (ask.topic(), 0, batch() + batch())),
    "a wrong crc": lambda ask: produce(ask, ("empty", 0, changed(batch(), 17, b"\0\0\0\0"))),
    "magic 1": lambda ask: produce(ask, ("empty", 0, changed(batch(), 16, b"\1"))),
    "magic 3": lambda ask: produce(ask, ("empty", 0, changed(batch(), 16, b"\3"))),
    "a control batch": lambda ask: produce(ask, ("empty", 0, batch(is_control=True))),
    "a transactional batch without id": lambda ask: produce(
        ask, ("empty", 0, batch(producer=NOBODY)), transactional_id=None
    ),
    "a base offset": lambda ask: produce(ask, (ask.topic(), 0, batch(base_offset=17))),
    "gaps in offsets": lambda ask: produce(ask, ("empty", 0, batch(2, offset_deltas=[0, 5]))),
    "fewer records than offsets": lambda ask: produce(ask, ("empty", 0, batch(2, last_offset_delta=5))),
    "gzip": lambda ask: produce(ask, (ask.topic(), 0, batch(3, compression=CompressionType.GZIP))),
    "zstd": lambda ask: produce(ask, (ask.topic(), 0, batch(3, compression=CompressionType.ZSTD))),
    "too large": lambda ask: produce(ask, ("small", 0, batch(40))),
    "no key to a compacted topic": lambda ask: produce(ask, ("compacted", 0, _without_keys())),
    "append time": lambda ask: produce(
        ask, (ask.topic(configs={"message.timestamp.type": "LogAppendTime"}), 0, batch())
    ),
    "a sequence from the middle": lambda ask: with_sequence(ask, 5),
    "a sequence from the start": lambda ask: with_sequence(ask, 0),
    "a producer id without sequence": lambda ask: with_sequence(ask, -1),
    "a transaction": lambda ask: in_transaction(ask, ask.transaction(ask.topic()), ask.name),
    "a transaction that timed out": lambda ask: in_transaction(ask, ask.timed_out()),
    "a transaction without its partition": lambda ask: in_transaction(ask, ask.producer(), ask.topic()),
    "a transaction of an older epoch": lambda ask: in_transaction(ask, ask.transaction()._replace(epoch=-1)),
    "a transaction of a newer epoch": lambda ask: in_transaction(ask, ask.transaction()._replace(epoch=9)),
    "a transaction of another producer": lambda ask: in_transaction(
        ask, ask.transaction()._replace(producer_id=987_655)
    ),
    "an unknown transactional id": lambda ask: in_transaction(ask, NOBODY),
    "an empty transactional id": lambda ask: produce(ask, (ask.topic(), 0, batch()), transactional_id=""),
}


def _without_keys() -> bytes:
    from klamm.records.encoder import encode_batch

    return encode_batch([(TIME_MS, None, b"value", ())])


def fetch(ask: Ask, *parts: tuple[str, int, int], **changes: Any) -> Fields:
    """Returns a fetch. `parts` are topics, partitions and offsets. Changes of a partition's fields apply to all
    partitions."""
    own = {
        "current_leader_epoch": changes.pop("current_leader_epoch", -1),
        "last_fetched_epoch": changes.pop("last_fetched_epoch", -1),
        "log_start_offset": changes.pop("log_start_offset", -1),
        "partition_max_bytes": changes.pop("partition_max_bytes", 1_048_576),
        "replica_directory_id": None,
    }
    replica_id = changes.pop("replica_id", -1)
    topics: dict[str, list[Fields]] = {}
    for topic, partition, offset in parts:
        topics.setdefault(topic, []).append({"partition": partition, "fetch_offset": offset, **own})
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 52_428_800,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic": topic, "topic_id": ask.topic_id(topic), "partitions": wanted} for topic, wanted in topics.items()
        ],
        "forgotten_topics_data": [],
        **changes,
    }


PLAIN = ("plain", 0, 0)

FETCH = {
    "nothing": lambda ask: fetch(ask),
    "all records": lambda ask: fetch(ask, PLAIN),
    "from the middle of a batch": lambda ask: fetch(ask, ("plain", 0, 1)),
    "from the end": lambda ask: fetch(ask, ("plain", 0, 6)),
    "beyond the end": lambda ask: fetch(ask, ("plain", 0, 7)),
    "before the start": lambda ask: fetch(ask, ("trimmed", 0, 0)),
    "from the start of what was trimmed": lambda ask: fetch(ask, ("trimmed", 0, 4)),
    "a negative offset": lambda ask: fetch(ask, ("plain", 0, -1)),
    "two partitions": lambda ask: fetch(ask, PLAIN, ("plain", 1, 0)),
    "a partition twice": lambda ask: fetch(ask, PLAIN, ("plain", 0, 3)),
    "an unknown topic": lambda ask: fetch(ask, ("unknown", 0, 0)),
    "an illegal topic": lambda ask: fetch(ask, ("no/name", 0, 0)),
    "known and unknown": lambda ask: fetch(ask, PLAIN, ("unknown", 0, 0)),
    "an unknown partition": lambda ask: fetch(ask, ("plain", 7, 0)),
    "a negative partition": lambda ask: fetch(ask, ("plain", -1, 0)),
    "a byte of a partition": lambda ask: fetch(ask, PLAIN, partition_max_bytes=1),
    "no byte of a partition": lambda ask: fetch(ask, PLAIN, partition_max_bytes=0),
    "a negative size of a partition": lambda ask: fetch(ask, PLAIN, partition_max_bytes=-1),
    "a byte": lambda ask: fetch(ask, PLAIN, max_bytes=1),
    "no byte": lambda ask: fetch(ask, PLAIN, max_bytes=0),
    "a negative size": lambda ask: fetch(ask, PLAIN, max_bytes=-1),
    "two batches of three": lambda ask: fetch(ask, PLAIN, partition_max_bytes=220),
    "a negative wait": lambda ask: fetch(ask, ("plain", 1, 0), max_wait=-1),
    "negative least bytes": lambda ask: fetch(ask, ("plain", 1, 0), min_bytes=-1),
    "an older leader epoch": lambda ask: fetch(ask, PLAIN, current_leader_epoch=-2),
    "a newer leader epoch": lambda ask: fetch(ask, PLAIN, current_leader_epoch=1_000),
    "an older last epoch": lambda ask: fetch(ask, PLAIN, last_fetched_epoch=0),
    "a newer last epoch": lambda ask: fetch(ask, PLAIN, last_fetched_epoch=1_000),
    "read uncommitted": lambda ask: fetch(ask, ("transactions", 0, 0)),
    "read committed": lambda ask: fetch(ask, ("transactions", 0, 0), isolation_level=1),
    "read committed from the open transaction": lambda ask: fetch(ask, ("transactions", 0, 7), isolation_level=1),
    "an unknown isolation level": lambda ask: fetch(ask, PLAIN, isolation_level=2),
    "a replica that is none": lambda ask: fetch(ask, PLAIN, replica_id=77),
    "the debugging consumer": lambda ask: fetch(ask, PLAIN, replica_id=-2),
    "a rack": lambda ask: fetch(ask, PLAIN, rack_id="r1"),
    "a new session": lambda ask: fetch(ask, PLAIN, session_epoch=0),
    "an unknown session": lambda ask: fetch(ask, PLAIN, session_id=12_345, session_epoch=1),
    "an unknown session is closed": lambda ask: fetch(ask, PLAIN, session_id=12_345, session_epoch=-1),
    "a session epoch without session": lambda ask: fetch(ask, PLAIN, session_id=0, session_epoch=3),
    "another cluster": lambda ask: fetch(ask, PLAIN, cluster_id="another"),
    "an empty partition": lambda ask: fetch(ask, ("plain", 1, 0)),
}


def list_offsets(ask: Ask, *parts: tuple[str, int, int], **changes: Any) -> Fields:
    """`parts` are topics, partitions and times."""
    leader_epoch = changes.pop("current_leader_epoch", -1)
    topics: dict[str, list[Fields]] = {}
    for topic, partition, timestamp in parts:
        wanted = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": leader_epoch}
        topics.setdefault(topic, []).append(wanted)
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": TIMEOUT_MS,
        "topics": [{"name": topic, "partitions": wanted} for topic, wanted in topics.items()],
        **changes,
    }


LIST_OFFSETS = {
    "nothing": lambda ask: list_offsets(ask),
    "the latest": lambda ask: list_offsets(ask, ("plain", 0, -1)),
    "the earliest": lambda ask: list_offsets(ask, ("trimmed", 0, -2)),
    "the largest time": lambda ask: list_offsets(ask, ("plain", 0, -3)),
    "the largest time of none": lambda ask: list_offsets(ask, ("plain", 1, -3)),
    "the earliest here": lambda ask: list_offsets(ask, ("trimmed", 0, -4)),
    "the latest elsewhere": lambda ask: list_offsets(ask, ("plain", 0, -5)),
    "the earliest to come": lambda ask: list_offsets(ask, ("plain", 0, -6)),
    "time -7": lambda ask: list_offsets(ask, ("plain", 0, -7)),
    "the first time": lambda ask: list_offsets(ask, ("plain", 0, TIME_MS)),
    "a time between": lambda ask: list_offsets(ask, ("plain", 0, TIME_MS + 1_500)),
    "a time before": lambda ask: list_offsets(ask, ("plain", 0, 0)),
    "a time before what is kept": lambda ask: list_offsets(ask, ("trimmed", 0, TIME_MS)),
    "a time after": lambda ask: list_offsets(ask, ("plain", 0, TIME_MS + 60_000)),
    "a time of none": lambda ask: list_offsets(ask, ("plain", 1, TIME_MS)),
    "an unknown topic": lambda ask: list_offsets(ask, ("unknown", 0, -1)),
    "an illegal topic": lambda ask: list_offsets(ask, ("no/name", 0, -1)),
    "an unknown partition": lambda ask: list_offsets(ask, ("plain", 9, -1)),
    "a negative partition": lambda ask: list_offsets(ask, ("plain", -1, -1)),
    "a partition twice": lambda ask: list_offsets(ask, ("plain", 0, -1), ("plain", 0, -2)),
    "a newer leader epoch": lambda ask: list_offsets(ask, ("plain", 0, -1), current_leader_epoch=1_000),
    "committed": since(2, lambda ask: list_offsets(ask, ("transactions", 0, -1), isolation_level=1)),
    "the largest committed time": since(2, lambda ask: list_offsets(ask, ("transactions", 0, -3), isolation_level=1)),
    "a committed time": since(2, lambda ask: list_offsets(ask, ("transactions", 0, TIME_MS), isolation_level=1)),
    "an unknown isolation level": since(2, lambda ask: list_offsets(ask, ("plain", 0, -1), isolation_level=2)),
    "a replica that is none": lambda ask: list_offsets(ask, ("plain", 0, -1), replica_id=77),
    "the debugging consumer": lambda ask: list_offsets(ask, ("plain", 0, -1), replica_id=-2),
    "negative time to wait": lambda ask: list_offsets(ask, ("plain", 0, -1), timeout=-1),
}


def epochs(ask: Ask, *parts: tuple[str, int, int], **changes: Any) -> Fields:
    """`parts` are topics, partitions and leader epochs."""
    current = changes.pop("current_leader_epoch", -1)
    topics: dict[str, list[Fields]] = {}
    for topic, partition, epoch in parts:
        wanted = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
        topics.setdefault(topic, []).append(wanted)
    return {
        "replica_id": -1,
        "topics": [{"topic": topic, "partitions": wanted} for topic, wanted in topics.items()],
        **changes,
    }


OFFSET_FOR_LEADER_EPOCH = {
    "nothing": lambda ask: epochs(ask),
    "epoch 0": lambda ask: epochs(ask, ("plain", 0, 0)),
    "epoch 0 of none": lambda ask: epochs(ask, ("plain", 1, 0)),
    "epoch -1": lambda ask: epochs(ask, ("plain", 0, -1)),
    "epoch -2": lambda ask: epochs(ask, ("plain", 0, -2)),
    "a newer epoch": lambda ask: epochs(ask, ("plain", 0, 1_000)),
    "a newer leader epoch": lambda ask: epochs(ask, ("plain", 0, 0), current_leader_epoch=1_000),
    "leader epoch -2": lambda ask: epochs(ask, ("plain", 0, 0), current_leader_epoch=-2),
    "an unknown topic": lambda ask: epochs(ask, ("unknown", 0, 0)),
    "an unknown partition": lambda ask: epochs(ask, ("plain", 9, 0)),
    "a negative partition": lambda ask: epochs(ask, ("plain", -1, 0)),
    "a partition twice": lambda ask: epochs(ask, ("plain", 0, 0), ("plain", 0, 1)),
    "a replica that is none": lambda ask: epochs(ask, ("plain", 0, 0), replica_id=77),
}


def delete_records(*parts: tuple[str, int, int], timeout_ms: int = TIMEOUT_MS) -> Fields:
    """`parts` are topics, partitions and offsets."""
    topics: dict[str, list[Fields]] = {}
    for topic, partition, offset in parts:
        topics.setdefault(topic, []).append({"partition_index": partition, "offset": offset})
    return {
        "topics": [{"name": topic, "partitions": wanted} for topic, wanted in topics.items()],
        "timeout": timeout_ms,
    }


def filled(ask: Ask) -> str:
    """A new topic of three records."""
    topic = ask.topic()
    ask.side.produce(topic, batch(3))
    return topic


DELETE_RECORDS = {
    "nothing": lambda ask: delete_records(),
    "some": lambda ask: delete_records((filled(ask), 0, 2)),
    "all": lambda ask: delete_records((filled(ask), 0, -1)),
    "none": lambda ask: delete_records((filled(ask), 0, 0)),
    "what is deleted": lambda ask: delete_records(("trimmed", 0, 1)),
    "offset -2": lambda ask: delete_records((filled(ask), 0, -2)),
    "beyond the end": lambda ask: delete_records((filled(ask), 0, 4)),
    "of an unknown topic": lambda ask: delete_records(("unknown", 0, 1)),
    "of an illegal topic": lambda ask: delete_records(("no/name", 0, 1)),
    "of an unknown partition": lambda ask: delete_records(("plain", 9, 1)),
    "of a negative partition": lambda ask: delete_records(("plain", -1, 1)),
    "of a partition twice": lambda ask: delete_records((filled(ask), 0, 1), (ask.name, 0, 2)),
    "of a compacted topic": lambda ask: delete_records(("compacted", 0, 0)),
    "of an internal topic": lambda ask: delete_records(("__consumer_offsets", 0, 0)),
    "no time": lambda ask: delete_records((filled(ask), 0, 2), timeout_ms=0),
}


def producers(*parts: tuple[str, list[int]]) -> Fields:
    return {"topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in parts]}


DESCRIBE_PRODUCERS = {
    "nothing": lambda ask: producers(),
    "no partition": lambda ask: producers(("plain", [])),
    "none": lambda ask: producers(("plain", [0, 1])),
    "of transactions": lambda ask: producers(("transactions", [0])),
    "of an unknown topic": lambda ask: producers(("unknown", [0])),
    "of an illegal topic": lambda ask: producers(("no/name", [0])),
    "of an unknown partition": lambda ask: producers(("plain", [9])),
    "of a negative partition": lambda ask: producers(("plain", [-1])),
    "of a partition twice": lambda ask: producers(("plain", [0, 0])),
}

CASES: Cases = {
    ApiKey.PRODUCE: PRODUCE,
    ApiKey.FETCH: FETCH,
    ApiKey.LIST_OFFSETS: LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DELETE_RECORDS: DELETE_RECORDS,
    ApiKey.DESCRIBE_PRODUCERS: DESCRIBE_PRODUCERS,
}
