"""What a deletion of topics would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from klamm.errors import BrokerError, ErrorCode, raise_first
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm_cli.dry_run.configs import broker_config
from klamm_cli.text.amounts import counted, record_count

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import TopicDescription


def check_deletion(admin: Admin, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Returns the topics. Raises the errors with which the controller would refuse to delete them."""
    if broker_config(admin, "delete.topic.enable") == "false":
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        raise_first([disabled.exception(f"{name}: delete.topic.enable is false") for name in names])
    described = admin.describe_topics(names)
    raise_first(list(deletion_errors(names, described.values())))
    return described


def check_creation(admin: Admin, topic: str) -> None:
    """Raises the error of a producer for a topic that does not exist, unless the first record would create it."""
    if broker_config(admin, "auto.create.topics.enable") == "false":
        raise ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.exception(f"topic {topic!r} does not exist")


def deletion_errors(names: Sequence[str], topics: Iterable[TopicDescription]) -> Iterable[BrokerError]:
    """Yields the errors of a request to delete these topics, all of which exist."""
    times = Counter(names)
    for topic in topics:
        if times[topic.name] > 1:
            message = f"topic {topic.name} is named {times[topic.name]} times"
            yield ErrorCode.INVALID_REQUEST.exception(message)
        elif topic.internal:
            message = f"topic {topic.name} is internal and cannot be deleted"
            yield ErrorCode.INVALID_TOPIC_EXCEPTION.exception(message)


def describe_contents(admin: Admin, topics: Iterable[TopicDescription]) -> dict[str, str]:
    """Returns a text about each topic's partitions and records, by topic name.

    The number of records is the number of offsets. A compacted topic has fewer records."""
    wanted = list(topics)
    # Only a leader can return offsets.
    led = [
        TopicPartition(topic.name, part.partition) for topic in wanted for part in topic.partitions if part.leader >= 0
    ]
    starts, ends = (admin.list_offsets(dict.fromkeys(led, time)) for time in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
    records = Counter[str]()
    for tp in led:
        records[tp.topic] += max(0, ends[tp].offset - starts[tp].offset)
    return {topic.name: _contents(topic, records[topic.name]) for topic in wanted}


def _contents(topic: TopicDescription, records: int) -> str:
    text = f"{counted(len(topic.partitions), 'partition')}, {record_count(records)}"
    without_leader = sum(partition.leader < 0 for partition in topic.partitions)
    return f"{text} and those of {counted(without_leader, 'partition')} without a leader" if without_leader else text
