"""Names of partitions' directories, as Kafka has them. Pure.

`<topic>-<partition>`; `<topic>-<partition>.<hex>-delete` on the way out; `<topic>-<partition>.<hex>-future` while it is
being copied from another log dir (`log_move.py`).
"""

from __future__ import annotations

import random
import re
import uuid

from klamm.model import TopicPartition

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})\Z")
_HEX_LENGTH = 32
_DIRECTORY_NAME_LENGTH_MAX = 255


def unique_name(topic_partition: TopicPartition, suffix: str, rng: random.Random) -> str:
    """A directory name that is not in use, cut if it would be too long."""
    unique = uuid.UUID(int=rng.getrandbits(128), version=4).hex
    suffix = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: _DIRECTORY_NAME_LENGTH_MAX - len(suffix)] + suffix


def current_name(name: str) -> str:
    """The name that a future log's directory is to get; any other name as it is."""
    if not name.endswith(FUTURE_SUFFIX):
        return name
    return name[: -len(FUTURE_SUFFIX) - _HEX_LENGTH - 1]


def parse_directory_name(name: str) -> TopicPartition | None:
    """The topic-partition a directory is named after, or None."""
    found = _PARTITION_DIRECTORY.match(name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else None
