"""The work of a mirror at its clusters beside copying: creates topics, and translates the offsets of groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from klamm import Admin, NewTopic, TopicPartition
from klamm.admin import ConfigResource, ConfigResourceType, ConfigSource
from klamm.errors import EXCEPTIONS, ConfigError, ErrorCode
from klamm.model import EARLIEST_TIMESTAMP
from klamm_pipelines.offset_syncs import MirroredRun, decode, translate

if TYPE_CHECKING:
    from klamm.admin import TopicDescription

Settings = Mapping[str, str]

NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Topic settings that a mirror does not copy: about a cluster's own brokers, or about clocks. Copied records keep their
timestamps."""
INACTIVE: Final = ("Empty", "Dead")
_NonEmptyGroupError = EXCEPTIONS[ErrorCode.NON_EMPTY_GROUP]


def sync_topic(alias: str) -> str:
    """Returns the name of the target's topic that maps offsets of the source to offsets of the target."""
    return f"{alias}.offset-syncs"


def mirrored_topics(source: Settings, patterns: str) -> list[str]:
    """Returns the source's topics that one of the patterns matches, as `matching_topics` does."""
    with Admin(source) as admin:
        return matching_topics(admin, patterns)


def matching_topics(source: Admin, patterns: str) -> list[str]:
    """Returns the source's topics whose whole name matches one of the patterns, which commas separate. Raises
    ConfigError if there is none."""
    wanted = [_pattern(text.strip(), "--topics") for text in patterns.split(",")]
    names = sorted(source.list_topics())
    found = [name for name in names if any(pattern.fullmatch(name) for pattern in wanted)]
    if not found:
        raise ConfigError(
            f"--topics {patterns!r} matches no topic of {', '.join(names) or 'the source, which has none'}"
        )
    return found


def matching_groups(source: Admin, pattern: str, *, may_be_none: bool = False) -> list[str]:
    """Returns the source's groups whose whole name matches the pattern. Raises ConfigError if there is none, unless
    `may_be_none`."""
    wanted = _pattern(pattern, "--groups")
    names = sorted(source.list_groups())
    found = [name for name in names if wanted.fullmatch(name)]
    if not found and not may_be_none:
        raise ConfigError(
            f"--groups {pattern!r} matches no group of {', '.join(names) or 'the source, which has none'}"
        )
    return found


def create_targets(source: Settings, target: Settings, topics: Iterable[str], prefix: str, alias: str) -> None:
    """Creates the topics and partitions that the target lacks."""
    with Admin(source) as origin, Admin(target) as admin:
        described = origin.describe_topics(topics)
        configs = _configs(origin, described)
        there = admin.list_topics()
        new = [
            NewTopic(prefix + name, partition_count=len(topic.partitions), configs=configs[name])
            for name, topic in described.items()
            if prefix + name not in there
        ]
        if sync_topic(alias) not in there:
            new.append(NewTopic(sync_topic(alias), partition_count=1, configs={"cleanup.policy": "compact"}))
        admin.create_topics(new)
        admin.create_partitions(
            {
                prefix + name: len(topic.partitions)
                for name, topic in described.items()
                if prefix + name in there and len(there[prefix + name].partitions) < len(topic.partitions)
            }
        )


def _configs(admin: Admin, topics: Mapping[str, TopicDescription]) -> dict[str, dict[str, str]]:
    """Returns the configs that are set on each topic itself, as far as they are copied."""
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in topics])
    return {
        resource.name: {
            name: entry.value
            for name, entry in entries.items()
            if entry.source is ConfigSource.DYNAMIC_TOPIC and name not in NOT_COPIED and entry.value is not None
        }
        for resource, entries in described.items()
    }


def translate_groups(
    source: Settings, target: Settings, pattern: str, prefix: str, alias: str
) -> dict[str, dict[TopicPartition, int]]:
    """Translates the offsets of the source's groups and commits them at the target. Returns the committed offsets by
    group."""
    syncs = read_syncs(target, alias)
    translated: dict[str, dict[TopicPartition, int]] = {}
    with Admin(source) as origin, Admin(target) as admin:
        active = {name for name, group in admin.list_groups().items() if group.state not in INACTIVE}
        for group in matching_groups(origin, pattern, may_be_none=True):
            if group in active:
                continue
            committed = {
                tp: group_offset.offset for tp, group_offset in origin.list_group_offsets(group).items() if tp in syncs
            }
            offsets = _ahead(admin, group, _translated(admin, committed, syncs, prefix))
            if offsets and _commit(admin, group, offsets):
                translated[group] = offsets
    return translated


def _translated(
    admin: Admin,
    committed: Mapping[TopicPartition, int],
    syncs: Mapping[TopicPartition, list[MirroredRun]],
    prefix: str,
) -> dict[TopicPartition, int]:
    found = {TopicPartition(prefix + tp.topic, tp.partition): translate(syncs[tp], at) for tp, at in committed.items()}
    # The position is before all known offsets. Begin at the first record, because it is unknown which ones were read.
    unknown = [tp for tp, offset in found.items() if offset is None]
    earliest = admin.list_offsets(dict.fromkeys(unknown, EARLIEST_TIMESTAMP))
    return {tp: earliest[tp].offset if offset is None else offset for tp, offset in found.items()}


def _ahead(admin: Admin, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns the offsets that are greater than the offsets that the group has at the target."""
    there = admin.list_group_offsets(group)
    return {tp: offset for tp, offset in offsets.items() if tp not in there or there[tp].offset < offset}


def _commit(admin: Admin, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commits a group's offsets. Returns False if the group has members by now, because the commit is then
    impossible."""
    try:
        admin.alter_group_offsets(group, offsets)
    except _NonEmptyGroupError:
        return False
    return True


def read_syncs(target: Settings, alias: str) -> dict[TopicPartition, list[MirroredRun]]:
    """Returns the mirrored runs of each source partition from the target's sync topic, sorted by source offset."""
    from klamm import Consumer

    topic = TopicPartition(sync_topic(alias), 0)
    latest: dict[bytes, bytes] = {}
    settings = {**target, "enable.auto.commit": False, "isolation.level": "read_committed"}
    with Consumer(settings) as consumer:
        consumer.assign([topic])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([topic])[topic]
        while consumer.position(topic) < end:
            for records in consumer.poll(timeout_ms=1_000).values():
                latest.update((record.key, record.value) for record in records)
    found: dict[TopicPartition, list[MirroredRun]] = {}
    for key, value in latest.items():
        name, partition, runs = decode(key, value)
        found.setdefault(TopicPartition(name, partition), []).extend(runs)
    return {tp: sorted(runs) for tp, runs in found.items()}


def _pattern(text: str, option: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{option} {text!r}: expected a regular expression ({error})") from error
