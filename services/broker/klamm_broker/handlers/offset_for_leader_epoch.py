"""OffsetForLeaderEpoch: finds the end offset of an epoch in the leader's log, so that readers detect truncation
(KIP-320)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.handlers.topic_rights import require_topic
from klamm_broker.io import metrics
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.security.needs import EPOCH_END


class EpochQuery(NamedTuple):
    """The partition and the leader epoch whose end offset is requested."""

    topic: str
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """The answer for one partition. A field is -1 if it has no value."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderEpochHandler:
    """Handles OffsetForLeaderEpoch requests of both protocols."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def offsets_for_leader_epochs(self, queries: Iterable[EpochQuery]) -> list[EpochEndOffset]:
        """Returns one answer per query, in the same order. A caller with the rights of a server may ask about all
        topics."""
        return [self._look_up(query) for query in queries]

    def _look_up(self, wanted: EpochQuery) -> EpochEndOffset:
        try:
            require_topic(EPOCH_END, wanted.topic)
            partition = self._replicas.leader(
                TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch
            )
        except BrokerError as error:
            metrics.on_error("offset_for_leader_epoch", error.code)
            return EpochEndOffset(wanted.topic, wanted.partition, error.code, error.message)
        epoch, end_offset = partition.epoch_end(wanted.leader_epoch)
        return EpochEndOffset(wanted.topic, wanted.partition, leader_epoch=epoch, end_offset=end_offset)
