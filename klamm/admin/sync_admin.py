"""The Admin for threads: an AsyncAdmin on the shared loop thread. `python -m tools.sync_admin` writes this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from klamm.admin.async_admin import AsyncAdmin
from klamm.admin.async_transactions import MAX_TRANSACTION_TIMEOUT_MS
from klamm.threads.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from klamm.acls import AclBinding, AclBindingFilter, AclDecision, AclOperation, ResourceType
    from klamm.admin.types import (
        ClientQuotaAlteration,
        ClientQuotaEntity,
        ClientQuotaFilterComponent,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        CreatedTopic,
        ElectionType,
        GroupDescription,
        GroupLagDescription,
        GroupListing,
        HangingTransaction,
        LedgerListing,
        LogDirDescription,
        NewTopic,
        PartitionReassignment,
        ProducerState,
        QuorumDescription,
        ScrubDescription,
        TopicDescription,
        TopicPartitionReplica,
        TransactionDescription,
        TransactionListing,
        UserScramCredentialDeletion,
        UserScramCredentialsDescription,
        UserScramCredentialUpsertion,
    )
    from klamm.batches import PreparedPart
    from klamm.errors import BrokerError
    from klamm.ledger_ids import LedgerId
    from klamm.model import TopicPartition
    from klamm.offsets import OffsetAndMetadata, OffsetAndTimestamp
    from klamm.setting_types import ClientSettings


class Admin:
    """The synchronous Admin. Its methods are those of AsyncAdmin, but wait for the result. Any thread may call them."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ClientSettings]) -> None:
        self._run = LoopThread.shared().run
        self._async = self._run(_create, config, settings)

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """Creates topics and returns them by name. Raises TopicAlreadyExistsError, InvalidTopicError,
        InvalidConfigError ..."""
        return self._run(self._async.create_topics, topics, validate_only=validate_only, timeout_ms=timeout_ms)

    def delete_topics(self, topics: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Deletes topics with their records, configs and partitions. Raises UnknownTopicOrPartitionError."""
        self._run(self._async.delete_topics, topics, timeout_ms=timeout_ms)

    def create_partitions(
        self,
        total_counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Mapping[int, Iterable[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Increases the number of partitions of each topic to a total count. `assignments` may name the brokers of the
        new partitions."""
        self._run(
            self._async.create_partitions,
            total_counts,
            assignments=assignments,
            validate_only=validate_only,
            timeout_ms=timeout_ms,
        )

    def describe_topics(self, topics: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        """Returns the descriptions by topic name. Raises UnknownTopicOrPartitionError."""
        return self._run(self._async.describe_topics, topics, timeout_ms=timeout_ms)

    def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        """Returns the descriptions of all topics by topic name."""
        return self._run(self._async.list_topics, include_internal=include_internal, timeout_ms=timeout_ms)

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] = (),
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Returns the configs of each resource by name. With `names`, returns only these configs."""
        return self._run(
            self._async.describe_configs,
            resources,
            names=names,
            include_documentation=include_documentation,
            timeout_ms=timeout_ms,
        )

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Changes configs. The changes of one resource happen together or not at all."""
        self._run(self._async.incremental_alter_configs, changes, validate_only=validate_only, timeout_ms=timeout_ms)

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Describes the servers. Any controller answers, so this also works while none of them leads."""
        return self._run(self._async.describe_cluster, timeout_ms=timeout_ms)

    def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        """Describes the controllers and the observers of their log, as the leader sees them (Kafka's
        describeMetadataQuorum)."""
        return self._run(self._async.describe_quorum, timeout_ms=timeout_ms)

    def add_raft_voter(
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
        self._run(self._async.add_raft_voter, voter_id, voter_directory_id, endpoint=endpoint, timeout_ms=timeout_ms)

    def remove_raft_voter(self, voter_id: int, voter_directory_id: str, *, timeout_ms: int | None = None) -> None:
        """Removes a controller from the voters of the quorum (KIP-853). The leader can be removed too. The controller
        continues as an observer.

        Raises VoterNotFoundError, InvalidRequestError for the last voter, RequestTimedOutError."""
        self._run(self._async.remove_raft_voter, voter_id, voter_directory_id, timeout_ms=timeout_ms)

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: int | None = None
    ) -> dict[str, GroupListing]:
        """Returns the groups of all coordinators by group id. `states` and `types` (classic, consumer) restrict the
        result."""
        return self._run(self._async.list_groups, states=states, types=types, timeout_ms=timeout_ms)

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription]:
        """Returns the descriptions of the groups by id, with their members and the members' assignments. Raises
        GroupIdNotFoundError."""
        return self._run(self._async.describe_groups, group_ids, timeout_ms=timeout_ms)

    def describe_group_lag(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupLagDescription]:
        """Returns the lag of each group in records and in time, by id. Returns also how many records it lost, and how
        long retention keeps the unread ones. Raises GroupIdNotFoundError."""
        return self._run(self._async.describe_group_lag, group_ids, timeout_ms=timeout_ms)

    def forget_lost_records(self, group_id: str, topics: Iterable[str] = (), *, timeout_ms: int | None = None) -> int:
        """Sets the counts of the records that a group lost to 0, for `topics` or for all. Returns the sum of the counts
        before. Raises GroupIdNotFoundError."""
        return self._run(self._async.forget_lost_records, group_id, topics, timeout_ms=timeout_ms)

    def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Deletes groups with their offsets. Raises NonEmptyGroupError if a group has members, and
        GroupIdNotFoundError."""
        self._run(self._async.delete_groups, group_ids, timeout_ms=timeout_ms)

    def list_group_offsets(
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
        return self._run(
            self._async.list_group_offsets, group_id, partitions, require_stable=require_stable, timeout_ms=timeout_ms
        )

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Stores offsets for a group without members. Creates the group if it does not exist. Raises NonEmptyGroupError
        if it has members."""
        self._run(self._async.alter_group_offsets, group_id, offsets, timeout_ms=timeout_ms)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Deletes committed offsets of the group. Raises GroupSubscribedToTopicError for topics that members
        consume.
        """
        self._run(self._async.delete_group_offsets, group_id, partitions, timeout_ms=timeout_ms)

    def remove_group_members(
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
        self._run(self._async.remove_group_members, group_id, instances, reason=reason, timeout_ms=timeout_ms)

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns for each partition the first offset at or after a time. The time can also be EARLIEST, LATEST or
        MAX_TIMESTAMP of klamm.model. The offset is -1 if there is no such record."""
        return self._run(self._async.list_offsets, timestamps, read_committed=read_committed, timeout_ms=timeout_ms)

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the records before each offset; -1 deletes all records. Returns the new first offset of each
        partition."""
        return self._run(self._async.delete_records, before_offsets, timeout_ms=timeout_ms)

    def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Describes the log directories of each broker, with the replicas in them. `broker_ids` of None means all live
        brokers. With `topics`, only the replicas of these topics are included."""
        return self._run(self._async.describe_log_dirs, broker_ids, topics=topics, timeout_ms=timeout_ms)

    def alter_replica_log_dirs(
        self, log_dirs: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> None:
        """Begins to move replicas to other log directories of their brokers (KIP-113). `describe_log_dirs` shows when a
        move is complete. If the target is the replica's current directory, the replica stays there and a move under way
        is cancelled.

        Raises LogDirNotFoundError, ReplicaNotAvailableError, or KafkaStorageError for an offline directory."""
        self._run(self._async.alter_replica_log_dirs, log_dirs, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Closes the connections. Calls under way raise NetworkError."""
        self._run(self._async.close)

    def elect_leaders(
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
        return self._run(self._async.elect_leaders, election_type, partitions, timeout_ms=timeout_ms)

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        keep_replication_factor: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Begins to move each partition to the given brokers, the preferred leader first. None cancels the reassignment
        of the partition (KIP-455).

        Raises InvalidReplicaAssignmentError, NoReassignmentInProgressError, UnknownTopicOrPartitionError ..."""
        self._run(
            self._async.alter_partition_reassignments,
            reassignments,
            keep_replication_factor=keep_replication_factor,
            timeout_ms=timeout_ms,
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Returns the reassignments under way, of `partitions` or of all."""
        return self._run(self._async.list_partition_reassignments, partitions, timeout_ms=timeout_ms)

    def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Removes the registration of a broker that has stopped for good. Partitions keep the broker as a replica until
        they are reassigned.

        Raises BrokerIdNotRegisteredError."""
        self._run(self._async.unregister_broker, broker_id, timeout_ms=timeout_ms)

    def decommission_broker(self, broker_id: int, *, validate_only: bool = False, timeout_ms: int | None = None) -> int:
        """Begins to move all replicas from a broker to other live brokers. Returns the number of partitions that still
        have to move. With `validate_only`, begins no move.

        Call the method again until it returns 0, because topics may have been created meanwhile. Raises
        BrokerIdNotRegisteredError, or InvalidReplicationFactorError if there are too few other brokers."""
        return self._run(self._async.decommission_broker, broker_id, validate_only=validate_only, timeout_ms=timeout_ms)

    def scrub_logs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[TopicPartition, ...]]:
        """Lets brokers read their replicas of `partitions` and `topics`, or all their replicas, to find damage. Returns
        the replicas by broker. Without `broker_ids`, all live brokers do it. `describe_scrubs` shows the progress, and
        the damage that was found and repaired."""
        return self._run(self._async.scrub_logs, partitions, broker_ids, topics=topics, timeout_ms=timeout_ms)

    def describe_scrubs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        unrepaired_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[ScrubDescription, ...]]:
        """Returns how far each broker has read its replicas of `partitions` and `topics`, or all its replicas.
        `broker_ids` of None means all live brokers.

        With `unrepaired_only`, returns only replicas that still have damage."""
        return self._run(
            self._async.describe_scrubs,
            partitions,
            broker_ids,
            topics=topics,
            unrepaired_only=unrepaired_only,
            timeout_ms=timeout_ms,
        )

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> dict[str, TransactionListing]:
        """Returns the transactional ids of all coordinators. `states`, `producer_ids` and `longer_than_ms`, the time
        for which a transaction has been open, restrict the result."""
        return self._run(
            self._async.list_transactions,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            timeout_ms=timeout_ms,
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription]:
        """Returns the transactions by id. Raises TransactionalIdNotFoundError."""
        return self._run(self._async.describe_transactions, transactional_ids, timeout_ms=timeout_ms)

    def abort_transaction(self, transactional_id: str, *, timeout_ms: int | None = None) -> None:
        """Aborts the open transaction of this id, like a transaction timeout. Its producer gets an error and may begin
        the next transaction.

        Raises TransactionalIdNotFoundError, and InvalidTxnStateError if no transaction is open."""
        self._run(self._async.abort_transaction, transactional_id, timeout_ms=timeout_ms)

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, tuple[int, int]]:
        """Fences all producers with these transactional ids and aborts their open transactions. Returns (producer id,
        epoch) by transactional id.

        Raises TransactionalIdNotFoundError."""
        return self._run(self._async.fence_producers, transactional_ids, timeout_ms=timeout_ms)

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Returns the producer states that the partitions' leaders keep. Raises UnknownTopicOrPartitionError."""
        return self._run(self._async.describe_producers, partitions, timeout_ms=timeout_ms)

    def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Finds transactions that are open in these partitions, but unknown to their coordinators.

        Checks only transactions whose last record is older than `max_transaction_timeout_ms`."""
        return self._run(
            self._async.find_hanging_transactions,
            partitions,
            max_transaction_timeout_ms=max_transaction_timeout_ms,
            timeout_ms=timeout_ms,
        )

    def abort_hanging_transaction(self, hanging: HangingTransaction, *, timeout_ms: int | None = None) -> None:
        """Writes an abort marker into the transaction's partition. Pass only results of `find_hanging_transactions`: if
        a coordinator still knows the transaction, its other partitions may get another outcome.

        Raises InvalidRequestError for a partition of an internal topic, InvalidProducerEpochError if the producer has
        begun another transaction since."""
        self._run(self._async.abort_hanging_transaction, hanging, timeout_ms=timeout_ms)

    def register_run(self, ledger: LedgerId, run_id: str, batch_id: int, *, timeout_ms: int | None = None) -> bool:
        """Registers a run that is about to write a batch. This fences earlier runs and aborts their open transactions.
        Returns False if the batch is committed already, so that there is nothing to write.

        run_id: a different one for every run. Raises RunFencedError, BatchRewoundError, BatchAbortedError."""
        return self._run(self._async.register_run, ledger, run_id, batch_id, timeout_ms=timeout_ms)

    def commit_batch(
        self,
        ledger: LedgerId,
        run_id: str,
        batch_id: int,
        parts: Iterable[PreparedPart],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits all parts of the batch, or none. Other open transactions of the ledger are aborted. Returns when the
        decision is durable; the coordinators apply it afterwards.

        Raises InvalidTxnStateError if a part is no longer prepared. The batch may then be aborted and written again.
        Also raises the errors of `register_run`."""
        self._run(self._async.commit_batch, ledger, run_id, batch_id, parts, timeout_ms=timeout_ms)

    def abort_batch(self, ledger: LedgerId, run_id: str, batch_id: int, *, timeout_ms: int | None = None) -> bool:
        """Aborts the batch of this run. Returns False if the batch is committed already; it then stays committed."""
        return self._run(self._async.abort_batch, ledger, run_id, batch_id, timeout_ms=timeout_ms)

    def list_ledgers(self, *, timeout_ms: int | None = None) -> dict[LedgerId, LedgerListing]:
        """Returns every coordinator's batch ledgers, with their open transactions."""
        return self._run(self._async.list_ledgers, timeout_ms=timeout_ms)

    def delete_ledger(self, ledger: LedgerId, *, timeout_ms: int | None = None) -> None:
        """Deletes a ledger and aborts its open transactions. If its query continues afterwards, the query's next batch
        counts as the first one.

        Raises TransactionalIdNotFoundError."""
        self._run(self._async.delete_ledger, ledger, timeout_ms=timeout_ms)

    def create_acls(self, acls: Iterable[AclBinding], *, timeout_ms: int | None = None) -> None:
        """Adds ACL entries. An entry that exists already is not an error (Kafka's createAcls).

        Raises InvalidRequestError for an invalid entry. The other entries are created nevertheless."""
        self._run(self._async.create_acls, acls, timeout_ms=timeout_ms)

    def describe_acls(
        self, wanted: AclBindingFilter | None = None, *, timeout_ms: int | None = None
    ) -> tuple[AclBinding, ...]:
        """Returns the entries that match the filter, or all entries without a filter (Kafka's describeAcls). Raises
        InvalidRequestError."""
        return self._run(self._async.describe_acls, wanted, timeout_ms=timeout_ms)

    def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
    ) -> dict[AclBindingFilter, tuple[AclBinding, ...]]:
        """Deletes the entries that match each filter, and returns them (Kafka's deleteAcls).

        Raises InvalidRequestError for a filter with unknown values. The entries that match the other filters are
        deleted nevertheless."""
        return self._run(self._async.delete_acls, filters, timeout_ms=timeout_ms)

    def check_acl(
        self,
        principal: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        host: str = "",
        timeout_ms: int | None = None,
    ) -> AclDecision:
        """Returns whether `principal` (`Type:name`) may perform the operation, and the rule that decides. The active
        controller's settings apply.

        Without `host`, the client's address matches only the entries for every host. Raises InvalidRequestError."""
        return self._run(
            self._async.check_acl, principal, operation, resource_type, resource_name, host=host, timeout_ms=timeout_ms
        )

    def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Applies one change to each user. To change a password for both mechanisms takes two calls, as in Kafka.

        Raises UnacceptableCredentialError, ResourceNotFoundError, DuplicateResourceError or
        UnsupportedSaslMechanismError. The changes of other users are applied nevertheless."""
        self._run(self._async.alter_user_scram_credentials, alterations, timeout_ms=timeout_ms)

    def describe_user_scram_credentials(
        self, users: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> dict[str, UserScramCredentialsDescription]:
        """Returns the credentials of each named user by name, or of all users if no names are given. Raises
        ResourceNotFoundError."""
        return self._run(self._async.describe_user_scram_credentials, users, timeout_ms=timeout_ms)

    def describe_client_quotas(
        self,
        components: Iterable[ClientQuotaFilterComponent] = (),
        *,
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Returns the quota values by key, for each entity that matches `components`. With `strict`, an entity must not
        have other components. Empty `components` match all entities.

        Raises InvalidRequestError, or UnsupportedVersionError for an unknown entity type."""
        return self._run(self._async.describe_client_quotas, components, strict=strict, timeout_ms=timeout_ms)

    def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Changes quotas. The changes of one entity are applied together or not at all. Removing a quota that does not
        exist is no error.

        Raises InvalidRequestError. Changes of other entities are applied nevertheless."""
        self._run(self._async.alter_client_quotas, alterations, validate_only=validate_only, timeout_ms=timeout_ms)

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncAdmin", "Admin", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


async def _create(config: Mapping[str, Any] | None, settings: ClientSettings) -> AsyncAdmin:
    return AsyncAdmin(config, **settings)
