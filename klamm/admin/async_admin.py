"""The Admin for asyncio: topics, replicas, configs, groups and their offsets, records, log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from klamm.admin import decode
from klamm.admin.async_acls import AclOperations
from klamm.admin.async_ledgers import LedgerOperations
from klamm.admin.async_quotas import QuotaOperations
from klamm.admin.async_replicas import ReplicaOperations
from klamm.admin.async_scrubs import ScrubOperations
from klamm.admin.async_transactions import TransactionOperations
from klamm.admin.async_users import UserOperations
from klamm.admin.calls import AdminCalls, BareOutcome, raise_first_error
from klamm.cluster.client import KlammClient
from klamm.cluster.leader_calls import missing_leader_error
from klamm.cluster.offset_finder import READ_COMMITTED, READ_UNCOMMITTED, OffsetFinder
from klamm.config import ClientConfig
from klamm.consumer.offsets.offset_store import OUTSIDE_THE_GROUP, OffsetStore, group_by_topic
from klamm.errors import EXCEPTIONS, CommitFailedError, ErrorCode, GroupIdNotFoundError, raise_for
from klamm.forgotten import close_if_forgotten
from klamm.model import TopicPartition
from klamm.offsets import to_commit
from klamm.several_calls import until_all_ended, until_first_error
from klamm.wire.v1 import broker_pb2, common_pb2, controller_pb2, coordinator_pb2
from klamm.wire.v1.controller_rpc import AdminStub
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

if TYPE_CHECKING:
    from types import TracebackType

    from klamm.admin.types import (
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        CreatedTopic,
        GroupDescription,
        GroupLagDescription,
        GroupListing,
        LogDirDescription,
        NewTopic,
        QuorumDescription,
        TopicDescription,
        TopicPartitionReplica,
    )
    from klamm.offsets import OffsetAndMetadata, OffsetAndTimestamp
    from klamm.setting_types import ClientSettings
    from klamm.wire.calls import Unary

VoterRequestT = TypeVar("VoterRequestT", controller_pb2.AddRaftVoterRequest, controller_pb2.RemoveRaftVoterRequest)


class AsyncAdmin(
    ReplicaOperations,
    ScrubOperations,
    TransactionOperations,
    LedgerOperations,
    AclOperations,
    UserOperations,
    QuotaOperations,
):
    """An administrator's client for asyncio. Create and use it on one running event loop. Close it, or use it as a
    context manager.

    `config` has Kafka's dotted names. Keyword arguments have the same names with underscores. Every method takes
    `timeout_ms`, by default default.api.timeout.ms. Within that time, a method retries calls that fail with retriable
    errors. If a server refuses a call, the method raises the exception of the error code (klamm.errors). If several
    items fail, the method raises the first error, and its notes (`__notes__`) name the others."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ClientSettings]) -> None:
        self._client = client = KlammClient(ClientConfig.parse(config, **settings))
        self._calls = AdminCalls(self._client)
        name = f"Admin client.id={client.config.client_id}"
        loop = asyncio.get_running_loop()
        close_if_forgotten(self, loop, name, is_closed=lambda: client.is_closed, close=client.close)

    # --- topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """Creates topics and returns them by name. Raises TopicAlreadyExistsError, InvalidTopicError,
        InvalidConfigError ..."""
        request = controller_pb2.CreateTopicsRequest(
            client_id=self._client.config.client_id,
            topics=[_new_topic(topic) for topic in topics],
            validate_only=validate_only,
            timeout_ms=self._calls.timeout_ms(timeout_ms),
        )
        response = await self._calls.controller(AdminStub.create_topics, request, timeout_ms)
        raise_first_error((topic.name, topic) for topic in response.topics)
        return {topic.name: decode.created_topic(topic) for topic in response.topics}

    async def delete_topics(self, topics: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Deletes topics with their records, configs and partitions. Raises UnknownTopicOrPartitionError."""
        request = controller_pb2.DeleteTopicsRequest(
            client_id=self._client.config.client_id, topics=list(topics), timeout_ms=self._calls.timeout_ms(timeout_ms)
        )
        response = await self._calls.controller(AdminStub.delete_topics, request, timeout_ms)
        raise_first_error((result.name, result) for result in response.results)

    async def create_partitions(
        self,
        total_counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Mapping[int, Iterable[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Increases the number of partitions of each topic to a total count. `assignments` may name the brokers of the
        new partitions."""
        request = controller_pb2.CreatePartitionsRequest(
            client_id=self._client.config.client_id,
            topics=[
                controller_pb2.NewPartitions(
                    topic=topic,
                    total_count=count,
                    assignments=_assignments((assignments or {}).get(topic, {})),
                )
                for topic, count in total_counts.items()
            ],
            validate_only=validate_only,
            timeout_ms=self._calls.timeout_ms(timeout_ms),
        )
        response = await self._calls.controller(AdminStub.create_partitions, request, timeout_ms)
        raise_first_error((result.name, result) for result in response.results)

    async def describe_topics(
        self, topics: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        """Returns the descriptions by topic name. Raises UnknownTopicOrPartitionError."""
        names = list(topics)
        if not names:
            return {}
        described = await self._describe_topics(names, timeout_ms)
        # If the caller asks for offsets next, the client already knows the leaders.
        self._client.learn_topics([decode.topic_view(topic) for topic in described.values()])
        return described

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        """Returns the descriptions of all topics by topic name."""
        found = await self._describe_topics([], timeout_ms)
        return {name: topic for name, topic in found.items() if include_internal or not topic.internal}

    async def _describe_topics(self, names: list[str], timeout_ms: int | None) -> dict[str, TopicDescription]:
        request = controller_pb2.DescribeTopicsRequest(topics=names)
        response = await self._calls.controller(AdminStub.describe_topics, request, timeout_ms)
        raise_first_error((topic.name, topic) for topic in response.topics)
        return {topic.name: decode.topic_description(topic) for topic in response.topics}

    # --- configs and the cluster

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] = (),
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Returns the configs of each resource by name. With `names`, returns only these configs."""
        wanted = list(names)
        request = controller_pb2.DescribeConfigsRequest(
            resources=[
                controller_pb2.DescribeConfigsResource(resource=_resource(resource), names=wanted)
                for resource in resources
            ],
            include_documentation=include_documentation,
        )
        response = await self._calls.controller(AdminStub.describe_configs, request, timeout_ms)
        raise_first_error((result.resource.name, result) for result in response.results)
        return {
            decode.config_resource(result.resource): {
                config.name: decode.config_entry(config) for config in result.configs
            }
            for result in response.results
        }

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Changes configs. The changes of one resource happen together or not at all."""
        request = controller_pb2.IncrementalAlterConfigsRequest(
            resources=[
                controller_pb2.AlterConfigsResource(
                    resource=_resource(resource),
                    changes=[
                        controller_pb2.ConfigChange(
                            name=change.name,
                            operation=int(change.operation),  # type: ignore[arg-type]
                            value=change.value,
                        )
                        for change in of_resource
                    ],
                )
                for resource, of_resource in changes.items()
            ],
            validate_only=validate_only,
        )
        response = await self._calls.controller(AdminStub.incremental_alter_configs, request, timeout_ms)
        raise_first_error((result.name, result) for result in response.results)

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Describes the servers. Any controller answers, so this also works while none of them leads."""
        request = controller_pb2.DescribeClusterRequest()
        return decode.cluster_description(
            await self._calls.any_controller(AdminStub.describe_cluster, request, timeout_ms)
        )

    async def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        """Describes the controllers and the observers of their log, as the leader sees them (Kafka's
        describeMetadataQuorum)."""
        request = controller_pb2.DescribeQuorumRequest()
        return decode.quorum_description(await self._calls.controller(AdminStub.describe_quorum, request, timeout_ms))

    async def add_raft_voter(
        self,
        voter_id: int,
        voter_directory_id: str,
        *,
        endpoint: tuple[str, int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Turns a controller that follows as an observer into a voter, after it has caught up (KIP-853).

        The other controllers reach the new voter at `endpoint`. Without it, they use the address that the controller
        itself reports. Raises DuplicateVoterError if a voter has that id. Raises RequestTimedOutError if the controller
        did not catch up in time, or if other changes were under way."""
        host, port = endpoint or ("", 0)
        request = controller_pb2.AddRaftVoterRequest(
            node_id=voter_id,
            directory_id=voter_directory_id,
            endpoint=common_pb2.Endpoint(host=host, port=port),
            timeout_ms=self._calls.timeout_ms(timeout_ms),
        )
        await self._change_voters(AdminStub.add_raft_voter, request, True, timeout_ms)

    async def remove_raft_voter(self, voter_id: int, voter_directory_id: str, *, timeout_ms: int | None = None) -> None:
        """Removes a controller from the voters of the quorum (KIP-853). The leader can be removed too. The controller
        continues as an observer.

        Raises VoterNotFoundError, InvalidRequestError for the last voter, RequestTimedOutError."""
        request = controller_pb2.RemoveRaftVoterRequest(
            node_id=voter_id, directory_id=voter_directory_id, timeout_ms=self._calls.timeout_ms(timeout_ms)
        )
        await self._change_voters(AdminStub.remove_raft_voter, request, False, timeout_ms)

    async def _change_voters(
        self,
        rpc: Unary[AdminStub, VoterRequestT, Any],
        request: VoterRequestT,
        is_voter_then: bool,
        timeout_ms: int | None,
    ) -> None:
        """Sends a change of the voters. If an earlier attempt had an unknown outcome, a refusal may mean that this
        attempt succeeded."""
        key = (request.node_id, request.directory_id)
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                await self._calls.ask_controller(rpc, request)
            except (EXCEPTIONS[ErrorCode.DUPLICATE_VOTER], EXCEPTIONS[ErrorCode.VOTER_NOT_FOUND]):
                if attempts == 1 or (key in await self._voter_keys()) is not is_voter_then:
                    raise

        await self._calls.retrying(attempt, timeout_ms)

    async def _voter_keys(self) -> set[tuple[int, str]]:
        response = await self._calls.ask_controller(AdminStub.describe_quorum, controller_pb2.DescribeQuorumRequest())
        return {(replica.node_id, replica.directory_id) for replica in response.replicas if replica.is_voter}

    # --- groups

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: int | None = None
    ) -> dict[str, GroupListing]:
        """Returns the groups of all coordinators by group id. `states` and `types` (classic, consumer) restrict the
        result."""
        request = coordinator_pb2.ListGroupsRequest(states=list(states), types=list(types))

        async def attempt() -> list[Any]:
            cluster = await self._client.refresh_metadata([])
            asked = (self._client.coordinator(node_id).list_groups(request) for node_id in cluster.coordinators)
            responses = await until_first_error(asked)
            for response in responses:
                raise_for(response.error_code, response.error_message)
            return [group for response in responses for group in response.groups]

        groups = await self._calls.retrying(attempt, timeout_ms)
        return {
            group.group_id: decode.group_listing(group) for group in sorted(groups, key=lambda group: group.group_id)
        }

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription]:
        """Returns the descriptions of the groups by id, with their members and the members' assignments. Raises
        GroupIdNotFoundError."""

        async def describe(group_id: str) -> GroupDescription:
            request = coordinator_pb2.DescribeGroupsRequest(group_ids=[group_id])
            try:
                response = await self._calls.coordinator(group_id, CoordinatorStub.describe_groups, request, timeout_ms)
                return decode.group_description(response.groups[0])
            except GroupIdNotFoundError:  # the group may use the consumer protocol (KIP-848)
                again = coordinator_pb2.ConsumerGroupDescribeRequest(group_ids=[group_id])
                found = await self._calls.coordinator(
                    group_id, CoordinatorStub.consumer_group_describe, again, timeout_ms
                )
                return decode.consumer_group_description(found.groups[0])

        described = await until_first_error(describe(group_id) for group_id in group_ids)
        return {group.group_id: group for group in described}

    async def describe_group_lag(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupLagDescription]:
        """Returns the lag of each group in records and in time, by id. Returns also how many records it lost, and how
        long retention keeps the unread ones. Raises GroupIdNotFoundError."""

        async def describe(group_id: str) -> GroupLagDescription:
            request = coordinator_pb2.DescribeGroupLagRequest(group_ids=[group_id])
            response = await self._calls.coordinator(group_id, CoordinatorStub.describe_group_lag, request, timeout_ms)
            return decode.group_lag(response.groups[0])

        described = await until_first_error(describe(group_id) for group_id in group_ids)
        return {group.group_id: group for group in described}

    async def forget_lost_records(
        self, group_id: str, topics: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> int:
        """Sets the counts of the records that a group lost to 0, for `topics` or for all. Returns the sum of the counts
        before. Raises GroupIdNotFoundError."""
        request = coordinator_pb2.ForgetLostRecordsRequest(group_id=group_id, topics=topics)
        response = await self._calls.coordinator(group_id, CoordinatorStub.forget_lost_records, request, timeout_ms)
        return response.lost_count

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Deletes groups with their offsets. Raises NonEmptyGroupError if a group has members, and
        GroupIdNotFoundError."""

        async def delete(group_id: str) -> None:
            request = coordinator_pb2.DeleteGroupsRequest(group_ids=[group_id])
            await self._calls.coordinator(group_id, CoordinatorStub.delete_groups, request, timeout_ms)

        await until_all_ended(delete(group_id) for group_id in group_ids)

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of the group, for `partitions` or for all. Partitions without a commit are left
        out.

        An open transaction does not change the answer, because its offsets are not committed. With `require_stable`,
        the call waits for the end of transactions that may change an offset (KIP-447). It raises
        UnstableOffsetCommitError after the time-out."""
        wanted = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        return await self._store(group_id).fetch(
            wanted, timeout_ms=self._calls.timeout_ms(timeout_ms), require_stable=require_stable
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Stores offsets for a group without members. Creates the group if it does not exist. Raises NonEmptyGroupError
        if it has members."""
        wanted = to_commit(offsets)
        try:
            await self._store(group_id).commit(
                wanted, lambda: OUTSIDE_THE_GROUP, timeout_ms=self._calls.timeout_ms(timeout_ms)
            )
        except CommitFailedError:
            raise ErrorCode.NON_EMPTY_GROUP.exception(
                f"group {group_id!r} has active members; stop them before changing its offsets"
            ) from None

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Deletes committed offsets of the group. Raises GroupSubscribedToTopicError for topics that members
        consume.
        """
        request = coordinator_pb2.OffsetDeleteRequest(group_id=group_id, topics=group_by_topic(partitions))
        response = await self._calls.coordinator(group_id, CoordinatorStub.offset_delete, request, timeout_ms)
        raise_first_error((f"{partition.topic}-{partition.partition}", partition) for partition in response.partitions)

    async def remove_group_members(
        self,
        group_id: str,
        instances: Iterable[str] | None = None,
        *,
        reason: str = "",
        timeout_ms: int | None = None,
    ) -> None:
        """Removes the members with these group.instance.ids from the group immediately (KIP-345). None removes all
        current members (KIP-571).

        A consumer that still runs joins again. Raises UnknownMemberIdError if no member has such an instance id."""
        told = f"member was removed by an admin: {reason}" if reason else "member was removed by an admin"
        if instances is None:
            described = (await self.describe_groups([group_id], timeout_ms=timeout_ms))[group_id]
            leaving = [
                coordinator_pb2.LeavingMember(
                    member_id="" if member.group_instance_id else member.member_id,
                    group_instance_id=member.group_instance_id or "",
                    reason=told,
                )
                for member in described.members
            ]
        else:
            leaving = [coordinator_pb2.LeavingMember(group_instance_id=instance, reason=told) for instance in instances]
        if not leaving:
            return
        request = coordinator_pb2.LeaveGroupRequest(group_id=group_id, members=leaving)
        response = await self._calls.coordinator(group_id, CoordinatorStub.leave_group, request, timeout_ms)
        gone = ErrorCode.UNKNOWN_MEMBER_ID if instances is None else None
        raise_first_error(
            (member.group_instance_id or member.member_id, BareOutcome(member.error_code))
            for member in response.members
            if member.error_code != gone
        )

    def _store(self, group_id: str) -> OffsetStore:
        return OffsetStore(self._client, group_id)

    # --- records

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns for each partition the first offset at or after a time. The time can also be EARLIEST, LATEST or
        MAX_TIMESTAMP of klamm.model. The offset is -1 if there is no such record."""
        finder = OffsetFinder(self._client, READ_COMMITTED if read_committed else READ_UNCOMMITTED)
        return await finder.find(dict(timestamps), timeout_ms=self._calls.timeout_ms(timeout_ms))

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the records before each offset; -1 deletes all records. Returns the new first offset of each
        partition."""
        wanted = {TopicPartition(*tp): offset for tp, offset in before_offsets.items()}
        deleted: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            await self._client.refresh_metadata({tp.topic for tp in wanted})
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in wanted.keys() - deleted.keys():
                by_leader.setdefault(self._leader(tp), []).append(tp)
            asked = (self._delete_records(node_id, of_node, wanted) for node_id, of_node in by_leader.items())
            parts = [part for response in await until_all_ended(asked) for part in response.partitions]
            for part in parts:
                if not part.error_code:
                    deleted[TopicPartition(part.topic, part.partition)] = part.low_watermark
            raise_first_error((f"{part.topic}-{part.partition}", part) for part in parts)

        await self._calls.retrying(attempt, timeout_ms)
        return {tp: deleted[tp] for tp in wanted}

    async def _delete_records(
        self, node_id: int, partitions: list[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> Any:
        request = broker_pb2.DeleteRecordsRequest(
            partitions=[
                broker_pb2.DeleteRecordsPartition(topic=tp.topic, partition=tp.partition, before_offset=offsets[tp])
                for tp in sorted(partitions)
            ],
            timeout_ms=self._client.config.request_timeout_ms,
        )
        return await self._client.broker(node_id).delete_records(request)

    def _leader(self, tp: TopicPartition) -> int:
        cluster = self._client.cluster
        leader = cluster.leader_of(tp)
        if leader is None:
            raise missing_leader_error(cluster.topic_errors.get(tp.topic), cluster.partition_count(tp.topic), tp)
        return leader.node_id

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Describes the log directories of each broker, with the replicas in them. `broker_ids` of None means all live
        brokers. With `topics`, only the replicas of these topics are included."""
        given = None if broker_ids is None else list(broker_ids)
        wanted = [common_pb2.TopicPartitions(topic=name) for name in topics]

        async def attempt() -> dict[int, tuple[LogDirDescription, ...]]:
            cluster = await self._client.refresh_metadata([])
            ids = sorted(cluster.brokers) if given is None else given
            request = broker_pb2.DescribeLogDirsRequest(topics=wanted)
            responses = await until_first_error(
                self._client.broker(broker_id).describe_log_dirs(request) for broker_id in ids
            )
            return {
                broker_id: tuple(decode.log_dir(log_dir) for log_dir in response.log_dirs)
                for broker_id, response in zip(ids, responses, strict=True)
            }

        found: dict[int, tuple[LogDirDescription, ...]] = await self._calls.retrying(attempt, timeout_ms)
        return found

    async def alter_replica_log_dirs(
        self, log_dirs: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> None:
        """Begins to move replicas to other log directories of their brokers (KIP-113). `describe_log_dirs` shows when a
        move is complete. If the target is the replica's current directory, the replica stays there and a move under way
        is cancelled.

        Raises LogDirNotFoundError, ReplicaNotAvailableError, or KafkaStorageError for an offline directory."""
        by_broker: dict[int, list[broker_pb2.ReplicaLogDir]] = {}
        for (topic, partition, broker_id), path in log_dirs.items():
            wanted = broker_pb2.ReplicaLogDir(topic=topic, partition=partition, path=path)
            by_broker.setdefault(broker_id, []).append(wanted)

        async def attempt() -> list[Any]:
            await self._client.refresh_metadata([])
            responses = await until_all_ended(
                self._client.broker(broker_id).alter_replica_log_dirs(
                    broker_pb2.AlterReplicaLogDirsRequest(replicas=replicas)
                )
                for broker_id, replicas in by_broker.items()
            )
            return [result for response in responses for result in response.results]

        results = await self._calls.retrying(attempt, timeout_ms)
        raise_first_error((f"{result.topic}-{result.partition}", result) for result in results)

    # --- the end

    async def close(self) -> None:
        """Closes the connections. Calls under way raise NetworkError."""
        await self._client.close()

    def __repr__(self) -> str:
        return self._client.config.named("AsyncAdmin")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _new_topic(topic: NewTopic) -> controller_pb2.NewTopic:
    return controller_pb2.NewTopic(
        name=topic.name,
        partition_count=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=_assignments(topic.assignments),
        configs=dict(topic.configs),
    )


def _assignments(assignments: Mapping[int, Iterable[int]]) -> list[controller_pb2.ReplicaAssignment]:
    return [
        controller_pb2.ReplicaAssignment(partition=partition, broker_ids=list(broker_ids))
        for partition, broker_ids in sorted(assignments.items())
    ]


def _resource(resource: ConfigResource) -> controller_pb2.ConfigResource:
    # The enum lives in metadata.proto; the numbers are the same.
    return controller_pb2.ConfigResource(type=int(resource.type), name=resource.name)  # type: ignore[arg-type]
