"""Questions about producer ids and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.cases_groups import modern_member
from tests.clients.judge.side import Ask, Cases, GroupMembership, TransactionalProducer, since

Fields = Mapping[str, Any]
NOBODY = TransactionalProducer("nobody", 987_654, 0)


def init(transactional_id: str | None, timeout_ms: int = 60_000, **changes: Any) -> Fields:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
        **changes,
    }


def again(producer: TransactionalProducer) -> Fields:
    return init(producer.transactional_id, producer_id=producer.producer_id, producer_epoch=producer.epoch)


INIT_PRODUCER_ID = {
    "idempotent": lambda ask: init(None),
    "idempotent without time": lambda ask: init(None, 0),
    "idempotent with negative time": lambda ask: init(None, -1),
    "idempotent again": since(3, lambda ask: init(None, producer_id=987_654, producer_epoch=3)),
    "an id without epoch": since(3, lambda ask: init(None, producer_id=987_654)),
    "an epoch without id": since(3, lambda ask: init(None, producer_epoch=3)),
    "transactional": lambda ask: init(ask.name),
    "transactional, known": lambda ask: init(ask.producer().transactional_id),
    "transactional, open": lambda ask: init(ask.transaction().transactional_id),
    "an empty id": lambda ask: init(""),
    "no time": lambda ask: init(ask.name, 0),
    "negative time": lambda ask: init(ask.name, -1),
    "too much time": lambda ask: init(ask.name, 900_001),
    "most time": lambda ask: init(ask.name, 900_000),
    "again": since(3, lambda ask: again(ask.producer())),
    "again of an unknown id": since(3, lambda ask: again(NOBODY._replace(transactional_id=ask.name))),
    "again of another producer": since(3, lambda ask: again(ask.producer()._replace(producer_id=987_654))),
    "again of a newer epoch": since(3, lambda ask: again(ask.producer()._replace(epoch=9))),
    "again of an older epoch": since(3, lambda ask: again(fenced(ask))),
    "again after a time-out": since(3, lambda ask: again(ask.timed_out())),
}


def fenced(ask: Ask) -> TransactionalProducer:
    """Two epochs behind."""
    old = ask.producer()
    ask.producer()
    ask.producer()
    return old


def add_partitions(producer: TransactionalProducer, *parts: tuple[str, list[int]], **changes: Any) -> Fields:
    topics = [{"name": topic, "partitions": partitions} for topic, partitions in parts]
    return {
        "v3_and_below_transactional_id": producer.transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": topics,
        "transactions": [
            {
                "transactional_id": producer.transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "verify_only": changes.pop("verify_only", False),
                "topics": topics,
            }
        ],
        **changes,
    }


EMPTY = ("empty", [0])

ADD_PARTITIONS_TO_TXN = {
    "nothing": lambda ask: add_partitions(ask.producer()),
    "no partition": lambda ask: add_partitions(ask.producer(), ("empty", [])),
    "a partition": lambda ask: add_partitions(ask.producer(), EMPTY),
    "a partition twice": lambda ask: add_partitions(ask.producer(), ("empty", [0, 0])),
    "a known partition": lambda ask: add_partitions(ask.transaction(), EMPTY),
    "an unknown topic": lambda ask: add_partitions(ask.producer(), ("unknown", [0])),
    "an illegal topic": lambda ask: add_partitions(ask.producer(), ("no/name", [0])),
    "an unknown partition": lambda ask: add_partitions(ask.producer(), ("empty", [9])),
    "a negative partition": lambda ask: add_partitions(ask.producer(), ("empty", [-1])),
    "known and unknown": lambda ask: add_partitions(ask.producer(), EMPTY, ("unknown", [0])),
    "an unknown id": lambda ask: add_partitions(NOBODY, EMPTY),
    "an empty id": lambda ask: add_partitions(NOBODY._replace(transactional_id=""), EMPTY),
    "another producer": lambda ask: add_partitions(ask.producer()._replace(producer_id=987_654), EMPTY),
    "a newer epoch": lambda ask: add_partitions(ask.producer()._replace(epoch=9), EMPTY),
    "an older epoch": lambda ask: add_partitions(fenced(ask), EMPTY),
    "a negative epoch": lambda ask: add_partitions(ask.producer()._replace(epoch=-1), EMPTY),
    "after a time-out": lambda ask: add_partitions(ask.timed_out(), EMPTY),
    "verify after a time-out": since(4, lambda ask: add_partitions(ask.timed_out(), EMPTY, verify_only=True)),
    "verify a known partition": since(4, lambda ask: add_partitions(ask.transaction(), EMPTY, verify_only=True)),
    "verify another partition": since(
        4, lambda ask: add_partitions(ask.transaction(), ("plain", [0]), verify_only=True)
    ),
    "no transaction": since(5, lambda ask: add_partitions(NOBODY, transactions=[])),
}


def of(producer: TransactionalProducer, **changes: Any) -> Fields:
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        **changes,
    }


ADD_OFFSETS_TO_TXN = {
    "a group": lambda ask: of(ask.producer(), group_id="group"),
    "a group in a transaction": lambda ask: of(ask.transaction(), group_id="group"),
    "an empty group id": lambda ask: of(ask.producer(), group_id=""),
    "an unknown id": lambda ask: of(NOBODY, group_id="group"),
    "an empty id": lambda ask: of(NOBODY._replace(transactional_id=""), group_id="group"),
    "another producer": lambda ask: of(ask.producer()._replace(producer_id=987_654), group_id="group"),
    "a newer epoch": lambda ask: of(ask.producer()._replace(epoch=9), group_id="group"),
    "an older epoch": lambda ask: of(fenced(ask), group_id="group"),
    "after a time-out": lambda ask: of(ask.timed_out(), group_id="group"),
}


def ended(ask: Ask, *, committed: bool) -> TransactionalProducer:
    producer = ask.transaction()
    ask.side.end(producer, committed=committed)
    ask.side.wait_for_end(producer.transactional_id)
    return producer


END_TXN = {
    "commit": lambda ask: of(ask.transaction(), committed=True),
    "abort": lambda ask: of(ask.transaction(), committed=False),
    "commit without transaction": lambda ask: of(ask.producer(), committed=True),
    "abort without transaction": lambda ask: of(ask.producer(), committed=False),
    "commit what is aborted": lambda ask: of(ended(ask, committed=False), committed=True),
    "abort what is committed": lambda ask: of(ended(ask, committed=True), committed=False),
    "an unknown id": lambda ask: of(NOBODY, committed=True),
    "an empty id": lambda ask: of(NOBODY._replace(transactional_id=""), committed=True),
    "another producer": lambda ask: of(ask.transaction()._replace(producer_id=987_654), committed=True),
    "a newer epoch": lambda ask: of(ask.transaction()._replace(epoch=9), committed=True),
    "an older epoch": lambda ask: of(fenced(ask), committed=True),
    "commit after a time-out": lambda ask: of(ask.timed_out(), committed=True),
    "abort after a time-out": lambda ask: of(ask.timed_out(), committed=False),
    "a negative epoch": lambda ask: of(ask.transaction()._replace(epoch=-1), committed=True),
}


def commit(
    ask: Ask,
    producer: TransactionalProducer,
    group: str,
    *parts: tuple[str, int, int],
    member: GroupMembership | None = None,
    **changes: Any,
) -> Fields:
    metadata = changes.pop("metadata", "note")
    topics: dict[str, list[Fields]] = {}
    for topic, partition, offset in parts or (("plain", 0, 1),):
        stored = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        topics.setdefault(topic, []).append(stored)
    return of(
        producer,
        **{
            "group_id": group,
            "generation_id": member.generation if member else -1,
            "member_id": member.member_id if member else "",
            "group_instance_id": None,
            "topics": [
                {"name": topic, "topic_id": ask.topic_id(topic), "partitions": stored}
                for topic, stored in topics.items()
            ],
            **changes,
        },
    )


def with_offsets(ask: Ask) -> TransactionalProducer:
    """A transaction that the group of the same name belongs to."""
    producer = ask.transaction()
    answer = ask.side.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, of(producer, group_id=ask.name))
    assert answer.error_code.name == "none", answer
    return producer


TXN_OFFSET_COMMIT = {
    "nothing": lambda ask: commit(ask, with_offsets(ask), ask.name, topics=[]),
    "a partition": lambda ask: commit(ask, with_offsets(ask), ask.name),
    "a partition of a group that was not added": lambda ask: commit(ask, ask.transaction(), "other"),
    "without a transaction": lambda ask: commit(ask, ask.producer(), ask.name),
    "an unknown topic": lambda ask: commit(ask, with_offsets(ask), ask.name, ("unknown", 0, 1)),
    "an unknown partition": lambda ask: commit(ask, with_offsets(ask), ask.name, ("plain", 9, 1)),
    "a negative partition": lambda ask: commit(ask, with_offsets(ask), ask.name, ("plain", -1, 1)),
    "known and unknown": lambda ask: commit(ask, with_offsets(ask), ask.name, ("plain", 0, 1), ("unknown", 0, 1)),
    "long metadata": lambda ask: commit(ask, with_offsets(ask), ask.name, metadata="x" * 4_097),
    "null metadata": lambda ask: commit(ask, with_offsets(ask), ask.name, metadata=None),
    "an empty group id": lambda ask: commit(ask, ask.transaction(), ""),
    "an empty id": lambda ask: commit(ask, NOBODY._replace(transactional_id=""), ask.name),
    "an unknown id": lambda ask: commit(ask, NOBODY, ask.name),
    "another producer": lambda ask: commit(ask, with_offsets(ask)._replace(producer_id=987_654), ask.name),
    "a newer epoch": lambda ask: commit(ask, with_offsets(ask)._replace(epoch=9), ask.name),
    "a negative epoch": lambda ask: commit(ask, with_offsets(ask)._replace(epoch=-1), ask.name),
    "after a time-out": lambda ask: commit(ask, ask.timed_out(), ask.name),
    "an older epoch": lambda ask: commit(ask, fenced(ask), ask.name),
    "a member": since(3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=ask.member())),
    "an unknown member": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=ask.member()._replace(member_id="nobody"))
    ),
    "an older generation": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=ask.member()._replace(generation=0))
    ),
    "a newer generation": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=ask.member()._replace(generation=99))
    ),
    "an unknown member of no group": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=GroupMembership("", "nobody", 3))
    ),
    "a member of the newer protocol": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=modern_member(ask))
    ),
    "an older epoch of a member of the newer protocol": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=modern_member(ask)._replace(generation=0))
    ),
    "a newer epoch of a member of the newer protocol": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=modern_member(ask)._replace(generation=99))
    ),
    "an unknown member of the newer protocol": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=modern_member(ask)._replace(member_id="nobody"))
    ),
    "an unknown instance": since(
        3, lambda ask: commit(ask, with_offsets(ask), ask.name, member=ask.member(), group_instance_id="nobody")
    ),
}


def transactional_ids(*names: str) -> Fields:
    return {"transactional_ids": names}


DESCRIBE_TRANSACTIONS = {
    "nothing": lambda ask: transactional_ids(),
    "without transaction": lambda ask: transactional_ids(ask.producer().transactional_id),
    "open": lambda ask: transactional_ids(ask.transaction().transactional_id),
    "with offsets": lambda ask: transactional_ids(with_offsets(ask).transactional_id),
    "committed": lambda ask: transactional_ids("committed"),
    "aborted": lambda ask: transactional_ids("aborted"),
    "unknown": lambda ask: transactional_ids("unknown"),
    "empty": lambda ask: transactional_ids(""),
    "twice": lambda ask: transactional_ids("committed", "committed"),
    "known and unknown": lambda ask: transactional_ids("committed", "unknown"),
}


def listed(states: tuple[str, ...] = (), producer_ids: tuple[int, ...] = (), **changes: Any) -> Fields:
    return {
        "state_filters": states,
        "producer_id_filters": producer_ids,
        "duration_filter": -1,
        "transactional_id_pattern": None,
        **changes,
    }


LIST_TRANSACTIONS = {
    "of an unknown state": lambda ask: listed(("Sleeping",)),
    "of known and unknown states": lambda ask: listed(("Sleeping", "Dead")),
    "of state dead": lambda ask: listed(("Dead",)),
    "of an unknown producer": lambda ask: listed(producer_ids=(987_654,)),
    "of the producer of one": lambda ask: listed(producer_ids=(ask.transaction().producer_id,)),
    "of a long duration": since(1, lambda ask: listed(duration_filter=100_000_000)),
    "of a duration of -7": since(1, lambda ask: listed(("Dead",), duration_filter=-7)),
    "of a pattern": since(2, lambda ask: listed(transactional_id_pattern="comm.*ed")),
    "of a pattern of none": since(2, lambda ask: listed(transactional_id_pattern="x+y")),
    "of an empty pattern": since(2, lambda ask: listed(("Dead",), transactional_id_pattern="")),
    "of a bad pattern": since(2, lambda ask: listed(transactional_id_pattern="(")),
}


def marker(producer: TransactionalProducer, *parts: tuple[str, list[int]], **changes: Any) -> Fields:
    """Returns the marker that an operator sends to abort a hanging transaction."""
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": partitions} for topic, partitions in parts],
        "coordinator_epoch": 0,
        "transaction_version": 0,
        **changes,
    }


WRITE_TXN_MARKERS = {
    "nothing": lambda ask: {"markers": []},
    "no topic": lambda ask: {"markers": [marker(ask.producer())]},
    "no partition": lambda ask: {"markers": [marker(ask.producer(), ("empty", []))]},
    "of an open transaction": lambda ask: {"markers": [marker(ask.transaction(), EMPTY)]},
    "of no transaction": lambda ask: {"markers": [marker(ask.producer(), EMPTY)]},
    "of an unknown topic": lambda ask: {"markers": [marker(ask.producer(), ("unknown", [0]))]},
    "of an unknown partition": lambda ask: {"markers": [marker(ask.producer(), ("empty", [9]))]},
    "of an older epoch": lambda ask: {"markers": [marker(ask.transaction()._replace(epoch=-1), EMPTY)]},
}

CASES: Cases = {
    ApiKey.WRITE_TXN_MARKERS: WRITE_TXN_MARKERS,
    ApiKey.INIT_PRODUCER_ID: INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN: ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN: ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN: END_TXN,
    ApiKey.TXN_OFFSET_COMMIT: TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS: DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS: LIST_TRANSACTIONS,
}
