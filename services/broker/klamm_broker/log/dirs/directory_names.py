"""The names of partition directories, as in Kafka. Pure.

A log has `<topic>-<partition>`, a deleted log `<topic>-<partition>.<hex>-delete`. A log that is being copied from
another log directory has `<topic>-<partition>.<hex>-future` (`log_move.py`).
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
    """Returns a directory name that is not in use. The topic is shortened if the name would be too long."""
    unique = uuid.UUID(int=rng.getrandbits(128), version=4).hex
    suffix = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: _DIRECTORY_NAME_LENGTH_MAX - len(suffix)] + suffix


def current_name(name: str) -> str:
    """Returns the final name of a future log's directory. Returns other names unchanged."""
    if not name.endswith(FUTURE_SUFFIX):
        return name
    return name[: -len(FUTURE_SUFFIX) - _HEX_LENGTH - 1]


def parse_directory_name(name: str) -> TopicPartition | None:
    """Returns the partition that a directory is named after, or None."""
    found = _PARTITION_DIRECTORY.match(name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else None
