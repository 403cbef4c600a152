"""The differences between Klamm's answers and Apache Kafka 4.4.0's, with their reasons. The sweep must find exactly
these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.differ import Found

EVERY = ("*",)
"""The pattern for cases that matches all of them. The difference is in all cases, or at least in some."""
_CREATES_A_TOPIC = (
    "a config",
    "default partitions",
    "a config twice",
    "a topic",
    "an assignment",
    "an assignment of two partitions",
    "good and bad",
    "a topic twice beside another",
)
"""Questions of CREATE_TOPICS whose answers list the configs of the topic that they created."""


class Difference(NamedTuple):
    """A difference in the answers to some questions about one API. `field`, `ours` and `kafka` are patterns with
    `*`."""

    api_key: ApiKey
    cases: tuple[str, ...]
    field: str
    """The field's path, with dots between structures. Empty for the answer as a whole."""
    ours: str
    kafka: str
    why: str
    with_others: bool = False
    """Other fields of these answers differ in consequence."""
    comes_and_goes: bool = False
    """Kafka answers the same question differently from moment to moment, so both may also be equal."""

    def is_about(self, case: str, found: Found) -> bool:
        """True if the difference is exactly this one."""
        return (
            (case in self.cases or self.cases == EVERY)
            and fnmatchcase(found.field, self.field)
            and fnmatchcase(found.ours, self.ours)
            and fnmatchcase(found.kafka, self.kafka)
        )


def check(
    api_key: ApiKey, observed: Mapping[tuple[str, Found], Sequence[int]], known: Sequence[Difference]
) -> tuple[list[str], list[str]]:
    """Returns the differences without an explanation, and the explained differences that were not found, as lines for
    people."""
    known = [one for one in known if one.api_key is api_key]
    seen: dict[Difference, set[str]] = {one: set() for one in known}
    for case, found in observed:
        for one in known:
            if one.is_about(case, found):
                seen[one].add(case)
    unexpected = [
        f"{api_key.name}, {case!r}, version {_text(versions)}: {found.field or 'the answer'}:"
        f" ours {found.ours}, Kafka's {found.kafka}"
        for (case, found), versions in observed.items()
        if not any(one.is_about(case, found) or (one.with_others and case in seen[one]) for one in known)
    ]
    vanished = [
        f"{api_key.name}, {case!r}: {one.field or 'the answer'}: ours {one.ours}, Kafka's {one.kafka}"
        for one in known
        for case in one.cases
        if not one.comes_and_goes
        if case not in seen[one] and not (one.cases == EVERY and seen[one])
    ]
    return unexpected, vanished


def _text(versions: Sequence[int]) -> str:
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


_EMPTY_GROUP = "An empty group id is a missing setting; Kafka takes one for consumers of before its version 0.9."
_TWICE = "What is named twice is not answered as Kafka answers it: its own APIs differ, too. No client does it."
_NEGATIVE_EPOCH = "No producer has a negative epoch: the request is refused before its transaction is looked up."
_SAYS_WHAT = "The code says what is wrong."
_CLOSES = "A number that no client sends ends the connection, as does what cannot be read."
_NO_SUCH_CONFIGS = "Groups and metrics of clients have no configs of their own."
_NO_AUTHORIZER = "There is no authorizer to ask. Over a number that stands for nothing Kafka ends the connection."

KNOWN: Sequence[Difference] = (
    Difference(
        ApiKey.PRODUCE,
        ("a partition twice",),
        "",
        "closes the connection",
        "answers",
        "It cannot be said which of the two batches is meant; Kafka keeps one of them.",
    ),
    Difference(
        ApiKey.PRODUCE,
        ("null records",),
        "",
        "answers invalid_record",
        "does not answer",
        "Kafka leaves its client without an answer.",
    ),
    Difference(
        ApiKey.PRODUCE,
        ("half a batch", "a cut batch"),
        "responses.partition_responses.error_code",
        "corrupt_message",
        "invalid_record",
        "What ends before its time was damaged on the way: a client may send it again.",
    ),
    Difference(
        ApiKey.PRODUCE,
        ("two batches",),
        "responses.partition_responses.error_code",
        "none",
        "invalid_record",
        "Each is checked and appended by itself.",
        with_others=True,
    ),
    Difference(
        ApiKey.PRODUCE,
        ("a base offset",),
        "responses.partition_responses.error_code",
        "none",
        "invalid_record",
        "The leader gives every batch its offset, whatever a client has put there.",
        with_others=True,
    ),
    Difference(
        ApiKey.PRODUCE,
        ("magic 3",),
        "responses.partition_responses.error_code",
        "invalid_record",
        "corrupt_message",
        _SAYS_WHAT,
    ),
    Difference(
        ApiKey.PRODUCE,
        ("zstd",),
        "responses.partition_responses.error_code",
        "none",
        "unsupported_compression_type",
        "Before version 7 Kafka takes none, for the sake of consumers of that time.",
        with_others=True,
    ),
    Difference(
        ApiKey.PRODUCE,
        ("a transactional batch without id",),
        "responses.partition_responses.error_code",
        "invalid_txn_state",
        "transactional_id_authorization_failed",
        _SAYS_WHAT,
    ),
    Difference(
        ApiKey.PRODUCE,
        ("a sequence from the middle",),
        "responses.partition_responses.error_code",
        "out_of_order_sequence_number",
        "none",
        "A partition that never had a record refuses a sequence above 0, as Kafka 4.5 does (KAFKA-15591), because an"
        " earlier batch is still on its way. Kafka 4.4 refuses that batch when it comes.",
        with_others=True,
    ),
    Difference(
        ApiKey.PRODUCE,
        ("a transaction of an older epoch",),
        "responses.partition_responses.error_code",
        "invalid_request",
        "invalid_producer_epoch",
        _NEGATIVE_EPOCH,
    ),
    Difference(
        ApiKey.PRODUCE,
        (
            "a control batch",
            "gaps in offsets",
            "fewer records than offsets",
            "a producer id without sequence",
        ),
        "responses.partition_responses.log_start_offset",
        "-1",
        "0",
        "An error comes without the start of the log: nothing was written.",
    ),
    Difference(
        ApiKey.FETCH,
        ("an unknown isolation level", "a replica that is none", "the debugging consumer"),
        "",
        "closes the connection",
        "answers*",
        _CLOSES,
        with_others=True,
    ),
    Difference(
        ApiKey.FETCH,
        ("a replica that is none",),
        "responses.partitions.error_code",
        "none",
        "not_leader_or_follower",
        "From version 15 on a replica says its number in a tagged field, which is not read here.",
        with_others=True,
    ),
    Difference(
        ApiKey.FETCH,
        ("a negative size", "a negative size of a partition"),
        "responses.partitions.error_code",
        "none",
        "unknown_server_error",
        "A negative size is taken for 0: the first batch comes whole, as with every size that is too small.",
        with_others=True,
    ),
    Difference(
        ApiKey.FETCH,
        ("two batches of three",),
        "responses.partitions.records",
        "*",
        "*",
        "Only whole batches are sent; Kafka cuts the last one at the size, and clients throw the piece away.",
    ),
    Difference(
        ApiKey.FETCH,
        ("a newer last epoch",),
        "responses.partitions.error_code",
        "none",
        "offset_out_of_range",
        "Only followers say their last epoch, and Klamm's do not ask in this way.",
        with_others=True,
    ),
    Difference(
        ApiKey.FETCH,
        ("beyond the end", "before the start", "a negative offset", "a newer leader epoch"),
        "responses.partitions.log_start_offset",
        "*",
        "-1",
        "An error comes with the start of the log as well: it is known.",
    ),
    Difference(ApiKey.FETCH, ("a partition twice",), "responses.partitions", "0", "nothing", _TWICE, with_others=True),
    Difference(
        ApiKey.FETCH,
        EVERY,
        "responses.partitions.aborted_transactions",
        "[]",
        "null",
        "A reader of uncommitted records gets an empty list of aborted transactions in place of none.",
    ),
    Difference(ApiKey.LIST_OFFSETS, ("an unknown isolation level",), "", "closes the connection", "answers*", _CLOSES),
    Difference(
        ApiKey.LIST_OFFSETS, ("a partition twice",), "topics.partitions", "0 invalid_request", "nothing", _TWICE
    ),
    Difference(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ("epoch -2",),
        "topics.partitions.leader_epoch",
        "-1",
        "-2",
        "A negative epoch is none, so it has no end.",
        with_others=True,
    ),
    Difference(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ("leader epoch -2",),
        "topics.partitions.error_code",
        "none",
        "fenced_leader_epoch",
        "A negative leader epoch stands for none; Kafka takes only -1 for it.",
        with_others=True,
    ),
    Difference(ApiKey.DELETE_RECORDS, ("of a partition twice",), "topics.partitions", "0", "nothing", _TWICE),
    Difference(
        ApiKey.DESCRIBE_PRODUCERS,
        ("no partition",),
        "topics",
        "nothing",
        "plain",
        "A topic without partitions is left out.",
    ),
    Difference(
        ApiKey.DESCRIBE_PRODUCERS,
        ("of transactions",),
        "topics.partitions.active_producers.last_timestamp",
        "now",
        "1700000001000",
        "It is the time of the append, by which idle producers are forgotten. Kafka answers with the time of the last"
        " batch, which is the records' time, or the present once a marker has ended the transaction.",
        comes_and_goes=True,
    ),
    Difference(
        ApiKey.METADATA,
        ("an unknown topic, to be created", "an unknown topic", "known and unknown"),
        "topics.error_code",
        "*",
        "unknown_topic_or_partition",
        "The answer waits for the new topic, for a second at most, and has it; Kafka's says that it is not there yet.",
        with_others=True,
    ),
    Difference(
        ApiKey.METADATA,
        ("the cluster's metadata",),
        "topics.error_code",
        "leader_not_available",
        "unknown_topic_or_partition",
        "The name is refused when the topic is to be created, which the answer does not wait to hear.",
    ),
    Difference(
        ApiKey.METADATA,
        ("a null name", "an id in older versions", "neither name nor id"),
        "controller_id",
        "1",
        "-1",
        "An id is read from version 10 on, where the format has it; Kafka refuses it before 12. Over a null name"
        " Kafka fails.",
        with_others=True,
    ),
    Difference(
        ApiKey.METADATA,
        ("names and ids mixed",),
        "topics",
        "plain",
        "nothing",
        "All that is asked for is answered; Kafka leaves the names out when there is an id.",
    ),
    Difference(
        ApiKey.CREATE_TOPICS,
        ("a topic twice", "a topic twice beside another"),
        "topics",
        "new invalid_request",
        "nothing",
        _TWICE,
    ),
    Difference(
        ApiKey.CREATE_TOPICS,
        ("a topic, validated",),
        "topics.configs",
        "nothing",
        "*",
        "What is only validated has no configs yet.",
    ),
    Difference(
        ApiKey.CREATE_TOPICS,
        (*_CREATES_A_TOPIC, "a name that collides"),
        "topics.configs.config_source",
        "5",
        "3",
        "`min.insync.replicas`: Kafka sets it for the whole cluster when it enables eligible leader replicas.",
    ),
    Difference(
        ApiKey.CREATE_TOPICS,
        _CREATES_A_TOPIC,
        "topics.configs",
        "unclean.recovery.strategy",
        "nothing",
        "Kafka does not have unclean recovery (KIP-966) yet.",
    ),
    *(
        Difference(
            ApiKey.CREATE_TOPICS,
            _CREATES_A_TOPIC,
            "topics.configs",
            name,
            "nothing",
            "Retention can wait for groups here.",
        )
        for name in ("retention.hold.groups", "retention.hold.max.bytes", "retention.hold.max.ms")
    ),
    Difference(
        ApiKey.CREATE_TOPICS,
        ("a name that collides",),
        "topics.error_code",
        "invalid_topic_exception",
        "none",
        "Two new names of one request can collide as well.",
        with_others=True,
    ),
    Difference(ApiKey.DELETE_TOPICS, ("a topic twice",), "responses", "new invalid_request", "nothing", _TWICE),
    Difference(
        ApiKey.DELETE_TOPICS,
        ("name and id",),
        "responses",
        "null invalid_request",
        "nothing",
        _TWICE,
        with_others=True,
    ),
    Difference(
        ApiKey.DELETE_TOPICS,
        ("no time", "a topic twice"),
        "responses.topic_id",
        "new",
        "null",
        "A topic that was not deleted in time, or not at all, is named with its id.",
    ),
    Difference(ApiKey.CREATE_PARTITIONS, ("of a topic twice",), "results", "new invalid_request", "nothing", _TWICE),
    Difference(
        ApiKey.DESCRIBE_CONFIGS,
        ("an unknown broker",),
        "results.error_code",
        "broker_id_not_registered",
        "invalid_request",
        _SAYS_WHAT,
    ),
    Difference(
        ApiKey.DESCRIBE_CONFIGS,
        ("a group", "client metrics"),
        "results.error_code",
        "invalid_request",
        "none",
        _NO_SUCH_CONFIGS,
        with_others=True,
    ),
    Difference(
        ApiKey.ALTER_CONFIGS,
        ("a topic twice",),
        "",
        "answers invalid_request",
        "does not answer",
        "Kafka leaves its client without an answer.",
    ),
    *(
        difference
        for api_key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for difference in (
            Difference(
                api_key,
                ("an empty topic",),
                "responses.error_code",
                "invalid_topic_exception",
                "invalid_request",
                _SAYS_WHAT,
            ),
            Difference(
                api_key,
                ("an unknown broker",),
                "responses.error_code",
                "broker_id_not_registered",
                "invalid_request",
                _SAYS_WHAT,
            ),
            Difference(
                api_key,
                ("an unknown config of a broker",),
                "responses.error_code",
                "invalid_config",
                "none",
                "A name that nobody reads is a typing error; Kafka keeps it for plugins of its brokers.",
            ),
        )
    ),
    Difference(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ("operation 7", "operation -1"),
        "responses.error_code",
        "invalid_request",
        "unknown_server_error",
        _SAYS_WHAT,
    ),
    Difference(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ("delete an unknown config",),
        "responses.error_code",
        "invalid_config",
        "none",
        "A name that does not exist is a typing error, also of what is to be deleted.",
    ),
    Difference(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ("an empty name",),
        "topics.error_code",
        "invalid_topic_exception",
        "unknown_server_error",
        _SAYS_WHAT,
        with_others=True,
    ),
    Difference(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ("from a negative cursor",),
        "topics.error_code",
        "none",
        "invalid_request",
        "A negative partition is before the first one.",
        with_others=True,
    ),
    Difference(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ("from a cursor of an unknown topic",),
        "topics",
        "nothing",
        "plain invalid_request",
        "A cursor is a place in the order of names; its topic may be deleted since.",
    ),
    Difference(
        ApiKey.OFFSET_COMMIT,
        ("to an empty group id",),
        "topics.partitions.error_code",
        "invalid_group_id",
        "none",
        _EMPTY_GROUP,
    ),
    Difference(
        ApiKey.OFFSET_COMMIT,
        ("of an unknown group's member",),
        "topics.partitions.error_code",
        "illegal_generation",
        "group_id_not_found",
        "The code is that of the versions before 9; a client joins again in either case.",
    ),
    Difference(
        ApiKey.OFFSET_FETCH,
        ("of an empty group id",),
        "*error_code",
        "invalid_group_id",
        "none",
        _EMPTY_GROUP,
        with_others=True,
    ),
    Difference(
        ApiKey.OFFSET_FETCH,
        ("of no partition",),
        "*topics",
        "nothing",
        "plain",
        "A topic without partitions is left out.",
    ),
    Difference(
        ApiKey.OFFSET_FETCH,
        ("of an unknown partition",),
        "*committed_offset",
        "0",
        "-1",
        "A partition that was added after the group had begun is read from its beginning (decision 66). The"
        " coordinator may not know it yet.",
    ),
    Difference(
        ApiKey.OFFSET_FETCH,
        ("of all of an open transaction, stable",),
        "*error_code",
        "unstable_offset_commit",
        "none",
        "The group has the error, Kafka's partitions have it.",
        with_others=True,
    ),
    Difference(
        ApiKey.FIND_COORDINATOR,
        ("of an empty group id", "of an empty transactional id"),
        "*error_code",
        "invalid_*",
        "none",
        "An empty name is a missing setting, which shows here and not later.",
        with_others=True,
    ),
    Difference(
        ApiKey.JOIN_GROUP,
        ("a protocol twice",),
        "",
        "answers invalid_request",
        "does not answer",
        "Kafka leaves its client without an answer.",
    ),
    Difference(
        ApiKey.JOIN_GROUP,
        ("an empty instance",),
        "error_code",
        "member_id_required",
        "none",
        "An empty instance id is none; Kafka takes it for a name.",
        with_others=True,
    ),
    Difference(
        ApiKey.DESCRIBE_GROUPS,
        ("an empty group id",),
        "groups.error_code",
        "invalid_group_id",
        "*",
        _EMPTY_GROUP,
        with_others=True,
    ),
    Difference(
        ApiKey.DELETE_GROUPS,
        ("an empty group id",),
        "results.error_code",
        "invalid_group_id",
        "none",
        _EMPTY_GROUP,
    ),
    Difference(ApiKey.DELETE_GROUPS, ("a group twice",), "results", "new group_id_not_found", "nothing", _TWICE),
    Difference(
        ApiKey.OFFSET_DELETE,
        ("of an unknown topic", "of an unknown partition", "of a negative partition"),
        "topics.partitions.error_code",
        "none",
        "unknown_topic_or_partition",
        "What does not exist has no offset, which is what was asked for.",
    ),
    Difference(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ("an unknown group",),
        "error_code",
        "unknown_member_id",
        "group_id_not_found",
        "A member whose group is gone joins again; Kafka's code ends it.",
    ),
    Difference(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ("a pattern",),
        "assignment.topic_partitions",
        "plain",
        "nothing",
        "The first answer has the topics that match; Kafka's is empty, and a later one has them.",
    ),
    Difference(
        ApiKey.INIT_PRODUCER_ID,
        ("transactional, open",),
        "error_code",
        "none",
        "concurrent_transactions",
        "The answer comes when the open transaction is aborted; Kafka has its client ask again until then.",
        with_others=True,
    ),
    Difference(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ("no transaction",),
        "",
        "answers",
        "does not answer",
        "Kafka leaves its client without an answer.",
    ),
    Difference(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ("no partition",),
        "results_by_t*",
        "nothing",
        "empty",
        "A topic without partitions is left out.",
    ),
    Difference(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ("a negative epoch",),
        "*partition_error_code",
        "invalid_request",
        "*",
        _NEGATIVE_EPOCH,
    ),
    Difference(
        ApiKey.END_TXN,
        ("commit after a time-out",),
        "error_code",
        "transaction_abortable",
        "invalid_txn_state",
        "The producer may abort and go on; Kafka's answer ends it, though it lets the same producer abort.",
    ),
    Difference(ApiKey.END_TXN, ("a negative epoch",), "error_code", "invalid_request", "*", _NEGATIVE_EPOCH),
    Difference(
        ApiKey.TXN_OFFSET_COMMIT,
        ("a negative epoch",),
        "topics.partitions.error_code",
        "invalid_request",
        "invalid_producer_epoch",
        _NEGATIVE_EPOCH,
    ),
    Difference(
        ApiKey.WRITE_TXN_MARKERS,
        ("no topic", "no partition"),
        "markers",
        "own",
        "nothing",
        "Every marker is answered; Kafka leaves out one without partitions.",
    ),
    Difference(
        ApiKey.WRITE_TXN_MARKERS,
        ("of an older epoch",),
        "markers.topics.partitions.error_code",
        "invalid_request",
        "unknown_server_error",
        _NEGATIVE_EPOCH,
    ),
    Difference(
        ApiKey.DESCRIBE_TRANSACTIONS,
        ("committed", "aborted", "twice", "known and unknown"),
        "transaction_states.transaction_start_time",
        "-1",
        "now",
        "A transaction that has ended is not kept, nor when it began.",
    ),
    Difference(
        ApiKey.LIST_TRANSACTIONS,
        ("of a long duration",),
        "transaction_states",
        "nothing",
        "*",
        "Only what has begun has a duration; Kafka takes a transaction that never began for the longest of all.",
    ),
    Difference(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ("a partition twice",),
        "responses.partitions.error_code",
        "invalid_request",
        "none",
        _TWICE,
    ),
    Difference(
        ApiKey.ELECT_LEADERS,
        ("a partition twice",),
        "replica_election_results.partition_result",
        "nothing",
        "0 election_not_needed",
        _TWICE,
    ),
    Difference(
        ApiKey.ELECT_LEADERS,
        ("all", "all, unclean", "no partition"),
        "replica_election_results",
        "nothing",
        "*",
        "A topic of which no partition got a leader is left out.",
    ),
    Difference(
        ApiKey.DESCRIBE_QUORUM,
        ("the cluster's metadata",),
        "topics.partitions.observers",
        "1",
        "nothing",
        "Broker and controller are two services: the broker observes the log that the controller votes in.",
    ),
    Difference(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ("no salt",),
        "results.error_code",
        "unacceptable_credential",
        "none",
        "Nobody could log in by it: a message of SCRAM has no empty salt.",
    ),
    Difference(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ("no salted password",),
        "results.error_code",
        "unacceptable_credential",
        "unknown_server_error",
        "It is the request that is wrong, not the server.",
    ),
    Difference(ApiKey.DESCRIBE_ACLS, ("resource type 0",), "", "answers*", "closes the connection", _NO_AUTHORIZER),
    Difference(ApiKey.CREATE_ACLS, ("pattern type 0",), "", "answers*", "closes the connection", _NO_AUTHORIZER),
)
