"""The newest versions of Kafka 4.4's APIs answer what Kafka's do (`version_scenarios.py`).

Every run asks Klamm. `make clients` also asks Kafka, which holds what is expected here to be true."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from tests.clients import version_scenarios as scenarios
from tests.clients.scenarios import Scenario
from tests.support import java_programs, protocol_table
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess

OK = ErrorCode.none
UNKNOWN_ID, UNKNOWN = ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition
INVALID, UNSUPPORTED = ErrorCode.invalid_request, ErrorCode.unsupported_version
INVALID_STATE, ABORTABLE = ErrorCode.invalid_txn_state, ErrorCode.transaction_abortable
SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The version of ListOffsets in which a timestamp got its meaning."""
NOTHING = (OK, -1, -1, False)
FOUND = {-1: (OK, -1, 3, True), -2: (OK, -1, 0, True), -3: (OK, 3_000, 1, True), -4: (OK, -1, 0, True)}
"""The answers as (code, time, offset, whether there is an epoch). All other timestamps find nothing without tiered
storage."""
LEVELS = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "metadata.version": 33,
    "transaction.version": 2,
}


def list_offsets(version: int) -> dict[int | str, Any]:
    answers = {
        timestamp: FOUND.get(timestamp, NOTHING) if version >= since else (UNSUPPORTED, -1, -1, False)
        for timestamp, since in SINCE.items()
    }
    return {
        2_500: [(OK, 3_000, 1, True)],
        9_000: [NOTHING],
        **{timestamp: [answer] for timestamp, answer in answers.items()},
        -7: [(UNSUPPORTED, -1, -1, False)],
        "twice": {INVALID},
        "gone": [(UNKNOWN if version >= SINCE[-5] else UNSUPPORTED, -1, -1, False)],
    }


def metadata(version: int) -> tuple[Any, ...]:
    def since(first: int, value: object) -> object:
        return value if version >= first else "-"

    parts = [(OK, number, 1, (1,), (1,)) for number in range(2)]
    gone = {"-gone": (UNKNOWN, False, [])} if version >= 4 else {}
    topics = {"": (OK, since(1, False), parts), **gone}
    return (1, since(1, None), since(1, 1), 0), True, since(13, OK), topics


def missing_group(version: int) -> tuple[Any, ...]:
    known = version >= 6
    return ErrorCode.group_id_not_found if known else OK, known, "Dead", "", "", ()


def feature_updates(version: int) -> list[Any]:
    def agreed(*names: str) -> tuple[Any, ...]:
        return OK, False, [(name, OK) for name in names] if version < 2 else []

    refused = (ErrorCode.invalid_update_version, True, [])
    return [agreed(), agreed(*sorted(LEVELS)), *[refused] * 3, agreed("transaction.version"), *[refused] * 7]


BY_ID = {
    "there": (OK, 0),
    "no such id": (UNKNOWN_ID, -1),
    "no id": (UNKNOWN_ID, -1),
    "no such partition": (UNKNOWN, -1),
    "by name": (OK, 3),
    "no such name": (UNKNOWN, -1),
}
FETCHED = [(OK, 0), (OK, 3, 3, 0, -1, True), (UNKNOWN_ID, -1, -1, -1, -1, False)]
_THERE = (0, 0, 5, 3, "note", OK)
_OF_NOBODY = [[(number, part, -1, -1, "", UNKNOWN_ID) for part in range(2)] for number in (1, 2)]
OFFSETS_BY_ID = {
    "commit": [(0, OK), (1, UNKNOWN_ID), (2, UNKNOWN_ID)],
    "commit to no partition": [(0, UNKNOWN)],
    "commit to unknown ids": [(0, UNKNOWN_ID)],
    "fetch": (OK, [_THERE, (0, 1, -1, -1, "", OK), *_OF_NOBODY[0], *_OF_NOBODY[1]]),
    "fetch unknown ids": (OK, _OF_NOBODY[0]),
    "fetch all": (OK, [_THERE]),
}
SECOND_PROTOCOL = {
    "produce": (OK, 0),
    "offsets": OK,
    "ongoing": ("Ongoing", ["", "__consumer_offsets"]),
    "stable end before": 0,
    "commit": (OK, True, 1),
    "committed": "CompleteCommit",
    "stable end after": 4,
    "commit again": (OK, True, 1),
    "abort what is committed": (INVALID_STATE, True, None),
    "commit nothing": (INVALID_STATE, True, None),
    "abort nothing": (OK, True, 2),
    "aborted": "CompleteAbort",
    "late": (ErrorCode.invalid_producer_epoch, -1),
}
FIRST_PROTOCOL = {
    "not added, version 9": (INVALID_STATE, -1),
    "not added, version 10": (INVALID_STATE, -1),
    "not added, version 11": (ABORTABLE, -1),
    "add": OK,
    "added": (OK, 0),
    "end": OK,
    "ended": "CompleteCommit",
    "end again": OK,
}
ADDED_FOR_BROKERS = {
    "verify before": (OK, [(0, ABORTABLE)]),
    "add": (OK, [(0, OK)]),
    "verify": (OK, [(0, OK), (1, ABORTABLE)]),
    "new epoch": (OK, [(0, ErrorCode.producer_fenced)]),
    "no such topic": (OK, [(0, UNKNOWN)]),
    "no such transaction": (OK, [(0, ErrorCode.invalid_producer_id_mapping)]),
}
LISTED_TRANSACTIONS = {
    "all": (OK, ["-one", "-two"], ()),
    "empty": (OK, ["-one", "-two"], ()),
    "pattern": (OK, ["-one"], ()),
    "a part": (OK, [], ()),
    "not a pattern": (ErrorCode.invalid_regular_expression, [], ()),
    "unknown state": (OK, ["-one", "-two"], ("Nonsense",)),
    "unknown states": (OK, [], ("Nonsense",)),
}
MARKERS = {
    "none": [],
    "elsewhere": [("", 7, UNKNOWN), ("-gone", 0, UNKNOWN)],
    "open": ([0], 0),
    "abort": [("", 0, OK)],
    "closed": ([-1], 4),
    "again": [("", 0, OK)],
    "newer": [("", 0, OK)],
    "older epoch": [("", 0, ErrorCode.invalid_producer_epoch)],
    "older coordinator": [("", 0, ErrorCode.transaction_coordinator_fenced)],
}
VOTERS = {
    "add to another cluster": ErrorCode.inconsistent_cluster_id,
    "add without directory": INVALID,
    "add without listener": INVALID,
    "add who votes already": ErrorCode.duplicate_voter,
    "remove from another cluster": ErrorCode.inconsistent_cluster_id,
    "remove without directory": INVALID,
    "remove who does not vote": ErrorCode.voter_not_found,
    "remove the last one": ErrorCode.voter_not_found,
}
RANGES = {name: (level, level) for name, level in LEVELS.items()}

CASES: dict[str, tuple[Scenario, Any]] = {
    "topics by id": (scenarios.topics_by_id, BY_ID),
    "offsets by id": (scenarios.offsets_by_id, OFFSETS_BY_ID),
    "log dirs": (scenarios.log_dirs, (OK, OK, False, [(0, 0, 0, False)])),
    "second protocol": (scenarios.second_protocol, SECOND_PROTOCOL),
    "first protocol": (scenarios.first_protocol, FIRST_PROTOCOL),
    "listed transactions": (scenarios.listed_transactions, LISTED_TRANSACTIONS),
    "voters": (scenarios.voters, VOTERS),
    "features 3": (scenarios.features(3), (OK, RANGES, dict.fromkeys(LEVELS))),
    "features 4": (scenarios.features(4), (OK, RANGES, LEVELS)),
    **{f"fetch {one}": (scenarios.fetch(one), FETCHED) for one in (17, 18)},
    **{f"list offsets {one}": (scenarios.list_offsets(one), list_offsets(one)) for one in (4, *range(6, 12))},
    **{f"metadata {one}": (scenarios.metadata(one), metadata(one)) for one in (*range(5), 12, 13)},
    **{f"join {one}": (scenarios.join_group(one), (OK, 1, "range", True, [(True, b"m")])) for one in (0, 1)},
    **{f"missing group {one}": (scenarios.missing_group(one), missing_group(one)) for one in (5, 6)},
    **{f"coordinators {one}": (scenarios.coordinators(one), ((True, 1, OK), (True, 1, OK))) for one in (5, 6)},
    **{f"add for brokers {one}": (scenarios.add_for_brokers(one), ADDED_FOR_BROKERS) for one in (4, 5)},
    **{f"markers {one}": (scenarios.markers(one), MARKERS) for one in (1, 2)},
    **{f"feature updates {one}": (scenarios.feature_updates(one), feature_updates(one)) for one in (1, 2)},
}
every_case = pytest.mark.parametrize(("scenario", "expected"), CASES.values(), ids=CASES.keys())
TELEMETRY = (71, 72)
"""The APIs of telemetry: a Kafka without a plugin does not name them (KIP-714)."""
UPDATE_RAFT_VOTER = 82
"""An API of controllers among themselves."""


@every_case
def test_klamm_gives_the_expected_answer_in_each_version(
    klamm_node: KlammProcess, name: str, scenario: Scenario, expected: Any
) -> None:
    with KafkaWire(klamm_node.kafka_bootstrap) as wire:
        assert scenario(wire, name) == expected


@pytest.mark.parametrize("number", [*TELEMETRY, UPDATE_RAFT_VOTER])
def test_klamm_closes_the_connection_on_an_api_that_it_does_not_serve(klamm_node: KlammProcess, number: int) -> None:
    assert scenarios.is_closed_to(klamm_node.kafka_bootstrap, number)


@pytest.mark.clients
@pytest.mark.timeout(600)
@every_case
def test_apache_kafka_gives_the_expected_answer_in_each_version(
    apache_kafka: ApacheKafka, name: str, scenario: Scenario, expected: Any
) -> None:
    with KafkaWire(apache_kafka.bootstrap) as wire:
        assert scenario(wire, name) == expected


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_apache_kafka_closes_the_connection_on_update_raft_voter(apache_kafka: ApacheKafka) -> None:
    assert scenarios.is_closed_to(apache_kafka.bootstrap, UPDATE_RAFT_VOTER)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_apache_kafka_announces_the_version_ranges_of_the_protocol_table(apache_kafka: ApacheKafka) -> None:
    """The server's ranges are those of the schemas without unstable versions. Only Produce begins at 0, and telemetry
    is missing without a plugin."""
    with KafkaWire(apache_kafka.bootstrap) as wire:
        asked = {"client_software_name": "test", "client_software_version": "1"}
        answer = wire.ask(ApiKey.API_VERSIONS, 4, asked)
    named = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in answer.api_keys}
    said = {row.key: row.kafka for row in protocol_table.rows() if row.key not in TELEMETRY}
    assert named == {**said, ApiKey.PRODUCE: (0, said[ApiKey.PRODUCE][1])}


@pytest.mark.clients
def test_the_protocol_table_has_the_version_ranges_of_kafkas_jar() -> None:
    assert java_programs.classpath()
    jar = next((java_programs.BUILT / "lib").glob("kafka-clients-*.jar"))
    said = {row.name: (row.key, row.kafka) for row in protocol_table.rows()}
    assert said == protocol_table.kafka_ranges(jar)
