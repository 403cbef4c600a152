"""The Admin for threads: an AsyncAdmin on the shared loop thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from klamm.admin.async_admin import AsyncAdmin
from klamm.admin.async_transactions import MAX_TRANSACTION_TIMEOUT_MS
from klamm.threads.facade import documented_by
from klamm.threads.loop_thread import LoopThread

if TYPE_CHECKING:
    from types import TracebackType

    from klamm.admin.types import (
        AclBinding,
        AclBindingFilter,
        AclDecision,
        AclOperation,
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
        GroupListing,
        HangingTransaction,
        LedgerListing,
        LogDirDescription,
        NewTopic,
        PartitionReassignment,
        ProducerState,
        QuorumDescription,
        ResourceType,
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


@documented_by(AsyncAdmin)
class Admin:
    """The synchronous Admin. Its methods are those of AsyncAdmin, but wait for the result. Any thread may call them."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ClientSettings]) -> None:
        self._run = LoopThread.shared().run
        self._async = self._run(_create, config, settings)

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        return self._run(self._async.create_topics, topics, validate_only=validate_only, timeout_ms=timeout_ms)

    def delete_topics(self, topics: Iterable[str], *, timeout_ms: int | None = None) -> None:
        self._run(self._async.delete_topics, topics, timeout_ms=timeout_ms)

    def create_partitions(
        self,
        total_counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Mapping[int, Iterable[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        self._run(
            self._async.create_partitions,
            total_counts,
            assignments=assignments,
            validate_only=validate_only,
            timeout_ms=timeout_ms,
        )

    def describe_topics(self, topics: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, TopicDescription]:
        return self._run(self._async.describe_topics, topics, timeout_ms=timeout_ms)

    def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        return self._run(self._async.list_topics, include_internal=include_internal, timeout_ms=timeout_ms)

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, BrokerError | None]:
        return self._run(self._async.elect_leaders, election_type, partitions, timeout_ms=timeout_ms)

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        keep_replication_factor: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        self._run(
            self._async.alter_partition_reassignments,
            reassignments,
            keep_replication_factor=keep_replication_factor,
            timeout_ms=timeout_ms,
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        return self._run(self._async.list_partition_reassignments, partitions, timeout_ms=timeout_ms)

    def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        self._run(self._async.unregister_broker, broker_id, timeout_ms=timeout_ms)

    def decommission_broker(self, broker_id: int, *, validate_only: bool = False, timeout_ms: int | None = None) -> int:
        return self._run(self._async.decommission_broker, broker_id, validate_only=validate_only, timeout_ms=timeout_ms)

    def create_acls(self, acls: Iterable[AclBinding], *, timeout_ms: int | None = None) -> None:
        self._run(self._async.create_acls, acls, timeout_ms=timeout_ms)

    def describe_acls(
        self, wanted: AclBindingFilter | None = None, *, timeout_ms: int | None = None
    ) -> tuple[AclBinding, ...]:
        return self._run(self._async.describe_acls, wanted, timeout_ms=timeout_ms)

    def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
    ) -> dict[AclBindingFilter, tuple[AclBinding, ...]]:
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
        return self._run(
            self._async.check_acl,
            principal,
            operation,
            resource_type,
            resource_name,
            host=host,
            timeout_ms=timeout_ms,
        )

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] = (),
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
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
        self._run(self._async.incremental_alter_configs, changes, validate_only=validate_only, timeout_ms=timeout_ms)

    def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        self._run(self._async.alter_user_scram_credentials, alterations, timeout_ms=timeout_ms)

    def describe_user_scram_credentials(
        self, users: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> dict[str, UserScramCredentialsDescription]:
        return self._run(self._async.describe_user_scram_credentials, users, timeout_ms=timeout_ms)

    def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        self._run(self._async.alter_client_quotas, alterations, validate_only=validate_only, timeout_ms=timeout_ms)

    def describe_client_quotas(
        self,
        components: Iterable[ClientQuotaFilterComponent] = (),
        *,
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        return self._run(self._async.describe_client_quotas, components, strict=strict, timeout_ms=timeout_ms)

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        return self._run(self._async.describe_cluster, timeout_ms=timeout_ms)

    def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        return self._run(self._async.describe_quorum, timeout_ms=timeout_ms)

    def add_raft_voter(
        self,
        voter_id: int,
        voter_directory_id: str,
        *,
        endpoint: tuple[str, int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        self._run(self._async.add_raft_voter, voter_id, voter_directory_id, endpoint=endpoint, timeout_ms=timeout_ms)

    def remove_raft_voter(self, voter_id: int, voter_directory_id: str, *, timeout_ms: int | None = None) -> None:
        self._run(self._async.remove_raft_voter, voter_id, voter_directory_id, timeout_ms=timeout_ms)

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: int | None = None
    ) -> dict[str, GroupListing]:
        return self._run(self._async.list_groups, states=states, types=types, timeout_ms=timeout_ms)

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription]:
        return self._run(self._async.describe_groups, group_ids, timeout_ms=timeout_ms)

    def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> None:
        self._run(self._async.delete_groups, group_ids, timeout_ms=timeout_ms)

    def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._run(self._async.list_group_offsets, group_id, partitions, timeout_ms=timeout_ms)

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        self._run(self._async.alter_group_offsets, group_id, offsets, timeout_ms=timeout_ms)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        self._run(self._async.delete_group_offsets, group_id, partitions, timeout_ms=timeout_ms)

    def remove_group_members(
        self,
        group_id: str,
        instances: Iterable[str] | None = None,
        *,
        reason: str = "",
        timeout_ms: int | None = None,
    ) -> None:
        self._run(self._async.remove_group_members, group_id, instances, reason=reason, timeout_ms=timeout_ms)

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> dict[str, TransactionListing]:
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
        return self._run(self._async.describe_transactions, transactional_ids, timeout_ms=timeout_ms)

    def abort_transaction(self, transactional_id: str, *, timeout_ms: int | None = None) -> None:
        self._run(self._async.abort_transaction, transactional_id, timeout_ms=timeout_ms)

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, tuple[int, int]]:
        return self._run(self._async.fence_producers, transactional_ids, timeout_ms=timeout_ms)

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        return self._run(self._async.describe_producers, partitions, timeout_ms=timeout_ms)

    def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        return self._run(
            self._async.find_hanging_transactions,
            partitions,
            max_transaction_timeout_ms=max_transaction_timeout_ms,
            timeout_ms=timeout_ms,
        )

    def abort_hanging_transaction(self, hanging: HangingTransaction, *, timeout_ms: int | None = None) -> None:
        self._run(self._async.abort_hanging_transaction, hanging, timeout_ms=timeout_ms)

    def register_run(self, ledger: LedgerId, run_id: str, batch_id: int, *, timeout_ms: int | None = None) -> bool:
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
        self._run(self._async.commit_batch, ledger, run_id, batch_id, parts, timeout_ms=timeout_ms)

    def abort_batch(self, ledger: LedgerId, run_id: str, batch_id: int, *, timeout_ms: int | None = None) -> bool:
        return self._run(self._async.abort_batch, ledger, run_id, batch_id, timeout_ms=timeout_ms)

    def list_ledgers(self, *, timeout_ms: int | None = None) -> dict[LedgerId, LedgerListing]:
        return self._run(self._async.list_ledgers, timeout_ms=timeout_ms)

    def delete_ledger(self, ledger: LedgerId, *, timeout_ms: int | None = None) -> None:
        self._run(self._async.delete_ledger, ledger, timeout_ms=timeout_ms)

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return self._run(self._async.list_offsets, timestamps, read_committed=read_committed, timeout_ms=timeout_ms)

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        return self._run(self._async.delete_records, before_offsets, timeout_ms=timeout_ms)

    def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        return self._run(self._async.describe_log_dirs, broker_ids, topics=topics, timeout_ms=timeout_ms)

    def alter_replica_log_dirs(
        self, log_dirs: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> None:
        self._run(self._async.alter_replica_log_dirs, log_dirs, timeout_ms=timeout_ms)

    def scrub_logs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[TopicPartition, ...]]:
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
        return self._run(
            self._async.describe_scrubs,
            partitions,
            broker_ids,
            topics=topics,
            unrepaired_only=unrepaired_only,
            timeout_ms=timeout_ms,
        )

    def close(self) -> None:
        self._run(self._async.close)

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
