"""Questions about the cluster: its brokers, quorum, log directories, replicas, access lists, features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from klamm.quotas import IP_KEYS, USER_AND_CLIENT_KEYS
from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.side import TIMEOUT_MS, UNKNOWN_ID, Ask, Cases, since

Fields = Mapping[str, Any]


def software(name: str, version: str, **meant: Any) -> Fields:
    return {"client_software_name": name, "client_software_version": version, **meant}


def meant(ask: Ask, cluster_id: str | None = None, node_id: int = -1) -> Fields:
    """Returns the request of a client that wants to talk to this node. The cluster id `own` stands for the right
    one."""
    own = ask.side.ask(ApiKey.DESCRIBE_CLUSTER, 0, cluster()).cluster_id
    return software("wire", "1", cluster_id=own if cluster_id == "own" else cluster_id, node_id=node_id)


API_VERSIONS = {
    "a client": lambda ask: software("wire", "1.2-rc3"),
    "an empty name": since(3, lambda ask: software("", "1")),
    "an empty version": since(3, lambda ask: software("wire", "")),
    "an illegal name": since(3, lambda ask: software("no name!", "1")),
    "an illegal version": since(3, lambda ask: software("wire", "-1")),
    "this node": since(5, lambda ask: meant(ask, "own", 1)),
    "this cluster": since(5, lambda ask: meant(ask, "own")),
    "another cluster": since(5, lambda ask: meant(ask, "another")),
    "another cluster's node": since(5, lambda ask: meant(ask, "another", 1)),
    "another node": since(5, lambda ask: meant(ask, None, 7)),
    "another node of this cluster": since(5, lambda ask: meant(ask, "own", 7)),
    "a node without its cluster": since(5, lambda ask: meant(ask, None, 1)),
    "an empty cluster": since(5, lambda ask: meant(ask, "", 1)),
    "a negative node": since(5, lambda ask: meant(ask, "own", -2)),
}
SASL_HANDSHAKE = {
    "a mechanism": lambda ask: {"mechanism": "PLAIN"},
    "no mechanism": lambda ask: {"mechanism": ""},
}
SASL_AUTHENTICATE = {
    "a password": lambda ask: {"auth_bytes": b"\0alice\0secret"},
    "nothing": lambda ask: {"auth_bytes": b""},
}
DESCRIBE_CLUSTER = {
    "brokers": lambda ask: cluster(),
    "controllers": since(1, lambda ask: cluster(endpoint_type=2)),
    "endpoint type 0": since(1, lambda ask: cluster(endpoint_type=0)),
    "endpoint type 7": since(1, lambda ask: cluster(endpoint_type=7)),
    "fenced brokers": since(2, lambda ask: cluster(include_fenced_brokers=True)),
    "authorized operations": lambda ask: cluster(include_cluster_authorized_operations=True),
}


def cluster(**changes: Any) -> Fields:
    return {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
        **changes,
    }


def dirs(topics: Mapping[str, list[int]] | None) -> Fields:
    return {
        "topics": None
        if topics is None
        else [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
    }


DESCRIBE_LOG_DIRS = {
    "nothing": lambda ask: dirs({}),
    "a partition": lambda ask: dirs({"plain": [0]}),
    "no partition": lambda ask: dirs({"plain": []}),
    "an unknown topic": lambda ask: dirs({"unknown": [0]}),
    "an unknown partition": lambda ask: dirs({"plain": [9]}),
    "a partition twice": lambda ask: dirs({"plain": [0, 0]}),
}


def move(*dirs: tuple[str, Mapping[str, list[int]]]) -> Fields:
    return {
        "dirs": [
            {"path": path, "topics": [{"name": topic, "partitions": numbers} for topic, numbers in topics.items()]}
            for path, topics in dirs
        ]
    }


ALTER_REPLICA_LOG_DIRS = {
    "nothing": lambda ask: move(),
    "to an unknown directory": lambda ask: move(("/no/such/directory", {"plain": [0]})),
    "to a relative directory": lambda ask: move(("here", {"plain": [0]})),
    "to an empty directory name": lambda ask: move(("", {"plain": [0]})),
    "an unknown topic": lambda ask: move(("/no/such/directory", {"unknown": [0]})),
    "an unknown partition": lambda ask: move(("/no/such/directory", {"plain": [9]})),
    "an illegal topic": lambda ask: move(("/no/such/directory", {"no/name": [0]})),
}
PREFERRED, UNCLEAN = 0, 1


def elect(kind: int, topics: Mapping[str, list[int]] | None) -> Fields:
    return {
        "election_type": kind,
        "topic_partitions": None
        if topics is None
        else [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
        "timeout": TIMEOUT_MS,
    }


ELECT_LEADERS = {
    "nothing": lambda ask: elect(PREFERRED, {}),
    "a partition": lambda ask: elect(PREFERRED, {"plain": [0]}),
    "a partition, unclean": since(1, lambda ask: elect(UNCLEAN, {"plain": [0]})),
    "a partition twice": lambda ask: elect(PREFERRED, {"plain": [0, 0]}),
    "all": lambda ask: elect(PREFERRED, None),
    "all, unclean": since(1, lambda ask: elect(UNCLEAN, None)),
    "an unknown topic": lambda ask: elect(PREFERRED, {"unknown": [0]}),
    "an illegal topic": lambda ask: elect(PREFERRED, {"no/name": [0]}),
    "an unknown partition": lambda ask: elect(PREFERRED, {"plain": [9]}),
    "a negative partition": lambda ask: elect(PREFERRED, {"plain": [-1]}),
    "known and unknown": lambda ask: elect(PREFERRED, {"plain": [0, 9]}),
    "election type 7": since(1, lambda ask: elect(7, {"plain": [0]})),
    "no partition": lambda ask: elect(PREFERRED, {"plain": []}),
}


def reassign(*parts: tuple[str, int, list[int] | None], **changes: Any) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for topic, partition, replicas in parts:
        topics.setdefault(topic, []).append({"partition_index": partition, "replicas": replicas})
    return {
        "timeout": TIMEOUT_MS,
        "allow_replication_factor_change": True,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        **changes,
    }


ALTER_PARTITION_REASSIGNMENTS = {
    "nothing": lambda ask: reassign(),
    "to the same": lambda ask: reassign(("plain", 0, [1])),
    "to an unknown broker": lambda ask: reassign(("plain", 0, [77])),
    "to a negative broker": lambda ask: reassign(("plain", 0, [-1])),
    "to a broker twice": lambda ask: reassign(("plain", 0, [1, 1])),
    "to nobody": lambda ask: reassign(("plain", 0, [])),
    "cancel what is not there": lambda ask: reassign(("plain", 0, None)),
    "an unknown topic": lambda ask: reassign(("unknown", 0, [1])),
    "an unknown partition": lambda ask: reassign(("plain", 9, [1])),
    "a negative partition": lambda ask: reassign(("plain", -1, [1])),
    "cancel of an unknown topic": lambda ask: reassign(("unknown", 0, None)),
    "known and unknown": lambda ask: reassign(("plain", 0, [1]), ("unknown", 0, [1])),
    "a partition twice": lambda ask: reassign(("plain", 0, [1]), ("plain", 0, [1])),
    "the same number of replicas": since(
        1, lambda ask: reassign(("plain", 0, [1]), allow_replication_factor_change=False)
    ),
}


def reassignments(topics: Mapping[str, list[int]] | None) -> Fields:
    return {
        "timeout": TIMEOUT_MS,
        "topics": None
        if topics is None
        else [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()],
    }


LIST_PARTITION_REASSIGNMENTS = {
    "all": lambda ask: reassignments(None),
    "nothing": lambda ask: reassignments({}),
    "a partition": lambda ask: reassignments({"plain": [0]}),
    "an unknown topic": lambda ask: reassignments({"unknown": [0]}),
    "an unknown partition": lambda ask: reassignments({"plain": [9]}),
}


def acl_filter(**changes: Any) -> Fields:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **changes,
    }


def acl(**changes: Any) -> Fields:
    return {
        "resource_type": 2,
        "resource_name": "plain",
        "resource_pattern_type": 3,
        "principal": "User:someone",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **changes,
    }


DESCRIBE_ACLS = {
    "all of topics": lambda ask: acl_filter(),
    "all": lambda ask: acl_filter(resource_type_filter=1, pattern_type_filter=1),
    "resource type 0": lambda ask: acl_filter(resource_type_filter=0),
    "resource type 77": lambda ask: acl_filter(resource_type_filter=77),
    "pattern type 77": lambda ask: acl_filter(pattern_type_filter=77),
    "operation 77": lambda ask: acl_filter(operation=77),
    "permission 77": lambda ask: acl_filter(permission_type=77),
    "an empty principal": lambda ask: acl_filter(principal_filter=""),
}
CREATE_ACLS = {
    "nothing": lambda ask: {"creations": []},
    "one": lambda ask: {"creations": [acl()]},
    "two": lambda ask: {"creations": [acl(), acl(host="")]},
    "an illegal principal": lambda ask: {"creations": [acl(principal="someone")]},
    "resource type 77": lambda ask: {"creations": [acl(resource_type=77)]},
    "pattern type 0": lambda ask: {"creations": [acl(resource_pattern_type=0)]},
    "pattern type any": lambda ask: {"creations": [acl(resource_pattern_type=1)]},
    "operation 77": lambda ask: {"creations": [acl(operation=77)]},
    "any permission": lambda ask: {"creations": [acl(permission_type=1)]},
}
DELETE_ACLS = {
    "nothing": lambda ask: {"filters": []},
    "one": lambda ask: {"filters": [acl_filter()]},
    "two": lambda ask: {"filters": [acl_filter(), acl_filter(resource_type_filter=4)]},
    "resource type 77": lambda ask: {"filters": [acl_filter(resource_type_filter=77)]},
    "pattern type 77": lambda ask: {"filters": [acl_filter(pattern_type_filter=77)]},
}


def users(*names: str) -> Fields:
    return {"users": [{"name": name} for name in names]}


def user_with_both_mechanisms(ask: Ask) -> Fields:
    """Returns when the broker knows of it."""
    for one in (scram_upsertion(ask.name, mechanism=2, iterations=8192), scram_upsertion(ask.name)):
        answer = ask.side.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, scram(one))
        assert [result.error_code.name for result in answer.results] == ["none"], answer
    wanted = users(ask.name)
    ask.side.ask_until(
        lambda described: len(described.results[0].credential_infos) == 2,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        wanted,
    )
    return wanted


DESCRIBE_USER_SCRAM_CREDENTIALS = {
    "a user with both mechanisms": user_with_both_mechanisms,
    "all": lambda ask: {"users": None},
    "nobody": lambda ask: users(),
    "an unknown user": lambda ask: users("nobody"),
    "an empty name": lambda ask: users(""),
    "a user twice": lambda ask: users("nobody", "nobody"),
    "a user, an unknown one and one twice": lambda ask: users("zoe", "nobody", "other", "other"),
}


def scram_upsertion(name: str = "alice", **changes: Any) -> Fields:
    return {
        "name": name,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"some salt",
        "salted_password": b"0123456789abcdef0123456789abcdef",
        **changes,
    }


def scram_deletion(name: str = "alice", mechanism: int = 1) -> Fields:
    return {"name": name, "mechanism": mechanism}


def scram(*upsertions: Fields, deletions: tuple[Fields, ...] = ()) -> Fields:
    return {"upsertions": list(upsertions), "deletions": list(deletions)}


ALTER_USER_SCRAM_CREDENTIALS = {
    "nothing": lambda ask: scram(),
    "an unknown user deleted": lambda ask: scram(deletions=(scram_deletion("nobody"),)),
    "no name deleted": lambda ask: scram(deletions=(scram_deletion(""),)),
    "an unknown mechanism deleted": lambda ask: scram(deletions=(scram_deletion(mechanism=7),)),
    "mechanism 0 deleted": lambda ask: scram(deletions=(scram_deletion(mechanism=0),)),
    "no name": lambda ask: scram(scram_upsertion("")),
    "an unknown mechanism": lambda ask: scram(scram_upsertion(mechanism=7)),
    "mechanism 0": lambda ask: scram(scram_upsertion(mechanism=0)),
    "too few iterations": lambda ask: scram(scram_upsertion(iterations=4095)),
    "negative iterations": lambda ask: scram(scram_upsertion(iterations=-1)),
    "too many iterations": lambda ask: scram(scram_upsertion(iterations=16_385)),
    "no salt": lambda ask: scram(scram_upsertion(salt=b"")),
    "no salted password": lambda ask: scram(scram_upsertion(salted_password=b"")),
    "a short salted password": lambda ask: scram(scram_upsertion("short", salted_password=b"1")),
    "set": lambda ask: scram(scram_upsertion()),
    "set again, most iterations": lambda ask: scram(scram_upsertion(iterations=16_384)),
    "another mechanism": lambda ask: scram(scram_upsertion(mechanism=2)),
    "two mechanisms at once": lambda ask: scram(scram_upsertion("bob"), scram_upsertion("bob", mechanism=2)),
    "one mechanism twice": lambda ask: scram(scram_upsertion("carol"), scram_upsertion("carol")),
    "an unknown user set and deleted": lambda ask: scram(scram_upsertion("bob"), deletions=(scram_deletion("bob"),)),
    "set and deleted": lambda ask: scram(scram_upsertion(), deletions=(scram_deletion(),)),
    "set, another mechanism deleted": lambda ask: scram(scram_upsertion("bob"), deletions=(scram_deletion("bob", 2),)),
    "deleted twice": lambda ask: scram(deletions=(scram_deletion("bob"), scram_deletion("bob"))),
    "one of two users wrong": lambda ask: scram(scram_upsertion("dave"), scram_upsertion("erin", iterations=1)),
    "one of two mechanisms wrong": lambda ask: scram(
        scram_upsertion("frank"), scram_upsertion("frank", mechanism=2, iterations=1)
    ),
    "an odd name": lambda ask: scram(scram_upsertion("a,b=c d é")),
    "deleted": lambda ask: scram(deletions=(scram_deletion(), scram_deletion(mechanism=2))),
}


def quotas(*components: tuple[str, int, str | None]) -> Fields:
    names = ("entity_type", "match_type", "match")
    return {"components": [dict(zip(names, component, strict=True)) for component in components], "strict": False}


DESCRIBE_CLIENT_QUOTAS = {
    "all": lambda ask: quotas(),
    "of a user": lambda ask: quotas(("user", 0, "alice")),
    "of the default of users": lambda ask: quotas(("user", 1, None)),
    "of any client of a user": lambda ask: quotas(("user", 0, "alice"), ("client-id", 2, None)),
    "of any address": lambda ask: quotas(("ip", 2, None)),
    "of an address and a user": lambda ask: quotas(("ip", 2, None), ("user", 2, None)),
    "a type twice": lambda ask: quotas(("user", 2, None), ("user", 1, None)),
    "an unknown type": lambda ask: quotas(("group", 2, None)),
    "an empty type": lambda ask: quotas(("", 2, None)),
    "an exact match of nothing": lambda ask: quotas(("user", 0, None)),
    "a default with a name": lambda ask: quotas(("user", 1, "alice")),
    "any with a name": lambda ask: quotas(("user", 2, "alice")),
    "match type 7": lambda ask: quotas(("user", 7, None)),
}


def quota_entry(entity: tuple[tuple[str, str | None], ...], *ops: tuple[str, float | None]) -> Fields:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def quota_change(*entries: Fields, validate_only: bool = False) -> Fields:
    return {"entries": list(entries), "validate_only": validate_only}


_ALICE, _BOB = (("user", "judged-alice"),), (("user", "judged-bob"),)
_ADDRESS = (("ip", "192.0.2.7"),)
_RATE = ("producer_byte_rate", 1e9)


def one_quota(*ops: tuple[str, float | None]) -> Callable[[Ask], Fields]:
    return lambda ask: quota_change(quota_entry(_ALICE, *ops))


def quota_of(*entity: tuple[str, str | None]) -> Callable[[Ask], Fields]:
    return lambda ask: quota_change(quota_entry(entity, _RATE))


ALTER_CLIENT_QUOTAS = {
    "nothing": lambda ask: quota_change(),
    "no operation": one_quota(),
    "set": one_quota(_RATE),
    "set again": one_quota(_RATE),
    "checked only": lambda ask: quota_change(quota_entry(_BOB, _RATE), validate_only=True),
    "checked only, wrong": lambda ask: quota_change(quota_entry(_BOB, ("x", 1.0)), validate_only=True),
    "four kinds": one_quota(
        _RATE, ("consumer_byte_rate", 1e9), ("request_percentage", 99.5), ("controller_mutation_rate", 1e6)
    ),
    "an unknown key": one_quota(("x", 1.0)),
    "an unknown key removed": one_quota(("x", None)),
    "a connection rate of a user": one_quota(("connection_creation_rate", 10.0)),
    "a mechanism of a user": one_quota(("SCRAM-SHA-256", 1.0)),
    "zero": one_quota(("producer_byte_rate", 0.0)),
    "negative": one_quota(("producer_byte_rate", -1.0)),
    "a fraction of a byte": one_quota(("producer_byte_rate", 1.5)),
    "nearly whole": one_quota(("producer_byte_rate", 1e9 + 1e-7)),
    "too large": one_quota(("producer_byte_rate", 1e19)),
    "a key twice": one_quota(_RATE, ("producer_byte_rate", 2e9)),
    "one of two keys wrong": one_quota(("consumer_byte_rate", 2e9), ("x", 1.0)),
    "an entity twice": lambda ask: quota_change(quota_entry(_BOB, _RATE), quota_entry(_BOB, _RATE)),
    "one of two entities wrong": lambda ask: quota_change(quota_entry(_ALICE, ("x", 1.0)), quota_entry(_BOB, _RATE)),
    "nobody": quota_of(),
    "an unknown type": quota_of(("group", "g")),
    "an empty type": quota_of(("", "g")),
    "an empty name": quota_of(("user", "")),
    "a type twice": quota_of(("user", "judged-a"), ("user", "judged-alice")),
    "a client id of a user": quota_of(("user", "judged-alice"), ("client-id", "judged")),
    "an address and a user": quota_of(("user", "judged-alice"), ("ip", "192.0.2.7")),
    "bytes of an address": quota_of(("ip", "192.0.2.7")),
    "an address": lambda ask: quota_change(quota_entry(_ADDRESS, ("connection_creation_rate", 1e6))),
    "a fraction of a connection": lambda ask: quota_change(quota_entry(_ADDRESS, ("connection_creation_rate", 0.5))),
    "too many connections": lambda ask: quota_change(quota_entry(_ADDRESS, ("connection_creation_rate", 1e10))),
    "no address": lambda ask: quota_change(quota_entry((("ip", "1.2.3.4.5"),), ("connection_creation_rate", 1.0))),
    "all removed": lambda ask: quota_change(
        *(
            quota_entry(entity, *((key, None) for key in keys))
            for entity, keys in (
                (_ALICE, USER_AND_CLIENT_KEYS),
                (_BOB, USER_AND_CLIENT_KEYS),
                ((*_ALICE, ("client-id", "judged")), USER_AND_CLIENT_KEYS),
                (_ADDRESS, IP_KEYS),
            )
        )
    ),
}


def quorum(*parts: tuple[str, list[int]]) -> Fields:
    return {
        "topics": [
            {"topic_name": topic, "partitions": [{"partition_index": number} for number in numbers]}
            for topic, numbers in parts
        ]
    }


DESCRIBE_QUORUM = {
    "nothing": lambda ask: quorum(),
    "the cluster's metadata": lambda ask: quorum(("__cluster_metadata", [0])),
    "no partition": lambda ask: quorum(("__cluster_metadata", [])),
    "partition 1": lambda ask: quorum(("__cluster_metadata", [1])),
    "another topic": lambda ask: quorum(("plain", [0])),
    "two topics": lambda ask: quorum(("__cluster_metadata", [0]), ("plain", [0])),
}


def features(*updates: tuple[str, int, int], **changes: Any) -> Fields:
    """`updates` are names, levels and kinds of the upgrade."""
    return {
        "timeout": TIMEOUT_MS,
        "feature_updates": [
            {
                "feature": name,
                "max_version_level": level,
                "upgrade_type": kind,
                "allow_downgrade": kind != 1,
            }
            for name, level, kind in updates
        ],
        "validate_only": False,
        **changes,
    }


UPDATE_FEATURES = {
    "nothing": lambda ask: features(),
    "an unknown feature": lambda ask: features(("no.such.feature", 1, 1)),
    "an unknown feature, validated": since(1, lambda ask: features(("no.such.feature", 1, 1), validate_only=True)),
    "an empty name": lambda ask: features(("", 1, 1)),
    "a level that nobody has": lambda ask: features(("metadata.version", 1_000, 1)),
    "a negative level": lambda ask: features(("metadata.version", -1, 1)),
    "an unknown kind": since(1, lambda ask: features(("metadata.version", 7, 9))),
    "kind 0": since(1, lambda ask: features(("metadata.version", 7, 0))),
    "a feature twice": lambda ask: features(("no.such.feature", 1, 1), ("no.such.feature", 1, 1)),
}
UNREGISTER_BROKER = {
    "an unknown broker": lambda ask: {"broker_id": 77},
    "a negative broker": lambda ask: {"broker_id": -1},
}


def voter(node_id: int, **changes: Any) -> Fields:
    return {
        "cluster_id": None,
        "timeout": TIMEOUT_MS,
        "voter_id": node_id,
        "voter_directory_id": UNKNOWN_ID,
        "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}],
        "ack_when_committed": True,
        **changes,
    }


ADD_RAFT_VOTER = {
    "of another cluster": lambda ask: voter(77, cluster_id="another"),
    "a negative id": lambda ask: voter(-1),
    "no listener": lambda ask: voter(77, listeners=[]),
    "no directory": lambda ask: voter(77, voter_directory_id=None),
    "a voter": lambda ask: voter(1),
}
REMOVE_RAFT_VOTER = {
    "of another cluster": lambda ask: voter(77, cluster_id="another"),
    "a negative id": lambda ask: voter(-1),
    "an unknown voter": lambda ask: voter(77),
    "another directory": lambda ask: voter(1),
    "no directory": lambda ask: voter(77, voter_directory_id=None),
}

CASES: Cases = {
    ApiKey.ADD_RAFT_VOTER: ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER: REMOVE_RAFT_VOTER,
    ApiKey.API_VERSIONS: API_VERSIONS,
    ApiKey.SASL_HANDSHAKE: SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE: SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CLUSTER: DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS: ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_ACLS: DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS: CREATE_ACLS,
    ApiKey.DELETE_ACLS: DELETE_ACLS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS: ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM: DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES: UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER: UNREGISTER_BROKER,
}
