"""DescribeProducers: returns the producers that a partition's leader remembers, with their open transactions
(KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition, topic_name_problem
from klamm_broker.handlers.topic_rights import require_topic
from klamm_broker.io import metrics
from klamm_broker.log.producers.producer_state import ProducerDescription
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.security.needs import READ_TOPIC


class PartitionProducers(NamedTuple):
    """The answer for one partition. Its producers are sorted by producer id."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    producers: Sequence[ProducerDescription] = ()


class DescribeProducersHandler:
    """Handles DescribeProducers requests of both protocols."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def describe_producers(self, partitions: Iterable[TopicPartition]) -> list[PartitionProducers]:
        """Returns one answer per partition, in the same order."""
        return [self.describe(partition) for partition in partitions]

    def describe(self, name: TopicPartition) -> PartitionProducers:
        """Returns the answer for one partition."""
        try:
            if problem := topic_name_problem(name.topic):
                raise ErrorCode.INVALID_TOPIC_EXCEPTION.exception(problem)
            require_topic(READ_TOPIC, name.topic)
            producers = self._replicas.leader(name).log.producers.descriptions()
        except BrokerError as error:
            metrics.on_error("describe_producers", error.code)
            return PartitionProducers(*name, error.code, error.message)
        return PartitionProducers(*name, producers=sorted(producers))
