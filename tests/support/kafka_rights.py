"""Requests of every Kafka API, each with its needs, for tests that give a client one right at a time
(`single_rights.py`). The needs are those of the API's row in `klamm_server.security.operations`.

A request changes nothing that another one needs, even if it is allowed. Most name what does not exist, or only
validate.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import APIS, ApiKey
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.broker_harness import batch
from tests.support.canary_cluster import fill, init_producer
from tests.support.every_request import BY_NAME, codes_in, requests, requests_by_name
from tests.support.kafka_wire import KafkaWire
from tests.support.single_rights import GROUP, ID, TOPIC, Case, needs_of, refusals_of
from tests.support.waiting import wait_until

Fields = Mapping[str, Any]

DOOMED: Final = f"{TOPIC}-doomed"
"""A topic that exists until a request deletes it."""
CLASSIC: Final = f"{GROUP}-classic"
"""A group with a committed offset and no member."""
ABSENT: Final = f"{TOPIC}-absent"
ABSENT_GROUP: Final = f"{GROUP}-absent"
ABSENT_ID: Final = f"{ID}-absent"
OPEN_ID: Final = f"{ID}-open"
"""A transactional id with an open transaction."""
_FREE: Final = f"{ID}-free"
"""A transactional id without a transaction."""
_ABSENT_NODE: Final = 99
_HIDDEN: Final = -(2**31)
"""What stands for the operations that a client may perform, if the answer does not have them."""
_NAMES: Final = {
    "group_id": GROUP,
    "group_ids": [GROUP],
    "transactional_id": ID,
}
"""The values of fields of requests, where `every_request.py` has the topic's name."""
_LOGGER_TYPE: Final = 8
_TIMEOUT: Final = {"timeout": 30_000, "timeout_ms": 30_000}
_TRANSACTION_TIMEOUT_MS: Final = 900_000


class KafkaThings:
    """The content of a cluster to which the requests refer. A client with all rights creates it."""

    def __init__(self, wire: KafkaWire, logs: Callable[[], str] = str) -> None:
        self._wire = wire
        self._made = 0
        self.topic_id = self._create(TOPIC)
        self.doomed_id = self._create(DOOMED)
        fill(wire, logs, group_id=GROUP)
        wait_until(self._begin_transaction, logs)
        wait_until(self._is_assigned, logs)

    def renew_doomed(self) -> None:
        """Creates the topic `DOOMED` again, after it was deleted."""
        self.doomed_id = self._create(DOOMED, self.doomed_id)

    def new_name(self) -> str:
        """Returns another name of a missing topic at each call."""
        self._made += 1
        return f"{ABSENT}-{self._made}"

    def _create(self, name: str, former_id: uuid.UUID | None = None) -> uuid.UUID:
        """Creates a topic, and waits until the broker knows it. Returns its id, which is not the former one."""

        def code() -> int:
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            asked = {"topics": [topic], "validate_only": False, **_TIMEOUT}
            (created,) = self._wire.ask(ApiKey.CREATE_TOPICS, 7, asked).topics
            return int(created.error_code)

        wait_until(lambda: code() in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))
        wait_until(lambda: self._topic_id(name) not in (None, former_id))
        topic_id = self._topic_id(name)
        assert topic_id is not None
        return topic_id

    def _topic_id(self, name: str) -> uuid.UUID | None:
        asked = {**requests(name)[ApiKey.METADATA], "allow_auto_topic_creation": False}
        (topic,) = self._wire.ask(ApiKey.METADATA, 12, asked).topics
        topic_id = topic.topic_id
        assert topic_id is None or isinstance(topic_id, uuid.UUID)
        return topic_id

    def _begin_transaction(self) -> bool:
        begun = init_producer(self._wire, OPEN_ID, timeout_ms=_TRANSACTION_TIMEOUT_MS)
        self.producer: Fields = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        return not begun.error_code and codes_in(
            self._wire.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, self.partitions_to_add(OPEN_ID))
        ) == {0}

    def partitions_to_add(self, transactional_id: str) -> Fields:
        """Returns the AddPartitionsToTxn of a client, which has one transaction."""
        return {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": self.producer["producer_id"],
            "v3_and_below_producer_epoch": self.producer["producer_epoch"],
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        }

    def _is_assigned(self) -> bool:
        asked = {**requests(TOPIC)[ApiKey.CONSUMER_GROUP_DESCRIBE], "group_ids": [GROUP]}
        answer = self._wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked)
        return TOPIC in str([member.target_assignment for group in answer.groups for member in group.members])


def kafka_cases(things: KafkaThings) -> list[Case]:
    """Returns the cases of every API. Each need of an API's row is in at least one of its cases."""
    return [
        *_records(things),
        *_topics(things),
        *_groups(),
        *_offsets(things),
        *_transactions(things),
        *_configs(),
        *_cluster(),
    ]


def transactional_batch() -> bytes:
    """Returns a batch of a producer without an open transaction."""
    return bytes(
        encode_batch([(1, b"k", b"v", ())], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    )


def ask(wire: KafkaWire, case: Case) -> str:
    """Returns the outcome of the case for the wire's client."""
    answer = wire.ask(ApiKey[case.call], case.version, case.request())
    return case.outcome((case.codes or codes_in)(answer), answer)


def _case(
    api_key: ApiKey,
    about: str = "",
    *,
    needs: tuple[int, ...] | None = None,
    version: int | None = None,
    request: Callable[[], Fields] | None = None,
    shows: Callable[[Any], bool] | None = None,
    codes: Callable[[Any], Collection[int]] | None = None,
    renew: Callable[[], None] | None = None,
    **changes: object,
) -> Case:
    """Returns a case. `needs` are the places of its needs in the API's row; without them, it has all needs. The request
    is that of `every_request.py` with these `changes`, if `request` does not make it."""
    row = needs_of(APIS[api_key].check)
    its_needs = row if needs is None else tuple(row[place] for place in needs)
    base = {**requests(TOPIC), **requests_by_name(TOPIC)}.get(api_key, {})
    fields = {**_named(base), **changes}
    return Case(
        api_key.name,
        about,
        its_needs,
        (lambda: fields) if request is None else request,
        refusals_of(its_needs),
        BY_NAME.get(api_key, SPOKEN[api_key].max) if version is None else version,
        shows,
        codes,
        renew,
    )


def _named(fields: Any) -> Any:
    """Returns the fields of a request with the names of a group and a transactional id for that of the topic."""
    if isinstance(fields, list):
        return [_named(field) for field in fields]
    if not isinstance(fields, dict):
        return fields
    named = {name: _named(value) for name, value in fields.items()}
    return named | {name: value for name, value in _NAMES.items() if named.get(name) is not None}


def _shows_topic(answer: Any) -> bool:
    return TOPIC in str(answer)


def _shows_operations(answer: Any) -> bool:
    return answer.cluster_authorized_operations not in (0, _HIDDEN)


def _records(things: KafkaThings) -> list[Case]:
    by_name = requests_by_name(TOPIC)
    data = [{"index": 0, "records": batch()}]
    (fetched,) = by_name[ApiKey.FETCH]["topics"]
    return [
        _case(ApiKey.PRODUCE, needs=(1,)),
        _case(
            ApiKey.PRODUCE,
            "in a transaction",
            needs=(0, 1),
            transactional_id=ID,
            topic_data=[{"name": TOPIC, "partition_data": [{"index": 0, "records": transactional_batch()}]}],
        ),
        _case(
            ApiKey.PRODUCE,
            "to an internal topic",
            needs=(2,),
            topic_data=[{"name": GROUP_METADATA_TOPIC, "partition_data": data}],
        ),
        _case(
            ApiKey.PRODUCE,
            "by topic id",
            needs=(1,),
            version=SPOKEN[ApiKey.PRODUCE].max,
            topic_data=[{"topic_id": things.topic_id, "partition_data": data}],
        ),
        _case(ApiKey.FETCH),
        _case(
            ApiKey.FETCH,
            "by topic id",
            version=SPOKEN[ApiKey.FETCH].max,
            topics=[{"topic_id": things.topic_id, "partitions": fetched["partitions"]}],
        ),
        _case(ApiKey.LIST_OFFSETS),
        _case(
            ApiKey.DELETE_RECORDS,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
        ),
        _case(ApiKey.OFFSET_FOR_LEADER_EPOCH),
        _case(ApiKey.DESCRIBE_PRODUCERS),
    ]


def _topics(things: KafkaThings) -> list[Case]:
    topic = {"name": ABSENT, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return [
        _case(ApiKey.METADATA, needs=(0,), allow_auto_topic_creation=False),
        _case(
            ApiKey.METADATA,
            "by topic id",
            needs=(0,),
            topics=[{"topic_id": things.topic_id, "name": None}],
        ),
        _case(ApiKey.METADATA, "of all topics", needs=(1,), topics=None, shows=_shows_topic),
        _case(
            ApiKey.METADATA,
            "of a missing topic",
            needs=(0, 2),
            request=lambda: {
                **requests(TOPIC)[ApiKey.METADATA],
                "topics": [{"topic_id": None, "name": things.new_name()}],
            },
        ),
        _case(
            ApiKey.METADATA,
            "with operations on the cluster",
            needs=(3,),
            version=10,
            topics=[],
            include_cluster_authorized_operations=True,
            shows=_shows_operations,
        ),
        _case(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            needs=(0,),
            topics=[{"name": TOPIC}],
            response_partition_limit=100,
            cursor=None,
        ),
        _case(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            "of all topics",
            needs=(1,),
            topics=[],
            response_partition_limit=100,
            cursor=None,
            shows=_shows_topic,
        ),
        _case(
            ApiKey.CREATE_TOPICS,
            topics=[topic],
            validate_only=True,
            shows=lambda answer: answer.topics[0].num_partitions == 1,
            codes=lambda answer: [one.error_code for one in answer.topics],
        ),
        _case(
            ApiKey.DELETE_TOPICS,
            needs=(0,),
            topics=[{"name": DOOMED, "topic_id": None}],
            renew=things.renew_doomed,
        ),
        _case(
            ApiKey.DELETE_TOPICS,
            "by topic id",
            needs=(0,),
            request=lambda: {
                **requests(TOPIC)[ApiKey.DELETE_TOPICS],
                "topics": [{"name": None, "topic_id": things.doomed_id}],
            },
            renew=things.renew_doomed,
        ),
        _case(
            ApiKey.DELETE_TOPICS,
            "of a missing topic",
            needs=(1,),
            topics=[{"name": ABSENT, "topic_id": None}],
        ),
        _case(ApiKey.CREATE_PARTITIONS, validate_only=True),
    ]


def _groups() -> list[Case]:
    return [
        _case(ApiKey.FIND_COORDINATOR, "of a group", needs=(0,), coordinator_keys=[GROUP]),
        _case(ApiKey.FIND_COORDINATOR, "of a transactional id", needs=(1,), key_type=1, coordinator_keys=[ID]),
        _case(ApiKey.JOIN_GROUP),
        _case(ApiKey.SYNC_GROUP),
        _case(ApiKey.HEARTBEAT),
        _case(ApiKey.LEAVE_GROUP),
        _case(ApiKey.DESCRIBE_GROUPS, groups=[GROUP]),
        _case(ApiKey.LIST_GROUPS, shows=lambda answer: GROUP in str(answer)),
        _case(ApiKey.DELETE_GROUPS, groups_names=[ABSENT_GROUP]),
        _case(ApiKey.CONSUMER_GROUP_HEARTBEAT, member_epoch=5),
        _case(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            "with an expression",
            needs=(0,),
            member_epoch=5,
            subscribed_topic_names=None,
            subscribed_topic_regex=f"{TOPIC}.*",
        ),
        _case(ApiKey.CONSUMER_GROUP_DESCRIBE),
    ]


def _offsets(things: KafkaThings) -> list[Case]:
    (committed,) = requests_by_name(TOPIC)[ApiKey.OFFSET_COMMIT]["topics"]
    group = {"group_id": CLASSIC, "member_id": None, "member_epoch": -1}
    return [
        _case(ApiKey.OFFSET_COMMIT, group_id=CLASSIC),
        _case(
            ApiKey.OFFSET_COMMIT,
            "by topic id",
            version=SPOKEN[ApiKey.OFFSET_COMMIT].max,
            group_id=CLASSIC,
            topics=[{"topic_id": things.topic_id, "partitions": committed["partitions"]}],
        ),
        _case(
            ApiKey.OFFSET_FETCH,
            needs=(0, 1),
            groups=[{**group, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}],
        ),
        _case(
            ApiKey.OFFSET_FETCH,
            "by topic id",
            needs=(0, 1),
            version=SPOKEN[ApiKey.OFFSET_FETCH].max,
            groups=[{**group, "topics": [{"topic_id": things.topic_id, "partition_indexes": [0]}]}],
        ),
        _case(
            ApiKey.OFFSET_FETCH,
            "of one group",
            needs=(0, 1),
            version=7,
            group_id=CLASSIC,
            topics=[{"name": TOPIC, "partition_indexes": [0]}],
        ),
        _case(
            ApiKey.OFFSET_FETCH,
            "of all topics",
            needs=(0, 2),
            groups=[{**group, "topics": None}],
            shows=lambda answer: bool(answer.groups[0].topics),
        ),
        # Another partition than that of the offset, without which the group would end.
        _case(
            ApiKey.OFFSET_DELETE,
            group_id=CLASSIC,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 5}]}],
        ),
    ]


def _transactions(things: KafkaThings) -> list[Case]:
    by_name = requests_by_name(TOPIC)
    (offsets,) = by_name[ApiKey.OFFSET_COMMIT]["topics"]
    commit = {
        "transactional_id": OPEN_ID,
        "group_id": f"{GROUP}-in-transaction",
        "generation_id": -1,
        "member_id": "",
        **things.producer,
    }
    return [
        _case(ApiKey.INIT_PRODUCER_ID, needs=(0,), transactional_id=_FREE),
        _case(ApiKey.INIT_PRODUCER_ID, "without a transactional id", needs=(1,), transactional_id=None),
        _case(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            needs=(0, 1),
            version=3,
            request=lambda: things.partitions_to_add(OPEN_ID),
        ),
        _case(ApiKey.ADD_PARTITIONS_TO_TXN, "of servers", needs=(2,)),
        _case(ApiKey.ADD_OFFSETS_TO_TXN, transactional_id=ABSENT_ID),
        _case(ApiKey.END_TXN, transactional_id=ABSENT_ID),
        _case(ApiKey.TXN_OFFSET_COMMIT, topics=[offsets], **commit),
        _case(
            ApiKey.TXN_OFFSET_COMMIT,
            "by topic id",
            version=SPOKEN[ApiKey.TXN_OFFSET_COMMIT].max,
            topics=[{"topic_id": things.topic_id, "partitions": offsets["partitions"]}],
            **commit,
        ),
        _case(ApiKey.WRITE_TXN_MARKERS),
        _case(
            ApiKey.DESCRIBE_TRANSACTIONS,
            transactional_ids=[OPEN_ID],
            shows=lambda answer: bool(answer.transaction_states[0].topics),
        ),
        _case(ApiKey.LIST_TRANSACTIONS, shows=lambda answer: OPEN_ID in str(answer)),
    ]


def _configs() -> list[Case]:
    cases: list[Case] = []
    kinds: list[tuple[int, str, int, str, Fields]] = [
        (0, "of a topic", 2, TOPIC, {"name": "retention.ms", "value": "1000"}),
        (1, "of a group", 32, GROUP, {"name": "consumer.session.timeout.ms", "value": "50000"}),
        (2, "of a broker", 4, "1", {"name": "log.cleaner.threads", "value": "1"}),
        (2, "of a broker's logger", _LOGGER_TYPE, "1", {"name": "kafka", "value": "INFO"}),
        (2, "of client metrics", 16, TOPIC, {"name": "interval.ms", "value": "1000"}),
    ]
    for place, about, resource_type, name, config in kinds:
        resource = {"resource_type": resource_type, "resource_name": name}
        change = {**config, "config_operation": 0}
        cases += [
            _case(
                ApiKey.DESCRIBE_CONFIGS,
                about,
                needs=(place,),
                resources=[{**resource, "configuration_keys": None}],
            ),
            _case(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                about,
                needs=(place,),
                resources=[{**resource, "configs": [change]}],
                validate_only=True,
            ),
        ]
        # Kafka's older API refuses loggers, whatever the caller's rights are.
        if resource_type != _LOGGER_TYPE:
            altered = [{**resource, "configs": [config]}]
            cases.append(_case(ApiKey.ALTER_CONFIGS, about, needs=(place,), resources=altered, validate_only=True))
    return [*cases, _case(ApiKey.LIST_CONFIG_RESOURCES)]


def _cluster() -> list[Case]:
    nobody = "User:nobody"
    (acl_filter,) = requests(TOPIC)[ApiKey.DELETE_ACLS]["filters"]
    (reassignment,) = requests(TOPIC)[ApiKey.ALTER_PARTITION_REASSIGNMENTS]["topics"]
    (partition,) = reassignment["partitions"]
    return [
        # The requests of a login, at a listener without logins.
        _case(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN"),
        _case(ApiKey.SASL_AUTHENTICATE, auth_bytes=b""),
        _case(ApiKey.API_VERSIONS),
        _case(ApiKey.DESCRIBE_ACLS, principal_filter=nobody),
        _case(ApiKey.CREATE_ACLS),
        _case(ApiKey.DELETE_ACLS, filters=[{**acl_filter, "principal_filter": nobody}]),
        _case(ApiKey.ALTER_REPLICA_LOG_DIRS),
        _case(ApiKey.DESCRIBE_LOG_DIRS),
        _case(ApiKey.ELECT_LEADERS),
        # Without replicas, the request cancels a reassignment, and there is none.
        _case(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            topics=[{**reassignment, "partitions": [{**partition, "replicas": None}]}],
        ),
        _case(ApiKey.LIST_PARTITION_REASSIGNMENTS),
        _case(ApiKey.DESCRIBE_CLIENT_QUOTAS),
        _case(ApiKey.ALTER_CLIENT_QUOTAS, validate_only=True),
        # Kafka does not answer a refused request for all users.
        _case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=[{"name": TOPIC}]),
        _case(ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
        _case(ApiKey.DESCRIBE_QUORUM),
        _case(ApiKey.UPDATE_FEATURES),
        _case(ApiKey.DESCRIBE_CLUSTER, shows=_shows_operations),
        _case(ApiKey.UNREGISTER_BROKER, broker_id=_ABSENT_NODE),
        _case(ApiKey.ADD_RAFT_VOTER, cluster_id=ABSENT),
        _case(ApiKey.REMOVE_RAFT_VOTER, cluster_id=ABSENT),
    ]
