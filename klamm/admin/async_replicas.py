"""The Admin's part about partition leaders, and about the brokers that hold replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from klamm.admin import decode
from klamm.admin.calls import raise_first_error
from klamm.admin.placement_plan import plan_reassignment
from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1 import controller_pb2, metadata_pb2
from klamm.wire.v1.controller_rpc import AdminStub

if TYPE_CHECKING:
    from klamm.admin.calls import AdminCalls
    from klamm.admin.types import ElectionType, PartitionReassignment
    from klamm.errors import BrokerError


class ReplicaOperations:
    """The Admin's calls about elections, reassignments and brokers that leave the cluster."""

    _calls: AdminCalls

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elects leaders of `partitions`. None means all partitions; those that need no election are then left out
        (Kafka's electLeaders).

        The value of a partition is the error of its failed election: ElectionNotNeededError,
        PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError ..."""
        wanted = None if partitions is None else list(partitions)
        if wanted is not None and not wanted:
            return {}
        request = controller_pb2.ElectLeadersRequest(
            election_type=int(election_type),  # type: ignore[arg-type]
            partitions=_named(wanted or ()),
            timeout_ms=self._calls.timeout_ms(timeout_ms),
        )
        response = await self._calls.controller(AdminStub.elect_leaders, request, timeout_ms)
        return {
            TopicPartition(result.topic, result.partition): (
                ErrorCode.of(result.error_code).exception(result.error_message) if result.error_code else None
            )
            for result in response.results
        }

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        keep_replication_factor: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Begins to move each partition to the given brokers, the preferred leader first. None cancels the reassignment
        of the partition (KIP-455).

        Raises InvalidReplicaAssignmentError, NoReassignmentInProgressError, UnknownTopicOrPartitionError ..."""
        request = controller_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                controller_pb2.PartitionReassignment(
                    topic=topic,
                    partition=partition,
                    replicas=None if replicas is None else metadata_pb2.BrokerIds(broker_ids=list(replicas)),
                )
                for (topic, partition), replicas in reassignments.items()
            ],
            keep_replication_factor=keep_replication_factor,
            timeout_ms=self._calls.timeout_ms(timeout_ms),
        )
        response = await self._calls.controller(AdminStub.alter_partition_reassignments, request, timeout_ms)
        raise_first_error((f"{result.topic}-{result.partition}", result) for result in response.results)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Returns the reassignments under way, of `partitions` or of all."""
        wanted = None if partitions is None else list(partitions)
        if wanted is not None and not wanted:
            return {}
        request = controller_pb2.ListPartitionReassignmentsRequest(partitions=_named(wanted or ()))
        response = await self._calls.controller(AdminStub.list_partition_reassignments, request, timeout_ms)
        return {
            TopicPartition(reassignment.topic, reassignment.partition): decode.partition_reassignment(reassignment)
            for reassignment in response.reassignments
        }

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Removes the registration of a broker that has stopped for good. Partitions keep the broker as a replica until
        they are reassigned.

        Raises BrokerIdNotRegisteredError."""
        request = controller_pb2.UnregisterBrokerRequest(broker_id=broker_id)
        await self._calls.controller(AdminStub.unregister_broker, request, timeout_ms)

    async def decommission_broker(
        self, broker_id: int, *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> int:
        """Begins to move all replicas from a broker to other live brokers. Returns the number of partitions that still
        have to move. With `validate_only`, begins no move.

        Call the method again until it returns 0, because topics may have been created meanwhile. Raises
        BrokerIdNotRegisteredError, or InvalidReplicationFactorError if there are too few other brokers."""
        cluster = decode.cluster_description(
            await self._calls.controller(
                AdminStub.describe_cluster, controller_pb2.DescribeClusterRequest(), timeout_ms
            )
        )
        described = await self._calls.controller(
            AdminStub.describe_topics, controller_pb2.DescribeTopicsRequest(), timeout_ms
        )
        topics = [decode.topic_description(topic) for topic in described.topics]
        target = {
            TopicPartition(topic.name, partition.partition): partition.target_replicas
            for topic in topics
            for partition in topic.partitions
        }
        hosted = sum(broker_id in partition.replicas for topic in topics for partition in topic.partitions)
        others = [broker for broker in cluster.brokers if broker.node_id != broker_id]
        if not hosted and len(others) == len(cluster.brokers):
            raise ErrorCode.BROKER_ID_NOT_REGISTERED.exception(f"broker {broker_id} is not registered")
        plan = plan_reassignment(
            target,
            {other.node_id: other.rack for other in others},
            targets=[other.node_id for other in others if not other.fenced],
            # A fenced broker that registers again then needs to copy less.
            stay=[other.node_id for other in others],
            moving=[tp for tp, replicas in target.items() if broker_id in replicas],
        )
        if plan and not validate_only:
            await self.alter_partition_reassignments(plan, timeout_ms=timeout_ms)
        return hosted


def _named(partitions: Iterable[TopicPartition]) -> list[controller_pb2.NamedPartition]:
    return [controller_pb2.NamedPartition(topic=topic, partition=partition) for topic, partition in partitions]
