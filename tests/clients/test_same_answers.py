"""Klamm answers what Apache Kafka answers: the same scenarios (`scenarios.py`), the same results, field by field.

Klamm's half is among the tests, Kafka's is run by `make clients` and holds what is expected here to be true."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.served_apis import SPOKEN
from tests.clients import migration_scenario, scenarios
from tests.clients.scenarios import IMPOSSIBLE_NAMES, NEGATIVE, Scenario, newest
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess

BY_HAND = [
    *[ErrorCode.invalid_replica_assignment] * 6,
    *[ErrorCode.invalid_partitions] * 3,
    ErrorCode.none,
    ErrorCode.invalid_partitions,
    ErrorCode.unknown_topic_or_partition,
]
ODD_JOINS = {
    "impossible names": ErrorCode.none,
    "no subscription": ErrorCode.none,
    "garbage": ErrorCode.none,
    "a protocol without a name": ErrorCode.none,
    "no protocols": ErrorCode.inconsistent_group_protocol,
    "no protocol type": ErrorCode.inconsistent_group_protocol,
    "another protocol type": ErrorCode.none,
    "no group": ErrorCode.invalid_group_id,
    "a short session": ErrorCode.invalid_session_timeout,
    "a long session": ErrorCode.invalid_session_timeout,
    "no rebalance timeout": ErrorCode.none,
    "a negative rebalance timeout": ErrorCode.none,
    "an unknown member": ErrorCode.unknown_member_id,
}
NOT_ASKED_FOR, CLUSTER, TOPIC, GROUP = -(2**31), 8096, 3576, 3400


def offsets(leader_epoch: int = 3) -> tuple[Any, ...]:
    """Returns the error codes, the offsets of the partitions fetched by name (the last one has none), and all stored
    offsets."""
    stored = [(number, offset, leader_epoch, "a note", ErrorCode.none) for number, offset in enumerate([*NEGATIVE, 7])]
    nothing = (len(stored), -1, -1, "", ErrorCode.none)
    return [(number, ErrorCode.none) for number, *_ in stored], [*stored, nothing], stored


def operations(cluster: int, topic: int, group: int) -> dict[str, Any]:
    return {
        "cluster": {cluster},
        "topics": [{"": topic, "-gone": topic, "a b": topic}] * 3,
        "unknown topic id": [NOT_ASKED_FOR],
        # Always given: the request has no flag.
        "pages": {"": TOPIC, "-gone": TOPIC},
        # Before version 6 a group that there is not is a dead one.
        "groups": [
            {"": (ErrorCode.none, group), "-gone": (ErrorCode.none, group)},
            {"": (ErrorCode.none, group), "-gone": (ErrorCode.none, group)},
            {"": (ErrorCode.none, group), "-gone": (ErrorCode.group_id_not_found, NOT_ASKED_FOR)},
        ],
        "consumer groups": {
            "": (ErrorCode.group_id_not_found, NOT_ASKED_FOR),
            "-gone": (ErrorCode.group_id_not_found, NOT_ASKED_FOR),
        },
    }


def blamed(log_start_offset: int) -> dict[str, Any]:
    """Code, indexes of the records to blame, base offset and log start offset."""
    invalid, timestamp = ErrorCode.invalid_record, ErrorCode.invalid_timestamp

    def refused(error: ErrorCode, *indexes: int) -> tuple[Any, ...]:
        return error, list(indexes), -1, log_start_offset

    def written(base_offset: int) -> tuple[Any, ...]:
        return ErrorCode.none, [], base_offset, log_start_offset

    return {
        "compacted, good": written(0),
        "compacted, keyless": refused(invalid, 1, 3),
        "compacted, one keyless": refused(invalid, 0),
        "compacted, too new": refused(timestamp, 1),
        "compacted, too old": written(2),
        "compacted, everything": refused(timestamp, 0, 1, 2),
        "dated, good": written(0),
        "dated, keyless": written(2),
        "dated, one keyless": written(6),
        "dated, too new": refused(timestamp, 1),
        "dated, too old": refused(timestamp, 0, 2),
        "dated, everything": refused(timestamp, 0, 2),
        "both, good": written(0),
        "both, keyless": refused(invalid, 1, 3),
        "both, one keyless": refused(invalid, 0),
        "both, too new": refused(timestamp, 1),
        "both, too old": refused(timestamp, 0, 2),
        "both, everything": refused(timestamp, 0, 1, 2),
    }


CASES: dict[str, tuple[Scenario, Any]] = {
    "partitions by hand, first version": (
        scenarios.partitions_by_hand(SPOKEN[ApiKey.CREATE_PARTITIONS].min),
        BY_HAND,
    ),
    "partitions by hand, newest version": (scenarios.partitions_by_hand(newest(ApiKey.CREATE_PARTITIONS)), BY_HAND),
    "negative offsets, first version": (scenarios.negative_offsets(SPOKEN[ApiKey.OFFSET_COMMIT].min), offsets(-1)),
    "negative offsets": (scenarios.negative_offsets(9), offsets()),
    "negative offsets of a transaction": (scenarios.negative_offsets_of_a_transaction, offsets()),
    "impossible subscriptions": (
        scenarios.impossible_subscriptions,
        (ErrorCode.none, [(True, (0, 1))], [set(IMPOSSIBLE_NAMES)]),
    ),
    "changes of a group's protocol": (migration_scenario.changes_of_protocol, migration_scenario.ANSWERS),
    "odd joins": (scenarios.odd_joins, ODD_JOINS),
    "operations that nobody asks for": (
        scenarios.operations(False),
        operations(NOT_ASKED_FOR, NOT_ASKED_FOR, NOT_ASKED_FOR),
    ),
    "operations": (scenarios.operations(True), operations(CLUSTER, TOPIC, GROUP)),
    "blamed records": (scenarios.blamed_records(8), blamed(0)),
    "blamed records, newest version": (scenarios.blamed_records(newest(ApiKey.PRODUCE)), blamed(0)),
}
every_case = pytest.mark.parametrize(("scenario", "expected"), CASES.values(), ids=CASES.keys())


@every_case
def test_klamm_gives_the_expected_answer(
    klamm_node: KlammProcess, name: str, scenario: Scenario, expected: Any
) -> None:
    with KafkaWire(klamm_node.kafka_bootstrap) as wire:
        assert scenario(wire, name) == expected


@pytest.mark.clients
@pytest.mark.timeout(600)
@every_case
def test_apache_kafka_gives_the_expected_answer(
    apache_kafka: ApacheKafka, name: str, scenario: Scenario, expected: Any
) -> None:
    with KafkaWire(apache_kafka.bootstrap) as wire:
        assert scenario(wire, name) == expected
