"""Questions about groups and their offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.side import (
    TIMEOUT_MS,
    Ask,
    Case,
    Cases,
    GroupMembership,
    TransactionalProducer,
    join_group,
    since,
    sync_group,
)

Fields = Mapping[str, Any]
NEVER_GENERATION = 1_000
LONG_NAME = "x" * 30_000
NOBODY = GroupMembership("unknown", "nobody", 1)


def commit(ask: Ask, member: GroupMembership | None = None, *parts: tuple[str, int, int], **changes: Any) -> Fields:
    """Returns a commit. `parts` are topics, partitions and offsets. Without a member it is the commit of a simple
    consumer."""
    member = member or GroupMembership(ask.name, "", -1)
    metadata, epoch = changes.pop("metadata", "note"), changes.pop("leader_epoch", -1)
    topics: dict[str, list[Fields]] = {}
    for topic, partition, offset in parts or (("plain", 0, 1),):
        stored = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "committed_metadata": metadata,
        }
        topics.setdefault(topic, []).append(stored)
    return {
        "group_id": member.group,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [
            {"name": topic, "topic_id": ask.topic_id(topic), "partitions": stored} for topic, stored in topics.items()
        ],
        **changes,
    }


OFFSET_COMMIT = {
    "nothing": lambda ask: commit(ask, topics=[]),
    "without a member": lambda ask: commit(ask),
    "of a member": lambda ask: commit(ask, ask.member()),
    "of an unknown member": lambda ask: commit(ask, ask.member()._replace(member_id="nobody")),
    "of an unknown group's member": lambda ask: commit(ask, GroupMembership(ask.name, "nobody", 1)),
    "of no member in a live group": lambda ask: commit(ask, ask.member()._replace(member_id="", generation=-1)),
    "of an older generation": lambda ask: commit(ask, ask.member()._replace(generation=0)),
    "of a newer generation": lambda ask: commit(ask, ask.member()._replace(generation=NEVER_GENERATION)),
    "of an unknown instance": since(7, lambda ask: commit(ask, ask.member(), group_instance_id="nobody")),
    "to an empty group id": lambda ask: commit(ask, GroupMembership("", "", -1)),
    "of an unknown topic": lambda ask: commit(ask, None, ("unknown", 0, 1)),
    "of an illegal topic": lambda ask: commit(ask, None, ("no/name", 0, 1)),
    "of an unknown partition": lambda ask: commit(ask, None, ("plain", 9, 1)),
    "of a negative partition": lambda ask: commit(ask, None, ("plain", -1, 1)),
    "of known and unknown": lambda ask: commit(ask, None, ("plain", 0, 1), ("unknown", 0, 1)),
    "of a partition twice": lambda ask: commit(ask, None, ("plain", 0, 1), ("plain", 0, 2)),
    "beyond the end": lambda ask: commit(ask, None, ("plain", 0, 1_000_000)),
    "null metadata": lambda ask: commit(ask, metadata=None),
    "metadata of 4096 bytes": lambda ask: commit(ask, metadata="x" * 4_096),
    "metadata of 4097 bytes": lambda ask: commit(ask, metadata="x" * 4_097),
    "epoch 1000": lambda ask: commit(ask, leader_epoch=1_000),
}


def fetch_offsets(ask: Ask, group: str, parts: Mapping[str, list[int]] | None, **changes: Any) -> Fields:
    topics = None
    if parts is not None:
        topics = [
            {"name": topic, "topic_id": ask.topic_id(topic), "partition_indexes": numbers}
            for topic, numbers in parts.items()
        ]
    own = {"member_id": changes.pop("member_id", None), "member_epoch": changes.pop("member_epoch", -1)}
    return {
        "group_id": group,
        "topics": topics,
        "groups": [{"group_id": group, "topics": topics, **own}],
        "require_stable": False,
        **changes,
    }


def committed(ask: Ask) -> str:
    """A new group with an offset."""
    ask.side.ask(ApiKey.OFFSET_COMMIT, 8, commit(ask))
    return ask.name


def pending(ask: Ask) -> str:
    """A new group with an offset, and another one in an open transaction."""
    producer = ask.transaction()
    group = committed(ask)
    commit_in_transaction(ask, producer)
    return group


def outdated(ask: Ask) -> str:
    """Makes a group with an offset in an open transaction, and a newer one outside of it."""
    commit_in_transaction(ask, ask.transaction())
    ask.side.ask(ApiKey.OFFSET_COMMIT, 8, commit(ask, None, ("plain", 0, 2)))
    return ask.name


def outdated_and_ended(ask: Ask) -> str:
    """Returns such a group as `outdated` does, after its transaction has committed."""
    producer = ask.transaction()
    commit_in_transaction(ask, producer)
    ask.side.ask(ApiKey.OFFSET_COMMIT, 8, commit(ask, None, ("plain", 0, 2)))
    ask.side.end(producer, committed=True)
    ask.side.wait_for_end(producer.transactional_id)
    return ask.name


def commit_in_transaction(ask: Ask, producer: TransactionalProducer) -> None:
    asked = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "group_id": ask.name,
    }
    ask.side.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, asked)
    ask.side.ask(ApiKey.TXN_OFFSET_COMMIT, 3, {**asked, "topics": commit(ask)["topics"]})


OFFSET_FETCH = {
    "of a partition": lambda ask: fetch_offsets(ask, "stored", {"plain": [0]}),
    "of a partition without offset": lambda ask: fetch_offsets(ask, "stored", {"empty": [0]}),
    "of all": since(2, lambda ask: fetch_offsets(ask, "stored", None)),
    "of no topic": lambda ask: fetch_offsets(ask, "stored", {}),
    "of no partition": lambda ask: fetch_offsets(ask, "stored", {"plain": []}),
    "of an unknown group": lambda ask: fetch_offsets(ask, "unknown", {"plain": [0]}),
    "of all of an unknown group": since(2, lambda ask: fetch_offsets(ask, "unknown", None)),
    "of an empty group id": lambda ask: fetch_offsets(ask, "", {"plain": [0]}),
    "of an unknown topic": lambda ask: fetch_offsets(ask, "stored", {"unknown": [0]}),
    "of an illegal topic": lambda ask: fetch_offsets(ask, "stored", {"no/name": [0]}),
    "of an unknown partition": lambda ask: fetch_offsets(ask, "stored", {"plain": [9]}),
    "of a negative partition": lambda ask: fetch_offsets(ask, "stored", {"plain": [-1]}),
    "of a partition twice": lambda ask: fetch_offsets(ask, "stored", {"plain": [0, 0]}),
    "of no group": since(8, lambda ask: fetch_offsets(ask, "stored", {}, groups=[])),
    "of a group twice": since(
        8,
        lambda ask: fetch_offsets(ask, "stored", {}, groups=fetch_offsets(ask, "stored", {"plain": [0]})["groups"] * 2),
    ),
    "of an open transaction": lambda ask: fetch_offsets(ask, pending(ask), {"plain": [0]}),
    "of an open transaction, stable": since(
        7, lambda ask: fetch_offsets(ask, pending(ask), {"plain": [0]}, require_stable=True)
    ),
    "of all of an open transaction, stable": since(
        7, lambda ask: fetch_offsets(ask, pending(ask), None, require_stable=True)
    ),
    "of a commit after that of an open transaction": lambda ask: fetch_offsets(ask, outdated(ask), {"plain": [0]}),
    "of a commit after that of an open transaction, stable": since(
        7, lambda ask: fetch_offsets(ask, outdated(ask), {"plain": [0]}, require_stable=True)
    ),
    "of a commit after that of a transaction that ended": since(
        7, lambda ask: fetch_offsets(ask, outdated_and_ended(ask), {"plain": [0]}, require_stable=True)
    ),
    "of an unknown member": since(
        9, lambda ask: fetch_offsets(ask, "stored", {"plain": [0]}, member_id="nobody", member_epoch=1)
    ),
    "of an unknown member of a live group": since(
        9, lambda ask: fetch_offsets(ask, ask.member().group, {"plain": [0]}, member_id="nobody", member_epoch=1)
    ),
}


def find(*keys: str, key_type: int = 0) -> Fields:
    return {"key": keys[0] if keys else "", "key_type": key_type, "coordinator_keys": keys}


FIND_COORDINATOR = {
    "of a group": lambda ask: find("group"),
    "of a transactional id": since(1, lambda ask: find("id", key_type=1)),
    "of an empty group id": lambda ask: find(""),
    "of an empty transactional id": since(1, lambda ask: find("", key_type=1)),
    "of a share group": since(1, lambda ask: find("group", key_type=2)),
    "of type 7": since(1, lambda ask: find("group", key_type=7)),
    "of type -1": since(1, lambda ask: find("group", key_type=-1)),
    "of none": since(4, lambda ask: find()),
    "of two groups": since(4, lambda ask: find("one", "two")),
    "of a group twice": since(4, lambda ask: find("one", "one")),
}


def known_to_join(ask: Ask, **changes: Any) -> Fields:
    """The member of a new group joins again."""
    member = ask.member()
    return join_group(ask.name, member_id=member.member_id, **changes)


JOIN_GROUP = {
    "a new member": lambda ask: join_group(ask.name),
    "a known member": lambda ask: known_to_join(ask),
    "an unknown member": lambda ask: join_group(ask.name, member_id="nobody"),
    "an unknown member of a live group": lambda ask: join_group(ask.member().group, member_id="nobody"),
    "a new instance": since(5, lambda ask: join_group(ask.name, group_instance_id="instance")),
    "an unknown member of an unknown instance": since(
        5, lambda ask: join_group(ask.name, member_id="nobody", group_instance_id="instance")
    ),
    "an empty instance": since(5, lambda ask: join_group(ask.name, group_instance_id="")),
    "an illegal instance": since(5, lambda ask: join_group(ask.name, group_instance_id="no/name")),
    "an empty group id": lambda ask: join_group(""),
    "a short session": lambda ask: join_group(ask.name, session_timeout=1),
    "a long session": lambda ask: join_group(ask.name, session_timeout=100_000_000),
    "a negative session": lambda ask: join_group(ask.name, session_timeout=-1),
    "no time to rebalance": lambda ask: known_to_join(ask, rebalance_timeout=0),
    "negative time to rebalance": lambda ask: join_group(ask.name, rebalance_timeout=-1),
    "no protocol": lambda ask: join_group(ask.name, protocols=[]),
    "no protocol type": lambda ask: join_group(ask.name, protocol_type=""),
    "another protocol type": lambda ask: join_group(ask.member().group, protocol_type="connect"),
    "another protocol": lambda ask: join_group(ask.member().group, protocols=[{"name": "other", "metadata": b""}]),
    "a protocol twice": Case(
        lambda ask: join_group(ask.name, protocols=[{"name": "range", "metadata": b""}] * 2), until=0
    ),
    "a known member with another type": lambda ask: known_to_join(ask, protocol_type="connect"),
    "a known member with no protocol": lambda ask: known_to_join(ask, protocols=[]),
}
HEARTBEAT = {
    "of a member": lambda ask: heartbeat(ask.member()),
    "of an unknown group": lambda ask: heartbeat(NOBODY),
    "of an unknown member": lambda ask: heartbeat(ask.member()._replace(member_id="nobody")),
    "of no member": lambda ask: heartbeat(ask.member()._replace(member_id="")),
    "of an older generation": lambda ask: heartbeat(ask.member()._replace(generation=0)),
    "of a newer generation": lambda ask: heartbeat(ask.member()._replace(generation=NEVER_GENERATION)),
    "of a negative generation": lambda ask: heartbeat(ask.member()._replace(generation=-1)),
    "of an empty group id": lambda ask: heartbeat(GroupMembership("", "nobody", 1)),
    "of an unknown instance": since(3, lambda ask: heartbeat(ask.member(), group_instance_id="nobody")),
    "of a group without members": lambda ask: heartbeat(GroupMembership("stored", "nobody", 1)),
}


def heartbeat(member: GroupMembership, **changes: Any) -> Fields:
    return {
        "group_id": member.group,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": None,
        **changes,
    }


def leave(group: str, *members: tuple[str, str | None]) -> Fields:
    """`members` are member ids and instance ids."""
    return {
        "group_id": group,
        "member_id": members[0][0] if members else "",
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "reason": None}
            for member_id, instance_id in members
        ],
    }


def leave_twice(ask: Ask) -> Fields:
    member = ask.member()
    return leave(member.group, (member.member_id, None), (member.member_id, None))


LEAVE_GROUP = {
    "a member": lambda ask: leave(ask.name, (ask.member().member_id, None)),
    "a member twice": since(3, leave_twice),
    "nobody": since(3, lambda ask: leave(ask.member().group)),
    "nobody of an unknown group": since(3, lambda ask: leave("unknown")),
    "an unknown member": lambda ask: leave(ask.member().group, ("nobody", None)),
    "an unknown group": lambda ask: leave("unknown", ("nobody", None)),
    "an empty group id": lambda ask: leave("", ("nobody", None)),
    "an unknown instance": since(3, lambda ask: leave(ask.member().group, ("", "nobody"))),
    "a member that is no instance": since(3, lambda ask: leave(ask.name, (ask.member().member_id, "nobody"))),
    "known and unknown": since(3, lambda ask: leave(ask.name, (ask.member().member_id, None), ("nobody", None))),
    "a group without members": lambda ask: leave("stored", ("nobody", None)),
}
SYNC_GROUP = {
    "of a member": lambda ask: sync_group(ask.member(), assignments=[]),
    "of a member with an assignment": lambda ask: sync_group(ask.member()),
    "of an unknown group": lambda ask: sync_group(NOBODY),
    "of an unknown member": lambda ask: sync_group(ask.member()._replace(member_id="nobody")),
    "of an older generation": lambda ask: sync_group(ask.member()._replace(generation=0)),
    "of a newer generation": lambda ask: sync_group(ask.member()._replace(generation=NEVER_GENERATION)),
    "of an empty group id": lambda ask: sync_group(GroupMembership("", "nobody", 1)),
    "of an unknown instance": since(3, lambda ask: sync_group(ask.member(), group_instance_id="nobody")),
    "of another protocol": since(5, lambda ask: sync_group(ask.member(), protocol_name="other")),
    "of another protocol type": since(5, lambda ask: sync_group(ask.member(), protocol_type="connect")),
    "of null protocols": since(5, lambda ask: sync_group(ask.member(), protocol_type=None, protocol_name=None)),
}


def describe(*groups: str, authorized: bool = False) -> Fields:
    return {"groups": groups, "group_ids": groups, "include_authorized_operations": authorized}


DESCRIBE_GROUPS = {
    "nothing": lambda ask: describe(),
    "a live group": lambda ask: describe(ask.member().group),
    "a group without members": lambda ask: describe("stored"),
    "an unknown group": lambda ask: describe("unknown"),
    "an empty group id": lambda ask: describe(""),
    "a group twice": lambda ask: describe("stored", "stored"),
    "authorized operations": since(3, lambda ask: describe("stored", authorized=True)),
    "a newer group": lambda ask: describe(modern_member(ask).group),
}
CONSUMER_GROUP_DESCRIBE = {
    "nothing": lambda ask: describe(),
    "a newer group": lambda ask: describe(modern_member(ask).group),
    "a classic group": lambda ask: describe(ask.member().group),
    "a group without members": lambda ask: describe("stored"),
    "an unknown group": lambda ask: describe("unknown"),
    "an empty group id": lambda ask: describe(""),
    "a group twice": lambda ask: describe("unknown", "unknown"),
    "authorized operations": lambda ask: describe(modern_member(ask).group, authorized=True),
}


def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Fields:
    return {"states_filter": states, "types_filter": types}


LIST_GROUPS = {
    "of an unknown state": since(4, lambda ask: listed(("Sleeping",))),
    "of state dead": since(4, lambda ask: listed(("Dead",))),
    "of an unknown type": since(5, lambda ask: listed(types=("ancient",))),
    "of share groups": since(5, lambda ask: listed(types=("share",))),
}


def delete(*groups: str) -> Fields:
    return {"groups_names": groups}


DELETE_GROUPS = {
    "nothing": lambda ask: delete(),
    "a group without members": lambda ask: delete(committed(ask)),
    "a group twice": lambda ask: delete(committed(ask), ask.name),
    "a live group": lambda ask: delete(ask.member().group),
    "an unknown group": lambda ask: delete("unknown"),
    "an empty group id": lambda ask: delete(committed(ask._replace(name=""))),
    "known and unknown": lambda ask: delete(committed(ask), "unknown"),
    "a newer live group": lambda ask: delete(modern_member(ask).group),
}


def delete_offsets(group: str, *parts: tuple[str, int]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for topic, partition in parts:
        topics.setdefault(topic, []).append({"partition_index": partition})
    return {
        "group_id": group,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }


OFFSET_DELETE = {
    "nothing": lambda ask: delete_offsets(committed(ask)),
    "of a partition": lambda ask: delete_offsets(committed(ask), ("plain", 0)),
    "of a partition without offset": lambda ask: delete_offsets(committed(ask), ("plain", 1)),
    "of a partition twice": lambda ask: delete_offsets(committed(ask), ("plain", 0), ("plain", 0)),
    "of an unknown topic": lambda ask: delete_offsets(committed(ask), ("unknown", 0)),
    "of an unknown partition": lambda ask: delete_offsets(committed(ask), ("plain", 9)),
    "of a negative partition": lambda ask: delete_offsets(committed(ask), ("plain", -1)),
    "of a subscribed topic": lambda ask: delete_offsets(ask.member().group, ("plain", 0)),
    "of another topic of a live group": lambda ask: delete_offsets(ask.member().group, ("empty", 0)),
    "of an unknown group": lambda ask: delete_offsets("unknown", ("plain", 0)),
    "of an empty group id": lambda ask: delete_offsets("", ("plain", 0)),
    "nothing of an unknown group": lambda ask: delete_offsets("unknown"),
}


def modern(group: str, **changes: Any) -> Fields:
    return {
        "group_id": group,
        "member_id": "member",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": TIMEOUT_MS,
        "subscribed_topic_names": ["plain"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
        **changes,
    }


def modern_member(ask: Ask) -> GroupMembership:
    """A new one, of a new group of the newer kind."""
    answer = ask.side.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, modern(ask.name))
    return GroupMembership(ask.name, answer.member_id, answer.member_epoch)


def again(ask: Ask, **changes: Any) -> Fields:
    """The next heartbeat of a new member: nothing has changed."""
    member = modern_member(ask)
    unchanged = {
        "member_epoch": member.generation,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    return modern(ask.name, **{**unchanged, **changes})


CONSUMER_GROUP_HEARTBEAT = {
    "a new member": lambda ask: modern(ask.name),
    "a new member twice": lambda ask: modern(modern_member(ask).group),
    "a known member": lambda ask: again(ask),
    "a known member with all fields": lambda ask: again(
        ask, rebalance_timeout=TIMEOUT_MS, subscribed_topic_names=["plain"]
    ),
    "a known member of another subscription": lambda ask: again(ask, subscribed_topic_names=["empty"]),
    "a known member owns what it was not given": lambda ask: again(
        ask, topic_partitions=[{"topic_id": ask.topic_id("empty"), "partitions": [0]}]
    ),
    "a known member owns an unknown topic": lambda ask: again(
        ask, topic_partitions=[{"topic_id": ask.topic_id("unknown"), "partitions": [0]}]
    ),
    "an older epoch": lambda ask: again(ask, member_epoch=-7),
    "a newer epoch": lambda ask: again(ask, member_epoch=1_000),
    "a member leaves": lambda ask: again(ask, member_epoch=-1),
    "a dynamic member leaves for a while": lambda ask: again(ask, member_epoch=-2),
    "an unknown member": lambda ask: modern(modern_member(ask).group, member_id="nobody", member_epoch=1),
    "an unknown member leaves": lambda ask: modern(modern_member(ask).group, member_id="nobody", member_epoch=-1),
    "an unknown group": lambda ask: modern(ask.name, member_epoch=1),
    "an unknown group is left": lambda ask: modern(ask.name, member_epoch=-1),
    "an empty group id": lambda ask: modern(""),
    "a group id of spaces": lambda ask: modern("  "),
    "an empty member id": since(1, lambda ask: modern(ask.name, member_id="")),
    "an empty instance": lambda ask: modern(ask.name, instance_id=""),
    "an instance": lambda ask: modern(ask.name, instance_id="instance"),
    "an unknown instance leaves for a while": lambda ask: modern(ask.name, instance_id="instance", member_epoch=-2),
    "no time to rebalance": lambda ask: modern(ask.name, rebalance_timeout=-1),
    "no topics": lambda ask: modern(ask.name, subscribed_topic_names=[]),
    "null topics": lambda ask: modern(ask.name, subscribed_topic_names=None),
    "an unknown topic": lambda ask: modern(ask.name, subscribed_topic_names=["unknown"]),
    "a topic twice": lambda ask: modern(ask.name, subscribed_topic_names=["plain", "plain"]),
    "null partitions": lambda ask: modern(ask.name, topic_partitions=None),
    "partitions in the first heartbeat": lambda ask: modern(
        ask.name, topic_partitions=[{"topic_id": ask.topic_id("plain"), "partitions": [0]}]
    ),
    "an unknown assignor": lambda ask: modern(ask.name, server_assignor="unknown"),
    "the range assignor": lambda ask: modern(ask.name, server_assignor="range"),
    "an empty assignor": lambda ask: modern(ask.name, server_assignor=""),
    "an empty rack": lambda ask: modern(ask.name, rack_id=""),
    "a pattern": since(1, lambda ask: modern(ask.name, subscribed_topic_regex="pl.*n", subscribed_topic_names=None)),
    "an empty pattern": since(1, lambda ask: modern(ask.name, subscribed_topic_regex="", subscribed_topic_names=None)),
    "a bad pattern": since(1, lambda ask: modern(ask.name, subscribed_topic_regex="(", subscribed_topic_names=None)),
    "a classic group": lambda ask: modern(ask.member().group),
    "a group with offsets": lambda ask: modern(committed(ask)),
}

CASES: Cases = {
    ApiKey.OFFSET_COMMIT: OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH: OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR: FIND_COORDINATOR,
    ApiKey.JOIN_GROUP: JOIN_GROUP,
    ApiKey.HEARTBEAT: HEARTBEAT,
    ApiKey.LEAVE_GROUP: LEAVE_GROUP,
    ApiKey.SYNC_GROUP: SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS: DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS: LIST_GROUPS,
    ApiKey.DELETE_GROUPS: DELETE_GROUPS,
    ApiKey.OFFSET_DELETE: OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE: CONSUMER_GROUP_DESCRIBE,
}
