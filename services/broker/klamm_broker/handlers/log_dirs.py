"""Handles DescribeLogDirs and AlterReplicaLogDirs: describes log directories and their replicas, and moves replicas
between directories."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.handlers.audit_changes import record_changes
from klamm_broker.handlers.topic_filter import topic_filter
from klamm_broker.io import metrics
from klamm_broker.log.dirs.log_dir_description import ReplicaOnDisk
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.maintenance.held_partitions import NOT_HELD, HeldPartitions
from klamm_broker.maintenance.log_dir_moves import LogDirMoves
from klamm_server.runtime.sliced_work import ITEMS_PER_TURN
from klamm_server.security.audit.events import Activity
from klamm_server.security.session import require_audit


class DescribedReplica(NamedTuple):
    """A replica in a log directory. `is_future` is True for the unfinished copy of a replica that moves between
    directories."""

    topic: str
    partition: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    is_future: bool
    offset_lag: int
    held_bytes: int
    """The bytes that retention keeps only for groups."""
    held_for: str
    """The group with the lowest committed offset, if it is known."""
    in_bytes: int
    """The bytes that producers have appended here since the log was opened."""
    out_bytes: int
    """The bytes that consumers have fetched here since the log was opened."""


class DescribedLogDir(NamedTuple):
    """A log directory and the requested replicas in it."""

    error_code: ErrorCode
    path: str
    total_bytes: int
    usable_bytes: int
    replicas: list[DescribedReplica]


class ReplicaMove(NamedTuple):
    """A replica and the log directory that it must move to."""

    topic: str
    partition: int
    path: str


class StartedMove(NamedTuple):
    """The answer for one replica."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


class LogDirsHandler:
    """Handles DescribeLogDirs and AlterReplicaLogDirs requests of both protocols."""

    def __init__(self, logs: LogManager, moves: LogDirMoves, held: HeldPartitions) -> None:
        self._logs = logs
        self._moves = moves
        self._held = held

    def describe_log_dirs(self, topics: Mapping[str, Collection[int]]) -> list[DescribedLogDir]:
        """Describes all log directories, with the replicas that `topic_filter` selects by `topics`."""
        wanted = topic_filter(topics)
        return [
            DescribedLogDir(
                log_dir.error_code,
                log_dir.path,
                log_dir.total_bytes,
                log_dir.usable_bytes,
                [
                    self._described(replica)
                    for replica in sorted(log_dir.replicas, key=lambda stored: stored.log.topic_partition)
                    if wanted(replica.log.topic_partition)
                ],
            )
            for log_dir in self._logs.describe_log_dirs()
        ]

    def _described(self, replica: ReplicaOnDisk) -> DescribedReplica:
        log = replica.log
        held = NOT_HELD if replica.is_future else self._held.partitions.get(log.topic_partition, NOT_HELD)
        return DescribedReplica(
            *log.topic_partition,
            log.segments.size_bytes,
            log.log_start_offset,
            log.log_end_offset,
            replica.is_future,
            replica.offset_lag,
            held.held_bytes,
            held.group_id,
            log.traffic.in_bytes,
            log.traffic.out_bytes,
        )

    async def alter_replica_log_dirs(self, moves: Iterable[ReplicaMove]) -> list[StartedMove]:
        """Starts the moves one after another, and returns one answer per move. A move is answered when its copy has
        begun."""
        started = []
        for number, move in enumerate(moves, 1):
            started.append(await self._alter(move))
            if not number % ITEMS_PER_TURN:
                # A move that is refused does not let other work run.
                await asyncio.sleep(0)
        record_changes("AlterReplicaLogDirs", Activity.UPDATE, started)
        return started

    async def _alter(self, wanted: ReplicaMove) -> StartedMove:
        try:
            require_audit()
            await self._moves.alter(TopicPartition(wanted.topic, wanted.partition), wanted.path)
        except BrokerError as error:
            metrics.on_error("alter_replica_log_dirs", error.code)
            return StartedMove(wanted.topic, wanted.partition, error.code, error.message)
        return StartedMove(wanted.topic, wanted.partition)
