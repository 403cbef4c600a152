"""The errors with which a broker would refuse to move replicas to another log directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition

if TYPE_CHECKING:
    from klamm.admin import LogDirDescription


def move_errors(
    broker_id: int, partitions: Iterable[TopicPartition], path: str, log_dirs: Sequence[LogDirDescription]
) -> Iterator[BrokerError]:
    """Yields the error of each partition that cannot move to `path`. `log_dirs` are those of the broker."""
    target = next((log_dir for log_dir in log_dirs if log_dir.path == path), None)
    hosted = {replica.tp for log_dir in log_dirs for replica in log_dir.replicas}
    known = ", ".join(log_dir.path for log_dir in log_dirs)
    for tp in partitions:
        if target is None:
            message = f"{tp}: {path!r} is not a log directory of this broker; expected one of {known}"
            yield ErrorCode.LOG_DIR_NOT_FOUND.exception(message)
        elif not target.online:
            yield ErrorCode.KAFKA_STORAGE_ERROR.exception(f"{tp}: the log directory {path} is offline")
        elif tp not in hosted:
            yield ErrorCode.REPLICA_NOT_AVAILABLE.exception(f"{tp} has no replica on broker {broker_id}")
